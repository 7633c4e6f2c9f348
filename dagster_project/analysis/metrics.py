"""What was measured of a study: parts of a layer each, what they are made of, and their rows as arrays.

What does not belong here: the computation (``dagster_project.analysis.measurement``) and the asset
(``dagster_project.assets.metrics``).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from dagster_project.study.home import Home
from dagster_project.study.settings import AnalysisSettings
from geometry.arrays import I64
from storage.errors import DerivedDamageError, UserError
from storage.files.parts import STEP, explain_damage, locate_part, locate_parts, open_part, read_inputs, read_part
from storage.files.places import Place
from storage.warehouse import rows
from storage.zarr.arrays import LayerSize
from storage.zarr.layers import count_keys, list_attending_layers, read_query_positions
from storage.zarr.sequences import SequenceStore

METRICS_VERSION = 11
"""Version of the measured numbers; raised when their computation changes, so that they are measured again."""

READ = ("attention", "values")
"""The arrays of the tensor store that metrics are computed from and that may have been dropped."""

_NAMES: Mapping[str, tuple[str, ...]] = {
    "selection_counts": rows.BY_N,
    "upper_bounds": rows.BY_KAPPA,
    "attention_rows": rows.BY_HEAD,
    "concentration": rows.SPREAD,
    rows.SEEN_KEYS: ("cos_last_of_keys",),
    "sink_similarity": rows.OF_SEQUENCE,
    rows.KEYS: rows.BY_KEY,
}
"""The quantities that a measured table has as columns of the same names."""

_COLUMNS: Mapping[str, tuple[str, str]] = {
    **{name: (table, name) for table, names in _NAMES.items() for name in names},
    **{name: ("value_scales", column) for column, name in rows.VALUE_SCALES.items()},
}
"""The table and column of each quantity that is read as an array."""


@dataclass(frozen=True)
class Metrics:
    """What is measured of a study with some settings, whether it is there or not."""

    folder: Place  # The folder of the study's parts
    tensors: SequenceStore
    made_of: Mapping[str, Any]
    """What decides it, as JSON: the study, its settings, ``METRICS_VERSION`` and the provenance of the tensors."""
    _opened: dict[Place, parquet.FileMetaData] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, home: Home, name: str, tensors: SequenceStore, analysis: AnalysisSettings) -> Self:
        """What is measured of these tensors with these settings."""
        decided = {"study": name, "metrics_version": METRICS_VERSION, "analysis": analysis.select_measured()}
        return cls(home.metrics(name), tensors, decided | {"tensors": tensors.provenance})

    @property
    def layers(self) -> tuple[LayerSize, ...]:
        """Sizes of each layer of the model."""
        return self.tensors.layers

    @property
    def sequences(self) -> int:
        """Number of sequences."""
        return self.tensors.sizes["sequence"]

    @cached_property
    def queries(self) -> tuple[int, ...]:
        """Position of each query, ascending."""
        return read_query_positions(self.tensors)

    @cached_property
    def n_keys(self) -> I64:
        """Keys that each query sees in each layer, in every sequence, (query, layer); 0 without attention."""
        n_keys = np.zeros((len(self.queries), len(self.layers)), np.int64)
        n_keys[:, list_attending_layers(self.tensors)] = count_keys(self.tensors).max(axis=0)
        return n_keys

    def count_selections(self) -> int:
        """Selections (sequence, query, layer, head, N)."""
        heads = np.array([size.heads for size in self.layers], np.int64)
        return self.sequences * int(((self.n_keys - 1).clip(min=0) * heads).sum())

    def build_inputs(self, layer: int) -> dict[str, Any]:
        """What the parts of a layer are made of, as ``storage.files.parts`` has it."""
        return {STEP: f"layer-{layer:03}", **self.made_of}

    def find_missing(self) -> list[int]:
        """The layers with attention that are still to be measured, in order."""
        return [layer for layer in list_attending_layers(self.tensors) if self._read_inputs(layer) is None]

    def _read_inputs(self, layer: int) -> dict[str, Any] | None:
        return read_inputs(locate_parts(self.folder, self.build_inputs(layer)))

    def require_complete(self) -> Self:
        """Return what is measured itself; ``UserError`` if layers are missing."""
        if missing := self.find_missing():
            raise UserError(
                f"The metrics {self.folder} lack {len(missing)} of {len(list_attending_layers(self.tensors))} layers, "
                f"or are of other settings or tensors; run: attention-geometry run {self.made_of['study']}"
            )
        return self

    def read_libraries(self) -> dict[str, str] | None:
        """The libraries that measured the first layer that is there, and the device; None if none is."""
        layers = map(self._read_inputs, list_attending_layers(self.tensors))
        return next((made["libraries"] for made in layers if made is not None), None)

    def stream(self, table: str) -> Iterator[pa.RecordBatch]:
        """The rows of a measured table, layer by layer."""
        for layer in list_attending_layers(self.tensors):
            yield from read_part(locate_part(self.folder, table, self.build_inputs(layer)), DerivedDamageError)

    def read(self, name: str, layer: int, *, query: int | None = None, sequences: slice = slice(None)) -> NDArray[Any]:
        """Read a quantity of one layer, as ``read_together``."""
        return self.read_together([name], layer, query=query, sequences=sequences)[name]

    def read_together(
        self, names: Sequence[str], layer: int, *, query: int | None = None, sequences: slice = slice(None)
    ) -> dict[str, NDArray[Any]]:
        """Read quantities of one layer and one table, (sequence, head, …), the last axis as far as the query has keys.

        NaN, or -1, where there is no value. ``query``: index of the query, for a quantity that has that axis;
        ``sequences``: their numbers. ``DerivedDamageError`` if one is lost or damaged.
        """
        (table,) = {_COLUMNS[name][0] for name in names}
        indices = range(len(self.queries)) if query is not None else [0]
        shapes = [self._find_shape(table, layer, index) for index in indices]
        starts = np.cumsum([0, *map(prod, shapes)])
        at, shape = (query or 0), shapes[query or 0]
        wanted = np.arange(self.sequences)[sequences] * starts[-1] + starts[at]
        part = locate_part(self.folder, table, self.build_inputs(layer))
        try:
            columns = self._read_ranges(part, [_COLUMNS[name][1] for name in names], wanted, prod(shape))
        except (OSError, ValueError, pa.ArrowException) as error:
            raise explain_damage(part, error, DerivedDamageError) from error
        found = (column.reshape(len(wanted), *shape) for column in columns)
        swapped = (array.swapaxes(1, 2) if table == "upper_bounds" else array for array in found)
        return dict(zip(names, swapped, strict=True))

    def _find_shape(self, table: str, layer: int, index: int) -> tuple[int, ...]:
        """The axes of the rows of a table for one sequence of a layer, and one query if it has that axis."""
        size, keys = self.layers[layer], int(self.n_keys[index, layer])
        of_n = (size.heads, max(keys - 1, 0))
        shapes: dict[str, tuple[int, ...]] = {
            "selection_counts": of_n,
            "upper_bounds": (len(self.made_of["analysis"]["kappas"]), *of_n),
            "attention_rows": (size.heads,),
            "concentration": (size.heads,),
            rows.SEEN_KEYS: (size.kv_heads, keys),
            rows.KEYS: (size.kv_heads, self.tensors.sizes["key"]),
        }
        return shapes.get(table, (size.kv_heads,))

    def _read_ranges(self, part: Place, columns: list[str], starts: I64, length: int) -> list[NDArray[Any]]:
        """Ranges of rows of columns, (range, row) each; row groups without any of them are not read."""
        if not length:
            return [np.empty((len(starts), 0), np.float32)] * len(columns)
        with open_part(part, self._opened.get(part)) as file:
            self._opened[part] = file.metadata
            sizes = np.array([file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)])
            ends = sizes.cumsum()
            first, last = (np.searchsorted(ends, edge, "right") for edge in (starts, starts + length - 1))
            needed = np.zeros(len(sizes), bool)
            for begin, end in zip(first, last, strict=True):
                needed[begin : end + 1] = True
            groups = file.read_row_groups(np.flatnonzero(needed).tolist(), columns, use_threads=False)
        if len(groups) != sizes[needed].sum():
            raise ValueError("some of its rows are lost")
        left_out = np.cumsum(np.where(needed, 0, sizes))  # rows before each group that were not read
        places = starts - left_out[first]
        ranges = []
        for numbers in map(groups.column, columns):
            flat = (numbers.fill_null(-1) if pa.types.is_integer(numbers.type) else numbers).to_numpy()  # which copies
            ranges.append(np.stack([flat[place : place + length] for place in places]))
        return ranges


def list_together(name: str) -> list[str]:
    """The quantities of the same table as one."""
    return [other for other, (table, _) in _COLUMNS.items() if table == _COLUMNS[name][0]]


def list_recorded(folder: Place) -> Iterator[Mapping[str, Any]]:
    """What the parts in the folder of a study were made of, whatever it was."""
    for name in folder.list_folders():
        if (made := read_inputs(folder.join(name))) is not None:
            yield made["inputs"]
