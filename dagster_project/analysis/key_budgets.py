"""How many keys hold a share of the weight, or leave an error: means over sequences by head, layer and model.

All have intervals. The errors are those of ``geometry.quantities.SelectionErrors``.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_project.analysis.layer_means import build_interval_columns
from dagster_project.analysis.passes import Block, Summary
from dagster_project.analysis.sources import Rows
from geometry.arrays import F64
from geometry.selection.outputs import count_keys_below
from geometry.statistics.intervals import Domain, estimate_mean
from storage.warehouse.rows import build_batch, fill_columns

SHARES = ("n_50", "n_90", "n_99")  # The arrays of the metrics that are columns of the tables

ERRORS = {
    f"n_{kind}_{percent}": (f"error_{kind}", percent / 100)
    for kind in ("renormalised", "mean")
    for percent in (10, 5, 1)
}
"""The other columns, and for each an array of the metrics and the error that is left."""

NUMBERS = (*SHARES, *ERRORS)

AT_LEAST_ONE: Domain = (1.0, math.inf)


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
