"""The values of N at which curves over N are computed if computing every N would be too expensive.

Holds ``log_grid``, the check of a grid, and weights, lines and quantiles over ln N.
"""

import math
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geometry.arrays import F64, I64


def log_grid(n_keys: int, points: int = 48) -> I64:
    """Whole numbers from 1 to n_keys − 1, evenly spaced on a log axis, int64 (grid,), ascending, with both ends.

    The same numbers as those of the SQL macro ``log_grid(n_keys - 1, points := points)``: (n_keys − 1)^(i/(points − 1))
    for i = 0, …, points − 1, halves rounded up, each number once: of 48 points, 41 are left at n = 1024.

    Parameters
    ----------
    n_keys
        n, the number of keys, at least 2.
    points
        Number of points before duplicates are removed, at least 2.

    Raises
    ------
    ValueError
        If there are fewer than 2 keys or points.
    """
    if n_keys < 2 or points < 2:
        raise ValueError(f"a grid needs n_keys ≥ 2 and points ≥ 2, got n_keys = {n_keys} and points = {points}")
    largest = float(n_keys - 1)
    # Python, like DuckDB, uses the power function of the C library; NumPy's may differ in the last digit
    return np.unique([math.floor(largest ** (step / (points - 1)) + 0.5) for step in range(points)])


def half_octave_grid(n_keys: int) -> I64:
    """The powers of √2 below n, rounded to whole numbers, and n − 1, int64 (grid,): where every N would take long."""
    return np.union1d(list_half_octaves(n_keys), [n_keys - 1]).astype(np.int64)


def list_half_octaves(n_keys: int) -> I64:
    """The powers of √2 below n, rounded to whole numbers, int64 (grid,): what the grids of all contexts share."""
    powers = np.unique([math.floor(2 ** (step / 2) + 0.5) for step in range(2 * n_keys.bit_length() + 1)])
    return powers[powers < n_keys].astype(np.int64)


def classify_contexts(n_keys: ArrayLike) -> I64:
    """The class of a context size n, the least c with n ≤ 2^c: the classes are n = 1, 2, 3 to 4, 5 to 8, …"""
    return np.frexp(np.asarray(n_keys, np.float64) - 1)[1].astype(np.int64)


def choose_grid(n: Any, n_keys: int) -> I64:
    """Check the requested N and return them, int64 (grid,); ``log_grid`` by default.

    A ValueError if they are not ascending whole numbers from 1 to n_keys − 1.
    """
    if n is None:
        return log_grid(n_keys)
    given = np.asarray(n)
    grid = given.astype(np.int64) if np.issubdtype(given.dtype, np.integer) else np.empty(0, np.int64)
    if grid.ndim != 1 or not len(grid) or grid[0] < 1 or grid[-1] >= n_keys or (np.diff(grid) <= 0).any():
        raise ValueError(f"n must be ascending whole numbers from 1 to {n_keys - 1} for {n_keys} keys, got {n!r}")
    return grid


def compute_log_weights(n: ArrayLike, first: int, last: int) -> F64:
    """Weights of the ascending numbers of a grid, uniform in ln N from ``first`` to ``last``, (grid,); their sum is 1.

    The weight of a number is proportional to the length in ln N of the points that are nearer to it than to its
    neighbours, within ``first`` − 1/2 to ``last`` + 1/2; 0 outside. A ValueError if no number is within.
    """
    grid = np.asarray(n, np.float64)
    inside = (grid >= first) & (grid <= last)
    if not inside.any():
        raise ValueError(f"n must have a number from {first} to {last}, but all of its {grid.size} numbers are outside")
    chosen = grid[inside]
    edges = np.concatenate([[math.log(first - 0.5)], np.log(chosen[1:] * chosen[:-1]) / 2, [math.log(last + 0.5)]])
    weights = np.zeros(grid.size)
    weights[inside] = np.diff(edges) / (edges[-1] - edges[0])
    return weights


def average_over_ln_n(curves: NDArray[np.floating], n: I64) -> F64:
    """Means of curves (…, grid) over ln N, N from 2 on, since at N = 1 every selection separates; NaN if no N is above
    1.
    """
    if not (n > 1).any():
        return np.full(curves.shape[:-1], np.nan)
    means: F64 = curves @ compute_log_weights(n, 2, int(n[-1]))
    return means


def fit_over_ln_n(curves: NDArray[np.floating]) -> tuple[F64, F64]:
    """Level and change over ln N of curves (…, N) for N = 1, 2, …: a line by least squares, in which N weighs 1/N.

    The level is the mean, the change the slope times ln of the last N: 0 for a curve of one value, both NaN for none.
    NaN is left out.
    """
    n = np.arange(1.0, curves.shape[-1] + 1)
    reach, known = math.log(max(n.size, 1)), ~np.isnan(curves)
    x = np.log(n) - reach / 2  # centred, close to its weighted median, or the squares would cancel
    powers = x[:, None] ** np.arange(3) / n[:, None]
    weight, first, second = powers.sum(axis=0) if known.all() else np.moveaxis(known @ powers, -1, 0)
    of_curve, with_x = np.moveaxis(np.where(known, curves, 0.0) @ powers[:, :2], -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):  # 0/0
        level = of_curve / weight
        slope = (with_x - first * level) / (second - first * first / weight)
    return level, np.where(known.sum(axis=-1) > 1, slope, 0 * level) * reach


def quantile_over_ln_n(curves: NDArray[np.floating], probability: float) -> NDArray[np.floating]:
    """The value that a curve (…, N) for N = 1, 2, … reaches or exceeds over at least a share 1 − probability of ln N.

    It is the largest element c such that the N with an element ≥ c hold that share of Σ 1/N: every N has the weight
    1/N, so that the weight is uniform in ln N. NaN is below every number. NaN where more than ``probability`` of ln N
    is NaN, or there is no N. O(N log N) per curve, and 24 bytes of memory per element.
    """
    if not curves.shape[-1]:
        return np.full(curves.shape[:-1], np.nan, curves.dtype)
    order = np.argsort(-curves, axis=-1)  # from the largest; NaN come last
    held = (1 / np.arange(1, curves.shape[-1] + 1))[order].cumsum(axis=-1)
    wanted = (1 - probability - curves.shape[-1] * 2.0**-51) * held[..., -1:]  # minus the rounding error of the sums
    first = (held < wanted).sum(axis=-1, keepdims=True)
    at = np.take_along_axis(order, first, axis=-1)
    quantile: NDArray[np.floating] = np.take_along_axis(curves, at, axis=-1)[..., 0]
    return quantile


BANDS = ("", "_first", "_middle", "_last")
"""Suffixes of means over ln N: over all N from 2 on, and over each third of ln N."""


@lru_cache(maxsize=1)
def compute_band_weights(n_keys: int) -> F64:
    """Weights of N = 1 to n − 1 for means over ln N, uniform in ln N, (N, band), in the order of ``BANDS``.

    All means begin at N = 2, since at N = 1 every selection separates. A band without a whole number, for few keys, has
    weights NaN. The array is kept for the next call and cannot be written to.
    """
    weights = np.full((n_keys - 1, len(BANDS)), np.nan)
    if n_keys >= 3:
        n, edges = np.arange(1, n_keys), np.exp(np.linspace(math.log(2), math.log(n_keys - 1), len(BANDS)))
        ends = [(2, n_keys - 1), *((math.ceil(low - 1e-9), math.floor(high + 1e-9)) for low, high in pairwise(edges))]
        for band, (first, last) in enumerate(ends):
            if first <= last and n_keys - 1 > len(BANDS) - 1:
                weights[:, band] = compute_log_weights(n, first, last)
        weights[:, 0] = compute_log_weights(n, *ends[0])
    weights.flags.writeable = False
    return weights
