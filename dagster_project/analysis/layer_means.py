"""Means over sequences of the heads of one layer, which a pass reads in blocks of sequences."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_project.analysis.passes import Block
from geometry.arrays import F64
from geometry.statistics.moments import Mean
from storage.warehouse.rows import build_batch, index_columns


class LayerMeans:
    """Means of quantities by name, of the layer that is being read.

    Memory: 16 bytes for each element of the quantities of one layer.
    """

    def __init__(self) -> None:
        self._means: dict[str, Mean] = {}

    def join(self, block: Block, measured: Mapping[str, Mean]) -> dict[str, F64]:
        """Add the means of a block; return those of the layer, (head, …) each, with its last block, else nothing."""
        for name, mean in self._means.items():
            mean.merge(measured[name])
        self._means = self._means or dict(measured)
        if not block.is_last:
            return {}
        means, self._means = self._means, {}
        return {name: mean.value for name, mean in means.items()}


def build_mean_rows(block: Block, sequences: int, means: Mapping[str, F64], dtype: Any = np.float64) -> pa.RecordBatch:
    """The rows of the means of one layer at one query, (head, N) each, by head and N."""
    constant = {"query": block.query, "layer": block.layer, "sequences": sequences}
    place = index_columns((block.heads, block.n_keys - 1), "head", "n", **constant)
    place["n"] += 1
    return build_batch(place | {name: mean.astype(dtype, copy=False).ravel() for name, mean in means.items()})
