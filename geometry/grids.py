"""The values of N at which curves over N are computed if computing every N would be too expensive.

Holds ``log_grid`` and the check of a grid.
"""

import math
from typing import Any

import numpy as np

from geometry.arrays import I64


def log_grid(n_keys: int, points: int = 48) -> I64:
    """Whole numbers from 1 to n_keys − 1, evenly spaced on a log axis.

    The same numbers as those of the SQL macro ``log_grid(n_keys - 1, points := points)``: (n_keys − 1)^(i/(points − 1))
    for i = 0, …, points − 1, halves rounded up, each number once.

    Parameters
    ----------
    n_keys
        n, the number of keys, at least 2.
    points
        Number of points before duplicates are removed, at least 2. Small numbers repeat: of 48 points, 41 are left at
        n = 1024.

    Returns
    -------
    ndarray
        int64 (grid,), ascending, the first 1, the last n_keys − 1.

    Raises
    ------
    ValueError
        If there are fewer than 2 keys or points.
    """
    if n_keys < 2 or points < 2:
        msg = f"a grid needs n_keys ≥ 2 and points ≥ 2, got n_keys = {n_keys} and points = {points}"
        raise ValueError(msg)
    largest = float(n_keys - 1)
    # Python, like DuckDB, uses the power function of the C library; NumPy's may differ in the last digit
    return np.unique([math.floor(largest ** (step / (points - 1)) + 0.5) for step in range(points)])


def choose_grid(n: Any, n_keys: int) -> I64:
    """Check the requested N and return them, int64 (grid,); ``log_grid`` by default.

    Raises
    ------
    ValueError
        If they are not ascending whole numbers from 1 to n_keys − 1.
    """
    if n is None:
        return log_grid(n_keys)
    given = np.asarray(n)
    grid = given.astype(np.int64) if np.issubdtype(given.dtype, np.integer) else np.empty(0, np.int64)
    if grid.ndim != 1 or not len(grid) or grid[0] < 1 or grid[-1] >= n_keys or (np.diff(grid) <= 0).any():
        msg = f"n must be ascending whole numbers from 1 to {n_keys - 1} for {n_keys} keys, got {n!r}"
        raise ValueError(msg)
    return grid
