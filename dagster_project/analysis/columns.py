"""Columns of the small tables: places of rows, and intervals."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from geometry.statistics.intervals import Estimate
from storage.warehouse.rows import TYPES, fill_columns

Columns = dict[str, NDArray[Any]]


def index_columns(shape: tuple[int, ...], *axes: str, **constants: int) -> Columns:
    """The columns that identify the elements of an array, flat: indices along its axes, and columns of one value."""
    indices = np.indices(shape, np.int32).reshape(len(shape), -1)
    places = {name: index.astype(TYPES.get(name, np.int32)) for name, index in zip(axes, indices, strict=True)}
    return fill_columns(indices.shape[1], **constants) | places


def build_interval_columns(estimate: Estimate, names: tuple[str, ...], dtype: Any = np.float64) -> Columns:
    """Columns of estimates and the ends of their intervals, ``NAME``, ``NAME_low``, ``NAME_high``; (name, …) each."""
    ends = {end: part.astype(dtype, copy=False) for end, part in estimate.name_ends("").items()}
    return {f"{name}{end}": part[index].ravel() for index, name in enumerate(names) for end, part in ends.items()}
