"""Means of Precision, Recall, F and specificity: over sequences, with intervals, and over ln N, of every sequence.

The pass over the metrics that computes them feeds all other means and correlations of measured quantities, too.
"""

import numpy as np
import pyarrow as pa

from dagster_project.analysis.coverage import Coverage
from dagster_project.analysis.distances import Distances
from dagster_project.analysis.layer_means import (
    BoundMeans,
    Diagnostics,
    KeyBudgets,
    build_interval_columns,
    index_heads_and_n,
)
from dagster_project.analysis.passes import Block, Summary, run_pass
from dagster_project.analysis.sink import SinkEffect
from dagster_project.analysis.sources import Rows, Sources
from geometry.arrays import F64, I64
from geometry.selection.metrics import METRICS, MetricMoments, average_levels, average_metrics, follow_cosines
from geometry.statistics.intervals import SHARE, Moments, estimate_mean
from storage.warehouse.rows import build_batch, fill_columns, index_columns


def compute_selection_means(sources: Sources) -> Rows:
    """All means over sequences of what is measured of selections, in one pass over it.

    Of every query, head and N: Precision, Recall, F and specificity, their bounds and how often means lie within, the
    geometry of s_N and its distance from the rest; keys for a share of the weight or an error; the correlation of
    Recall and ρ_0. Means over heads of every sequence at one query are in memory, and 72 bytes for each head and
    sequence at one query (``KeyBudgets``). For each head and N of a layer there are 96 bytes of metrics, 80 of the
    geometry of s_N and, with K values of κ, 64 + 96 K of bounds: of the layer that is being added, and of each block
    that is measured.
    """
    summaries: list[Summary] = [SelectionMeans(sources), HeadLevels(), KeyBudgets(), BoundMeans(sources)]
    summaries += [Diagnostics(sources), SinkEffect(sources), Coverage(sources), Distances(sources)]
    return run_pass(sources, summaries)


class SelectionMeans(Summary):
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
            columns = build_interval_columns(moments.estimate(SHARE), METRICS, np.float32)
            yield "selection_means", build_batch(index_heads_and_n(block, self._sequences) | columns)

    def finish(self) -> Rows:
        """Yield the rows of the model."""
        for model in self._models.values():
            if model.heads.any():
                yield "selection_means_model", model.build_rows()


class HeadLevels(Summary):
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
            self.heads[: block.n_keys - 1] += block.size.heads

    def build_rows(self) -> pa.RecordBatch:
        """The rows of ``selection_means_model`` of the query."""
        seen = self.heads > 0
        estimate = estimate_mean(self._sums[..., seen] / self.heads[seen], SHARE)
        place = {"n": np.flatnonzero(seen).astype(np.int32) + 1, "heads": self.heads[seen].astype(np.int32)}
        constant = fill_columns(int(seen.sum()), query=self._query, sequences=len(self._sums))
        return build_batch(constant | place | build_interval_columns(estimate, METRICS))
