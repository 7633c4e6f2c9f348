"""Compiled kernels of the upper bounds of Theorems 1-2 and of the ingredients of all bounds, for every N of a head.

Letters as in ``geometry.selection.scan``. Lower bounds follow from the ingredients for any κ and are computed in SQL
and in ``geometry.bounds.lower``.

With s'_N, the sum without the sink, and g_l = a_l² − 2⟨s'_N, y_l⟩, eq. 9-11 are p(ξ_ij) with ξ_ij = c (g_j − g_i),
c = √(2κd)/B. A selected key i with g_i > min g_j is *late* and has max_j p = 1/2; the others are *early*. p rises up to
ξ* and falls beyond it, so for them it is largest at one of the two g_j that bracket g_i + ξ*/c. For most keys that is
max g_j, because all g_j lie below, or min g_j, because all lie above; rows with other keys are done again with the g_j
sorted. g is known in float32, whether a key is early exactly.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from geometry.accelerate import (
    compile_kernel,
    compile_row_kernel,
    compile_row_sum_kernel,
    larger,
    smaller,
    widen_vectors,
)
from geometry.arrays import F32, F64
from geometry.powers import power_of_two

XI_STAR = math.sqrt(math.sqrt(2.0) - 1.0)
"""ξ*, where φ(ξ) ξ/(1 + ξ²) is largest."""

XI_END = 9.0
"""For ξ from here on, p is less than 10⁻¹⁸."""

XI_SMALL = 2.0**-62
"""Smaller ξ, whose p is less than 10⁻¹⁸, are replaced by this: subnormal numbers take some processors a hundred times
longer."""

DENSITY_0 = 1.0 / math.sqrt(2.0 * math.pi)
"""φ(0), the standard normal density at 0."""

SHRINK = 2.0**-64
"""Differences of lifted g are multiplied by it, so that the product with c / SHRINK is within the range of float32."""

NEAR_0 = tuple(
    np.float32(coefficient)
    for coefficient in np.polynomial.Chebyshev.interpolate(
        lambda square: np.exp(-square / 2) / (1 + square), 7, domain=(0.0, XI_STAR**2)
    )
    .convert(kind=np.polynomial.Polynomial)
    .coef
)
"""Coefficients of e^(−x/2)/(1 + x) for x from 0 to ξ*², with an error below 10⁻⁸."""

MOST_GENTLE, MOST_STEEP = (float(end) for end in (np.finfo(np.float32).tiny, np.finfo(np.float32).max))
"""The range of normal float32 numbers."""


class Steepness(NamedTuple):
    """How ξ follows from differences of lifted g, for every κ and N of a head, (κ, n − 1)."""

    breadth: F64
    """B in the unit of ξ, (n − 1,): there are bounds where it is above 0."""
    slope: F32
    """c, divided by ``SHRINK``."""
    reach: F32
    """ξ*/c."""

    @classmethod
    def none(cls) -> "Steepness":
        """That of no κ."""
        return cls(np.empty(0), *np.empty((2, 0, 0), np.float32))


def compute_steepness(kappas: Sequence[float] | F64, breadth: F64, head_dim: int, factor: float) -> Steepness:
    """The steepness for B in the unit of ξ, (n − 1,), and a lift of ``factor``."""
    root = np.sqrt(np.asarray(kappas, np.float64)) * math.sqrt(2.0 * head_dim)
    scale = root[:, None] / factor / factor / SHRINK
    with np.errstate(over="ignore"):
        c = np.maximum(scale / np.where(breadth > 0, breadth, 1.0), MOST_GENTLE)  # p of 0 and of infinity are 0
        reach = np.minimum(XI_STAR / SHRINK / c, MOST_STEEP)
    return Steepness(breadth, np.minimum(c, MOST_STEEP).astype(np.float32), reach.astype(np.float32))


@compile_kernel
def gather_ingredients(a: F64, sink: int, s_in: F64, a_min_in: F64, a_max_in: F64, a_max_out: F64) -> None:
    """S_in, a_min^in, a_max^in and a_max^out (eq. 7) for N = 1, …, n − 1.

    a: (n,) in order of falling weight; sink: rank of the sink, n or more if there is none; outputs (n − 1,). Where
    nothing but the sink is selected, all outputs except a_max^out are NaN.
    """
    total, least, most = 0.0, np.inf, -np.inf
    for row in range(a.size - 1):
        if row != sink:
            total, least, most = total + a[row], min(least, a[row]), max(most, a[row])
        s_in[row] = total if most >= 0.0 else np.nan
        a_min_in[row] = least if most >= 0.0 else np.nan
        a_max_in[row] = most if most >= 0.0 else np.nan
    most = -np.inf
    for row in range(a.size - 2, -1, -1):
        most = max(most, a[row + 1])
        a_max_out[row] = most


@compile_row_sum_kernel
def bound_probability(xi: np.float32) -> np.float32:
    """p(ξ) = φ(ξ) ξ/(1 + ξ²) of eq. 9 for ξ ≥ 0, absolute error below 10⁻⁷."""
    x = larger(np.float32(0.0), smaller(np.float32(XI_END), xi))
    square = larger(x, np.float32(XI_SMALL)) * larger(x, np.float32(XI_SMALL))
    exponential = power_of_two(square * np.float32(-0.5 / math.log(2.0)))
    return np.float32(np.float32(DENSITY_0) * x * exponential / (np.float32(1.0) + square))


@compile_row_sum_kernel
def sum_far_pairs(
    g: F32, left: F32, lowest: np.float32, least: np.float32, most: np.float32, reach: np.float32, c: np.float32
) -> tuple[float, np.float32]:
    """As ``sum_worst_pairs`` if g_i + reach is at least ``most`` for all selected keys, lowest being their least g.

    ξ is then at most ξ*, where a polynomial takes the place of the exponential, and the largest p is that of the
    least g_i.
    """
    widen_vectors()
    total, floor = np.float32(0.0), reach * np.float32(XI_SMALL / XI_STAR)
    for k in range(np.uint64(g.size)):
        p = bound_near_0(larger(floor, most - g[k]) * np.float32(SHRINK) * c)
        total += p if g[k] + left[k] <= least else np.float32(0.0)
    return float(total), bound_near_0(larger(floor, most - lowest) * np.float32(SHRINK) * c)


@compile_row_sum_kernel
def bound_near_0(xi: np.float32) -> np.float32:
    """p(ξ) of eq. 9 for 0 ≤ ξ ≤ ξ*."""
    x, (c0, c1, c2, c3, c4, c5, c6, c7) = xi * xi, NEAR_0
    polynomial = c0 + x * (c1 + x * (c2 + x * (c3 + x * (c4 + x * (c5 + x * (c6 + x * c7))))))
    return np.float32(np.float32(DENSITY_0) * xi * polynomial)


@compile_row_sum_kernel
def sum_worst_pairs(
    g: F32, left: F32, least: np.float32, most: np.float32, reach: np.float32, c: np.float32
) -> tuple[float, np.float32, np.int32, np.int32]:
    """Sums over the early keys for which p is largest at an end: (Σ_i p_i, max_i p_i, all early keys, those between).

    Early keys are the selected ones, for which ``left`` is 0 and not a large number, with g_i ≤ least; least and most
    are those of the g_j left out. For keys with g_i + reach strictly between them, p may be larger at some g_j in
    between: they are only counted, not summed. c is divided by ``SHRINK``.
    """
    widen_vectors()
    total, best, early, between = np.float32(0.0), np.float32(0.0), np.int32(0), np.int32(0)
    floor = reach * np.float32(XI_SMALL / XI_STAR)
    for k in range(np.uint64(g.size)):
        target, is_early = g[k] + reach, g[k] + left[k] <= least
        apart = larger(floor, (most if target >= most else least) - g[k])
        p = bound_probability(apart * np.float32(SHRINK) * c)
        # set to 0 afterwards: a branch around p would prevent vectorisation
        inside = is_early & (target > least) & (target < most)
        p = p if is_early else np.float32(0.0)
        p = np.float32(0.0) if inside else p
        total += p
        best = larger(best, p)
        early = np.int32(early + np.int32(is_early))
        between = np.int32(between + np.int32(inside))
    return float(total), best, early, between


@compile_row_kernel
def sum_pairs_between(
    g: F32, left: F32, least: np.float32, most: np.float32, reach: np.float32, c: np.float32
) -> tuple[float, np.float32]:
    """Σ_i p_i and max_i p_i over the early keys that ``sum_worst_pairs`` only counts, for all keys of a row, (n,)."""
    total, best = 0.0, np.float32(0.0)
    for k in range(g.size):
        if g[k] + left[k] <= least < g[k] + reach < most:
            p = largest_probability(g[k], g, left, least, most, reach, c)
            total, best = total + np.float64(p), max(best, p)
    return total, best


@compile_row_kernel
def largest_probability(
    of: np.float32, g: F32, left: F32, least: np.float32, most: np.float32, reach: np.float32, c: np.float32
) -> np.float32:
    """max_j p(c (g_j − g_i)) over the keys left out, for one g_i."""
    below, above = bracket(g, left, min(max(of + reach, least), most), least, most)
    return max(
        bound_probability((below - of) * np.float32(SHRINK) * c),
        bound_probability((above - of) * np.float32(SHRINK) * c),
    )


@compile_row_kernel
def bracket(
    g: F32, left: F32, target: np.float32, least: np.float32, most: np.float32
) -> tuple[np.float32, np.float32]:
    """The largest g left out below a target between their least and their most, and the smallest not below it."""
    widen_vectors()
    below, above = least, most
    for k in range(np.uint64(g.size)):
        low, high = smaller(g[k], left[k] + least), larger(g[k], most - left[k])  # its own if it is left out
        below = larger(below, low if low < target else least)
        above = smaller(above, high if high >= target else most)
    return below, above


@compile_row_kernel
def combine(split: int, late: int, total: float, best: float) -> tuple[float, float]:
    """The upper bounds of Precision and Recall (eq. 13, 15) from Σ_i max_j p and max_ij p over the early keys."""
    best, total = (0.5, total) if late > 0 else (best, total)
    return 1.0 - best / (split + 1), 1.0 - (0.5 * late + (total if late < split else 0.0)) / split


@compile_row_kernel
def refine(row: int, late: int, g: F32, left: F32, steepness: Steepness, precision: F64, recall: F64) -> None:
    """The upper bounds of a row, N = row + 1, for every κ, from all its g, lifted, (n,); outputs (κ, n − 1)."""
    split, least, most = row + 1, np.float32(np.inf), np.float32(-np.inf)
    for k in range(g.size):
        if left[k] > np.float32(0.0):
            least, most = min(least, g[k]), max(most, g[k])
    for k in range(precision.shape[0]):
        c, reach = steepness.slope[k, row], steepness.reach[k, row]
        total, best, early, between = sum_worst_pairs(g, left, least, most, reach, c)
        if between > 0:
            of_inner, largest = sum_pairs_between(g, left, least, most, reach, c)
            total, best = total + of_inner, max(best, largest)
        if early != split - late:  # float32 puts keys on the wrong side of the least: up to rounding they are at it
            edge = largest_probability(least, g, left, least, most, reach, c)
            total, best = max(total + (split - late - early) * np.float64(edge), 0.0), max(best, edge)
        precision[k, row], recall[k, row] = combine(split, late, total, np.float64(best))
