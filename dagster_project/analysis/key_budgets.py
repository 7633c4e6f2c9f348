"""How many keys hold 50, 90 and 99 % of the weight: means over sequences by head, layer and model, with intervals."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_project.analysis.passes import Block, fill_columns
from dagster_project.analysis.sources import Rows, Sources
from geometry.arrays import F64
from geometry.statistics.intervals import Domain
from geometry.statistics.moments import estimate_mean
from storage.warehouse.rows import build_batch

NUMBERS = ("n_50", "n_90", "n_99")
"""The arrays of the metrics, and columns of the tables."""

AT_LEAST_ONE: Domain = (1.0, math.inf)


class KeyBudgets:
    """The rows of ``key_budgets``, ``key_budgets_layer`` and ``key_budgets_model``.

    In memory are the numbers of all sequences of one layer, and their sums over the heads of the model at each query.
    """

    def __init__(self, sources: Sources) -> None:
        sequences = sources.metrics.sizes["sequence"]
        self._parts: list[F64] = []
        self._sums: F64 = np.zeros((len(sources.queries), sequences, len(NUMBERS)))
        self._heads = np.zeros(len(sources.queries), np.int32)
        self._keys: F64 = np.zeros(len(sources.queries))
        self._queries = sources.queries

    def measure(self, block: Block) -> F64:
        """The numbers of one block, (sequence, number, head)."""
        return np.stack([block.read(name).astype(np.float64) for name in NUMBERS], axis=1)

    def add(self, block: Block, measured: F64) -> Rows:
        """Yield the rows of the layer, once all its sequences are there."""
        self._parts.append(measured)
        self._sums[block.index, block.sequences] += measured.sum(axis=-1)
        if not block.is_last:
            return
        counts, self._parts = np.concatenate(self._parts), []
        self._heads[block.index] += block.heads
        self._keys[block.index] += block.heads * block.n_keys
        constant = {"query": block.query, "sequences": len(counts)}
        layer = {"layer": np.full(block.heads, block.layer, np.int16)}
        keys = np.full(block.heads, float(block.n_keys))
        head = {"head": np.arange(block.heads, dtype=np.int16), "n_keys": keys}
        yield "key_budgets", _build_rows(counts, layer | head, **constant)
        of_layer = {name: column[:1] for name, column in (layer | {"n_keys": keys}).items()}
        yield "key_budgets_layer", _build_rows(counts.mean(axis=-1)[..., None], of_layer, heads=block.heads, **constant)

    def finish(self) -> Rows:
        """Yield the rows of the model."""
        for index, heads in enumerate(self._heads.tolist()):
            if heads:
                constant = {"query": self._queries[index], "heads": heads, "sequences": self._sums.shape[1]}
                keys = {"n_keys": self._keys[index : index + 1] / heads}
                yield "key_budgets_model", _build_rows(self._sums[index][..., None] / heads, keys, **constant)


def _build_rows(mean: F64, columns: Mapping[str, Any], **constant: int) -> pa.RecordBatch:
    """Rows of means over sequences of (sequence, number, row), with intervals."""
    estimate = estimate_mean(mean, AT_LEAST_ONE)
    parts = {"": estimate.value, "_low": estimate.low, "_high": estimate.high}
    means = {f"{name}{end}": part[index] for index, name in enumerate(NUMBERS) for end, part in parts.items()}
    return build_batch(fill_columns(mean.shape[-1], **constant) | dict(columns) | means)
