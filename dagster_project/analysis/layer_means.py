"""Rows of means over sequences of the heads of one layer, among them those of the geometry of s_N."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagster_project.analysis.passes import Block, Summary
from dagster_project.analysis.sources import Rows, Sources
from geometry.arrays import F64
from geometry.statistics.intervals import Estimate, Mean, average
from storage.warehouse.rows import build_batch, index_columns


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
