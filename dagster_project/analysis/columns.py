"""Columns of intervals of the small tables."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from geometry.statistics.intervals import Estimate

Columns = dict[str, NDArray[Any]]


def build_interval_columns(estimate: Estimate, names: tuple[str, ...], dtype: Any = np.float64) -> Columns:
    """Columns of estimates and the ends of their intervals, ``NAME``, ``NAME_low``, ``NAME_high``; (name, …) each."""
    ends = {end: part.astype(dtype, copy=False) for end, part in estimate.name_ends("").items()}
    return {f"{name}{end}": part[index].ravel() for index, name in enumerate(names) for end, part in ends.items()}
