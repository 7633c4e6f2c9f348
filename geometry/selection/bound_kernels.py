"""Compiled kernels of the bounds on Precision and Recall (Theorems 1-2): ingredients, ρ_out and the upper bounds.

Letters as in ``geometry.selection.kernels``. Lower bounds follow from the ingredients for any κ and are computed in SQL
and in ``geometry.bounds.lower``.

Upper bounds. With s'_N, the sum without the sink, and g_l = a_l² − 2⟨s'_N, y_l⟩, eq. 9-11 are p(ξ_ij) with
ξ_ij = c (g_j − g_i), c = √(2κd)/B. A selected key i with g_i > min g_j is *late* and has max_j p = 1/2; the others are
*early*. p rises up to ξ* and falls beyond it, so for them it is largest at one of the two g_j that bracket g_i + ξ*/c.
For most keys that is max g_j, because all g_j lie below, or min g_j, because all lie above; for the other keys the g_j
within the range of g_i + ξ*/c are sorted once.

g is known as the interval between ``low`` and ``high`` that ``geometry.selection.kernels.enclose`` computes, the middle
of which is used; ``early`` is exact.
"""

import math

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
from geometry.selection.kernels import Interval

XI_STAR = math.sqrt(math.sqrt(2.0) - 1.0)
"""ξ*, where φ(ξ) ξ/(1 + ξ²) is largest."""

XI_END = 9.0
"""For ξ from here on, p is less than 10⁻¹⁸."""

XI_SMALL = 2.0**-62
"""Smaller ξ are replaced by this in exp(−ξ²/2) and 1 + ξ², which are 1 in float32 either way: subnormal squares take
some processors a hundred times longer."""

DENSITY_0 = 1.0 / math.sqrt(2.0 * math.pi)
"""φ(0), the standard normal density at 0."""

SHRINK = 2.0**-64
"""Differences of lifted g are multiplied by it, so that the product with c / SHRINK is within the range of float32."""

MOST_GENTLE, MOST_STEEP = (float(end) for end in (np.finfo(np.float32).tiny, np.finfo(np.float32).max))
"""The range of normal float32 numbers."""


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


@compile_row_kernel
def raise_maxima(reached: F32, tile: F32, row: int, start: int, stop: int) -> None:
    """Update running maxima, (w,), over keys left out with a row of cosines, (t, w)."""
    widen_vectors()
    for k in range(np.uint64(start), np.uint64(stop)):
        reached[k] = larger(reached[k], tile[row, k])


@compile_row_sum_kernel
def bound_probability(xi: np.float32) -> np.float32:
    """p(ξ) = φ(ξ) ξ/(1 + ξ²) of eq. 9 for ξ ≥ 0, absolute error below 10⁻⁷."""
    x = larger(np.float32(0.0), smaller(np.float32(XI_END), xi))
    square = larger(x, np.float32(XI_SMALL)) * larger(x, np.float32(XI_SMALL))
    exponential = power_of_two(square * np.float32(-0.5 / math.log(2.0)))
    return np.float32(np.float32(DENSITY_0) * x * exponential / (np.float32(1.0) + square))


@compile_row_kernel
def find_range(low: F32, high: F32, start: int, stop: int) -> Interval:
    """The least and the largest g of some keys."""
    widen_vectors()
    least, most = np.float32(np.inf), np.float32(-np.inf)
    for k in range(np.uint64(start), np.uint64(stop)):
        g = np.float32(0.5) * (low[k] + high[k])
        least, most = smaller(least, g), larger(most, g)
    return least, most


@compile_row_sum_kernel
def outer_sum(
    low: F32, high: F32, stop: int, ends: Interval, reach: np.float32, c: np.float32
) -> tuple[float, float, int, int]:
    """Sums over the early keys for which p is largest at an end: (Σ_i p_i, max_i p_i, all early keys, those between).

    Early keys are the first ``stop`` keys with g_i ≤ least; ends are the least and the largest of the g_j left out. For
    keys with g_i + reach strictly between them, p may be larger at some g_j in between: they are only counted, not
    summed. c is divided by ``SHRINK``.
    """
    widen_vectors()
    least, most = ends
    total, best, early, between = np.float32(0.0), np.float32(0.0), np.int32(0), np.int32(0)
    for k in range(np.uint64(stop)):
        g = np.float32(0.5) * (low[k] + high[k])
        target = g + reach
        p = bound_probability(((most if target >= most else least) - g) * np.float32(SHRINK) * c)
        # set to 0 afterwards: a branch around p would prevent vectorisation
        p = p if g <= least else np.float32(0.0)
        inside = (target > least) & (target < most)
        p = np.float32(0.0) if inside else p
        total += p
        best = larger(best, p)
        early = np.int32(early + np.int32(g <= least))
        between = np.int32(between + np.int32((g <= least) & inside))
    return float(total), float(best), int(early), int(between)


@compile_kernel
def select_keys_between(low: F32, high: F32, stop: int, ends: Interval, reach: np.float32) -> F32:
    """The g of the early keys that ``outer_sum`` leaves out; parameters as there."""
    selected, place = np.empty(stop, np.float32), 0
    for k in range(stop):
        g = np.float32(0.5) * (low[k] + high[k])
        if g <= ends[0] < g + reach < ends[1]:
            selected[place] = g
            place += 1
    return selected[:place]


@compile_kernel
def bracket_values(low: F32, high: F32, start: int, stop: int, floor: np.float32, ceiling: np.float32) -> F32:
    """The g of some keys within [floor, ceiling], the largest below and the smallest above, in order."""
    bracket = np.empty(stop - start + 2, np.float32)
    below, above, count = np.float32(-np.inf), np.float32(np.inf), 0
    for k in range(start, stop):
        g = np.float32(0.5) * (low[k] + high[k])
        if g < floor:
            below = max(below, g)
        elif g > ceiling:
            above = min(above, g)
        else:
            bracket[count] = g
            count += 1
    for value in (below, above):
        if np.isfinite(value):
            bracket[count] = value
            count += 1
    return np.sort(bracket[:count])


@compile_row_kernel
def largest_probability(g: np.float32, ordered: F32, reach: np.float32, c: np.float32) -> np.float32:
    """max_j p(c (g_j − g)) over keys left out, where ``ordered`` holds the g_j around g + reach, sorted."""
    above = int(np.searchsorted(ordered, g + reach))
    best = np.float32(0.0)
    for j in range(max(above - 1, 0), min(above + 1, ordered.size)):
        best = max(best, bound_probability((ordered[j] - g) * np.float32(SHRINK) * c))
    return best


@compile_kernel
def inner_sum(
    g: F32, low: F32, high: F32, start: int, stop: int, reach: np.float32, c: np.float32
) -> tuple[float, float]:
    """Sums over early keys ``g`` of the largest p over the keys left out, start to stop: (Σ_i p_i, max_i p_i)."""
    ordered = bracket_values(low, high, start, stop, g.min() + reach, g.max() + reach)
    total, best = 0.0, 0.0
    for k in range(g.size):
        p = np.float64(largest_probability(g[k], ordered, reach, c))
        total, best = total + p, max(best, p)
    return total, best


@compile_row_kernel
def fill_upper_bounds(
    row: int,
    n: int,
    late: int,
    steepness: F64,
    breadth: float,
    low: F32,
    high: F32,
    precision: F64,
    recall: F64,
) -> bool:
    """The upper bounds of Precision and Recall (eq. 13, 15) of a row, N = row + 1, for every κ; whether they are final.

    They are not if p may be largest between the ends for a key, or float32 counts other early keys than there are.

    Parameters
    ----------
    late
        The number of late keys.
    steepness, breadth
        Their quotient is c for lifted g, divided by ``SHRINK``; (κ,) and a number.
    low, high
        Intervals of g, (w,).
    precision, recall
        Outputs, (κ, n − 1); NaN unless B > 0.
    """
    widen_vectors()
    split, ends, final = row + 1, find_range(low, high, row + 1, n), True
    for k in range(steepness.size):
        precision[k, row], recall[k, row] = np.nan, np.nan
        if breadth > 0.0:
            steep, reach = convert_steepness(steepness[k] / breadth)
            total, best, early, between = outer_sum(low, high, split, ends, reach, steep)
            precision[k, row], recall[k, row] = combine(split, late, total, best)
            final = final and between == 0 and early == split - late
    return final


@compile_row_sum_kernel
def convert_steepness(c: float) -> tuple[np.float32, np.float32]:
    """C and ξ*/c in float32, for lifted g."""
    steep = np.float32(min(max(c, MOST_GENTLE), MOST_STEEP))  # p of 0 and of infinity are 0
    return steep, np.float32(min(XI_STAR / SHRINK / c, MOST_STEEP))


@compile_row_sum_kernel
def combine(split: int, late: int, total: float, best: float) -> tuple[float, float]:
    """The upper bounds of Precision and Recall from Σ_i max_j p and max_ij p over the early keys."""
    best, total = (0.5, total) if late > 0 else (best, total)
    return 1.0 - best / (split + 1), 1.0 - (0.5 * late + (total if late < split else 0.0)) / split


@compile_kernel
def refine_upper_bounds(
    row: int,
    n: int,
    late: int,
    steepness: F64,
    breadth: float,
    low: F32,
    high: F32,
    precision: F64,
    recall: F64,
) -> None:
    """Replace the upper bounds that ``fill_upper_bounds`` did not finish; parameters as there."""
    split, ends = row + 1, find_range(low, high, row + 1, n)
    for k in range(steepness.size):
        steep, reach = convert_steepness(steepness[k] / breadth)
        total, best, early, between = outer_sum(low, high, split, ends, reach, steep)
        if between > 0:
            inside = select_keys_between(low, high, split, ends, reach)
            of_inner, largest = inner_sum(inside, low, high, split, n, reach, steep)
            total, best = total + of_inner, max(best, largest)
        if split - late != early:  # float32 puts keys on the wrong side of the least: up to rounding they are at it
            edge, _ = inner_sum(np.full(1, ends[0]), low, high, split, n, reach, steep)
            total, best = max(total + (split - late - early) * edge, 0.0), max(best, edge)
        precision[k, row], recall[k, row] = combine(split, late, total, best)
