"""Means of Precision, Recall, F and specificity: over sequences, with intervals, and over ln N, of every sequence.

The pass over the metrics that computes them feeds the means of bounds, of the geometry of s_N and of keys, too.
"""

import numpy as np
import pyarrow as pa

from dagster_project.analysis.bound_means import BoundMeans
from dagster_project.analysis.columns import build_interval_columns
from dagster_project.analysis.diagnostics import Diagnostics
from dagster_project.analysis.key_budgets import KeyBudgets
from dagster_project.analysis.passes import Block, Summary, run_pass
from dagster_project.analysis.sources import Rows, Sources
from geometry.arrays import F64, I64
from geometry.selection.metrics import METRICS, MetricMoments, average_levels, average_metrics, follow_cosines
from geometry.statistics.intervals import SHARE, Estimate
from geometry.statistics.moments import Moments, estimate_mean
from storage.warehouse.rows import build_batch, fill_columns, index_columns


def compute_selection_means(sources: Sources) -> Rows:
    """Means of every query, head and N: Precision, Recall, F and specificity, their bounds, and the geometry of s_N.

    And keys for a share of the weight or an error. Means of metrics and keys have intervals, and are of the model too.
    Means over heads of every sequence at one query are in memory, and 72 bytes for each head and sequence at one query
    (``KeyBudgets``). For each head and N of a layer there are 96 bytes of metrics, 80 of the geometry of s_N and, with
    K values of κ, 64 + 96 K of bounds: of the layer that is being added, and of each block that is measured.
    """
    summaries: list[Summary] = [SelectionMeans(sources), HeadLevels(), KeyBudgets()]
    summaries += [BoundMeans(sources), Diagnostics(sources)]
    return run_pass(sources, summaries, kappas=len(sources.study.analysis.kappas))


class SelectionMeans:
    """The rows of ``selection_means`` and ``selection_means_model``."""

    def __init__(self, sources: Sources) -> None:
        self._sequences = sources.metrics.sequences
        self._heads: Moments | None = None
        self._models = {index: _Model(self._sequences, query) for index, query in enumerate(sources.queries)}

    def measure(self, block: Block) -> MetricMoments:
        """Average one block over its sequences."""
        return average_metrics(block.read("k_in"), block.read("k_out"), block.n_keys)

    def add(self, block: Block, measured: MetricMoments) -> Rows:
        """Yield the rows of the layer, once all its sequences are there."""
        moments = self._heads or Moments()
        moments.merge(measured.sequences, measured.mean, measured.squares)
        self._models[block.index].add(block, measured.over_heads)
        self._heads = None if block.is_last else moments
        if block.is_last:
            yield "selection_means", _build_rows(block, self._sequences, moments.estimate(SHARE))

    def finish(self) -> Rows:
        """Yield the rows of the model."""
        for model in self._models.values():
            if model.heads.any():
                yield "selection_means_model", model.build_rows()


class HeadLevels:
    """The rows of ``head_levels``: means over ln N of every sequence and head, and the course of the cosines of s_N."""

    def measure(self, block: Block) -> dict[str, F64]:
        """The columns of one block, (sequence, head) each."""
        k_in, k_out, r_min, norm_s = (block.read(name) for name in ("k_in", "k_out", "r_min", "norm_s"))
        levels = average_levels(k_in, k_out, r_min, norm_s, block.margins[0], block.n_keys)
        return levels | follow_cosines(*(block.read(name) for name in ("cos_sink", "cos_last", "a_0")))

    def add(self, block: Block, measured: dict[str, F64]) -> Rows:
        """Yield the rows of the block."""
        place = index_columns(measured["recall"].shape, "sequence", "head", query=block.query, layer=block.layer)
        place["sequence"] += np.int32(block.sequences.start)
        yield "head_levels", build_batch(place | {name: of_heads.ravel() for name, of_heads in measured.items()})

    def finish(self) -> Rows:
        """Nothing is left."""
        yield from ()


class _Model:
    """Means over the heads of the model at one query: of every sequence, over the heads that have an N."""

    def __init__(self, sequences: int, query: int) -> None:
        self.heads: I64 = np.zeros(query, np.int64)
        self._query = query
        self._sums: F64 = np.zeros((sequences, len(METRICS), query))

    def add(self, block: Block, over_heads: F64) -> None:
        """Add the sums over the heads of a block, (sequence, metric, N)."""
        self._sums[block.sequences, :, : block.n_keys - 1] += over_heads
        if block.is_last:
            self.heads[: block.n_keys - 1] += block.heads

    def build_rows(self) -> pa.RecordBatch:
        """The rows of ``selection_means_model`` of the query."""
        seen = self.heads > 0
        estimate = estimate_mean(self._sums[..., seen] / self.heads[seen], SHARE)
        place = {"n": np.flatnonzero(seen).astype(np.int32) + 1, "heads": self.heads[seen].astype(np.int32)}
        constant = fill_columns(int(seen.sum()), query=self._query, sequences=len(self._sums))
        return build_batch(constant | place | build_interval_columns(estimate, METRICS))


def _build_rows(block: Block, sequences: int, estimate: Estimate) -> pa.RecordBatch:
    """The rows of ``selection_means`` of one layer at one query."""
    constant = {"query": block.query, "layer": block.layer, "sequences": sequences}
    place = index_columns(estimate.value.shape[1:], "head", "n", **constant)
    place["n"] += 1
    return build_batch(place | build_interval_columns(estimate, METRICS, np.float32))
