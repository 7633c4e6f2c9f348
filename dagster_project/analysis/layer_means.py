"""Means over sequences of the heads of one layer: the geometry of s_N, the bounds, and keys for a share of the weight.

The errors of which keys are counted are those of ``geometry.quantities.SelectionErrors``.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagster_project.analysis.passes import Block, Summary
from dagster_project.analysis.sources import Rows, Sources
from geometry.arrays import F64
from geometry.bounds.lower import LOWER, sum_lower_bounds
from geometry.selection.outputs import count_keys_below
from geometry.statistics.intervals import Domain, Estimate, Mean, average, estimate_mean
from storage.warehouse.rows import build_batch, fill_columns, index_columns

SCORES = {"precision": "f_r_max", "recall": "f_r_min"}
"""The F-score that follows from each metric, where the other is 1 by convention (eq. 4, 16, 17)."""

SHARES = ("n_50", "n_90", "n_99")  # The arrays of the metrics that are columns of the tables

ERRORS = {
    f"n_{kind}_{percent}": (f"error_{kind}", percent / 100)
    for kind in ("renormalised", "mean")
    for percent in (10, 5, 1)
}
"""The other columns, and for each an array of the metrics and the error that is left."""

NUMBERS = (*SHARES, *ERRORS)

AT_LEAST_ONE: Domain = (1.0, math.inf)


class LayerMeans(Summary):
    """The rows of a table of means of quantities by name.

    Memory: 16 bytes for each element of the quantities of the layer that is being read.
    """

    table: ClassVar[str]
    dtype: ClassVar[Any] = np.float64

    def __init__(self, sources: Sources) -> None:
        self._sequences = sources.metrics.sequences
        self._means: dict[str, Mean] = {}

    @abstractmethod
    def measure(self, block: Block) -> Any:
        """The means of one block by name, (head, …) each."""

    def add(self, block: Block, measured: Mapping[str, Mean]) -> Rows:
        """Yield the rows of the layer, once all its sequences are there."""
        for name, mean in self._means.items():
            mean.merge(measured[name])
        self._means = self._means or dict(measured)
        if block.is_last:
            means, self._means = self._means, {}
            yield self.table, self.build_rows(block, {name: mean.value for name, mean in means.items()})

    def build_rows(self, block: Block, means: dict[str, F64]) -> pa.RecordBatch:
        """The rows of the means of one layer at one query, (head, N) each, by head and N."""
        columns = {name: mean.astype(self.dtype, copy=False).ravel() for name, mean in means.items()}
        return build_batch(index_heads_and_n(block, self._sequences) | columns)


class Diagnostics(LayerMeans):
    """The rows of ``diagnostics``: the norm of s_N, with and without sink and last token, and its cosines with both."""

    table = "diagnostics"

    def measure(self, block: Block) -> dict[str, Mean]:
        """The means of one block, (head, N) each."""
        names = ("norm_s", "norm_s_without_sink", "norm_s_without_last", "cos_sink", "cos_last")
        return {name: average(block.read(name)) for name in names}


class BoundMeans(LayerMeans):
    """The rows of ``bound_means``."""

    table = "bound_means"

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        self._kappas, self._scale = sources.study.analysis.kappas, sources.study.analysis.scale

    def measure(self, block: Block) -> dict[str, Mean]:
        """Means of one block: printed bounds (head, κ, N), all others (head, N)."""
        margin, of_sink = block.margins
        counts = (~np.isnan(margin)).sum(axis=0)
        means = {"margin": average(margin), "premise_share": Mean(counts, (margin > 0).sum(axis=0))}
        sums = sum_lower_bounds(margin, of_sink, n_keys=block.n_keys, head_dim=block.size.head_dim, kappas=self._kappas)
        means |= {name: Mean(counts[:, None], total) for name, total in zip(LOWER, sums, strict=True)}
        for metric, score in SCORES.items():
            upper = block.read(f"{metric}_upper").astype(np.float64)
            means |= {f"{metric}_upper": average(upper), f"{score}_upper": average(2 * upper / (1 + upper))}
            means[f"{metric}_scale_free"] = average(block.read(f"{metric}_lower_scale_free"))
        return means

    def build_rows(self, block: Block, means: dict[str, F64]) -> pa.RecordBatch:
        """The rows of a layer: of each head those of every κ, then the scale-free ones, by N."""
        precision, recall = (means.pop(f"{metric}_scale_free") for metric in SCORES)
        n = np.arange(1, block.n_keys)
        # F is concave in P, which is at least n / n_keys, so the chord from there to 1 lies below it; F is at least R
        chord = 1 - (1 - precision) * (block.n_keys / (block.n_keys + n))
        free = dict(zip(LOWER, (precision, recall, chord, recall), strict=True))
        shape = (block.size.heads, len(self._kappas) + 1, n.size)
        place = index_columns(shape, "head", "family", "n", query=block.query, layer=block.layer)
        place["n"] += 1
        families = place.pop("family")
        is_free = families == len(self._kappas)
        columns: dict[str, Any] = {}
        for name, mean in means.items():  # NULL where a family has no such bound
            joined = np.full(shape, np.nan)
            joined[:, :-1] = mean if mean.ndim == 3 else mean[:, None]
            joined[:, -1] = free.get(name, np.nan)
            columns[name] = joined.ravel()
        columns["kappa"] = pa.array(np.append(self._kappas, np.nan)[families], mask=is_free)
        columns["family"] = pa.DictionaryArray.from_arrays(is_free.astype(np.int8), ["printed", "scale_free"])
        columns["scale"] = pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(is_free.size, np.int8), mask=is_free), [self._scale]
        )
        return build_batch(place | columns)


class KeyBudgets(Summary):
    """The rows of ``key_budgets``, ``key_budgets_layer`` and ``key_budgets_model``.

    In memory are the numbers of all heads of one query.
    """

    def __init__(self) -> None:
        self._parts: list[F64] = []
        self._layers: list[tuple[Block, F64]] = []  # The layers of a query, the first block of each with its numbers

    def measure(self, block: Block) -> F64:
        """The numbers of one block, (sequence, number, head)."""
        errors = {name: block.read(name) for name in dict(ERRORS.values())}
        counts = [block.read(name) for name in SHARES]
        counts += [count_keys_below(errors[name], limit) for name, limit in ERRORS.values()]
        return np.stack(counts, axis=1, dtype=np.float64)

    def add(self, block: Block, measured: F64) -> Rows:
        """Yield the rows of a query, once the next begins."""
        if self._layers and self._layers[0][0].index != block.index:
            yield from self.finish()
        self._parts.append(measured)
        if block.is_last:
            self._layers.append((block, np.concatenate(self._parts)))
            self._parts = []

    def finish(self) -> Rows:
        """Yield the rows of the last query."""
        if not self._layers:
            return
        layers, self._layers = self._layers, []
        query, blocks, parts = layers[0][0].query, [block for block, _ in layers], [part for _, part in layers]
        constant, counts = {"query": query, "sequences": len(parts[0])}, np.concatenate(parts, axis=-1)
        heads, keys = [block.size.heads for block in blocks], [block.n_keys for block in blocks]
        layer: dict[str, Any] = {"layer": np.array([block.layer for block in blocks], np.int16)}
        layer["n_keys"] = np.array(keys, np.float64)
        of_head = {name: column.repeat(heads) for name, column in layer.items()}
        of_head["head"] = np.concatenate([np.arange(number, dtype=np.int16) for number in heads])
        yield "key_budgets", _build_rows(counts, of_head, **constant)
        of_layers = np.stack([part.mean(axis=-1) for part in parts], axis=-1)
        yield "key_budgets_layer", _build_rows(of_layers, layer | {"heads": np.array(heads, np.int32)}, **constant)
        of_model = {"n_keys": of_head["n_keys"].mean(keepdims=True)}
        yield "key_budgets_model", _build_rows(counts.mean(axis=-1)[..., None], of_model, heads=sum(heads), **constant)


def _build_rows(mean: F64, columns: Mapping[str, Any], **constant: int) -> pa.RecordBatch:
    """Rows of means over sequences of (sequence, number, row), with intervals."""
    means = build_interval_columns(estimate_mean(mean, AT_LEAST_ONE), NUMBERS)
    return build_batch(fill_columns(mean.shape[-1], **constant) | dict(columns) | means)


def index_heads_and_n(block: Block, sequences: int) -> dict[str, NDArray[Any]]:
    """The first columns of the rows of a layer at one query, one for each head and N."""
    constant = {"query": block.query, "layer": block.layer, "sequences": sequences}
    place = index_columns((block.size.heads, block.n_keys - 1), "head", "n", **constant)
    place["n"] += 1
    return place


def build_interval_columns(
    estimate: Estimate, names: tuple[str, ...], dtype: Any = np.float64
) -> dict[str, NDArray[Any]]:
    """Columns of estimates and the ends of their intervals, ``NAME``, ``NAME_low``, ``NAME_high``; (name, …) each."""
    ends = {end: part.astype(dtype, copy=False) for end, part in estimate.name_ends("").items()}
    return {f"{name}{end}": part[index].ravel() for index, name in enumerate(names) for end, part in ends.items()}
