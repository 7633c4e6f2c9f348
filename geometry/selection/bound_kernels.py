"""Compiled kernels of the bounds on Precision and Recall (Theorems 1-2): ingredients, ρ_out and the upper bounds.

Letters as in ``geometry.selection.kernels``. Lower bounds follow from the ingredients for any κ and are computed in SQL
and in ``geometry.bounds.lower``.

Upper bounds. With s'_N, the sum without the sink, and g_l = a_l² − 2⟨s'_N, y_l⟩, eq. 9-11 are p(ξ_ij) with
ξ_ij = c (g_j − g_i), c = √(2κd)/B. A selected key i with g_i > min g_j is *late* and has max_j p = 1/2; the others are
*early*. p rises up to ξ* and falls beyond it, so for them it is largest at one of the two g_j that bracket g_i + ξ*/c.
For most keys that is max g_j, because all g_j lie below, or min g_j, because all lie above; for the other keys the g_j
within the range of g_i + ξ*/c are sorted once.
"""

import math

import numpy as np

from geometry.accelerate import compile_kernel, compile_sum_kernel, larger
from geometry.arrays import F32, F64, Floats
from geometry.selection.kernels import Factors, count_row

XI_STAR = math.sqrt(math.sqrt(2.0) - 1.0)
"""ξ*, where φ(ξ) ξ/(1 + ξ²) is largest."""

XI_END = 9.0
"""For ξ from here on, p is less than 10⁻¹⁸."""

DENSITY_0 = 1.0 / math.sqrt(2.0 * math.pi)
"""φ(0), the standard normal density at 0."""


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


@compile_kernel
def largest_cosine(cosines: F32, reached: F32, selected: bool) -> np.float32:
    """Update the running maxima ``reached`` over keys left out with a row of cosines (keys,); returns the largest."""
    best = np.float32(0.0)
    if selected:
        for k in range(cosines.size):
            reached[k] = larger(reached[k], cosines[k])
    for k in range(cosines.size):
        best = larger(best, reached[k])
    return best


@compile_kernel
def compute_rho_out(first: int, cosines: F32, sink: int, reached: F32, rho_out: F64) -> None:
    """ρ_out (eq. 7) for the rows N = first + 1, …, first + t of a tile.

    Parameters
    ----------
    cosines
        cos(v_k, v_j) of the tile's own keys k with the keys j of rank first + 1 and above, (t, n − first − 1).
    sink
        Rank of the sink, which does not count as a selected key; n or more if there is none.
    reached
        Running maximum over the selected keys, for each key, (n,); updated.
    rho_out
        Output, (t,); clipped to [0, 1], NaN where nothing but the sink is selected.
    """
    for row in range(cosines.shape[0]):
        rank = first + row
        best = largest_cosine(cosines[row, row:], reached[rank + 1 :], rank != sink)
        rho_out[row] = np.nan if rank == 0 and sink == 0 else min(best, np.float32(1.0))


@compile_sum_kernel
def bound_probability(xi: float) -> float:
    """p(ξ) = φ(ξ) ξ/(1 + ξ²) of eq. 9 for ξ ≥ 0, absolute error below 10⁻¹²; vectorised, unlike ``math.exp``.

    exp(−ξ²/2) is the Taylor polynomial of exp(−ξ²/128), squared six times.
    """
    x = larger(0.0, -larger(-XI_END, -xi))  # clipped to [0, XI_END]
    square = x * x
    t = square * (-1.0 / 128.0)
    power = 1.0 + t * (1.0 + t * (1 / 2 + t * (1 / 6 + t * (1 / 24 + t * (1 / 120 + t * (1 / 720 + t * (1 / 5040)))))))
    for _ in range(6):
        power *= power
    probability: float = DENSITY_0 * power * x / (1.0 + square)
    return probability


@compile_sum_kernel
def outer_sum(g: F32, low: float, top: float, reach: float, c: float) -> tuple[float, float, int, int]:
    """Sums over the early keys for which p is largest at an end: (Σ_i p_i, max_i p_i, all early keys, those between).

    Early keys are the selected ones with g_i ≤ low; g: (keys,). low and top are the ends of the g_j left out. For keys
    with g_i + reach strictly between them, p may be larger at some g_j in between: they are only counted, not summed.
    """
    total, best, early, between = 0.0, 0.0, np.int64(0), np.int64(0)
    for k in range(g.size):
        value = np.float64(g[k])
        target = value + reach
        p = bound_probability(((top if target >= top else low) - value) * c)
        # set to 0 afterwards: a branch around p would prevent vectorisation
        p = p if value <= low else 0.0
        p = 0.0 if (target > low) & (target < top) else p
        total += p
        best = larger(best, p)
        early += np.int64(value <= low)
        between += np.int64((value <= low) & (target > low) & (target < top))
    return total, best, int(early), int(between)


@compile_kernel
def select_keys_between(g: F32, low: float, top: float, reach: float) -> F32:
    """The g of the early keys that ``outer_sum`` leaves out."""
    found, place = np.empty(g.size, np.float32), 0
    for k in range(g.size):
        if g[k] <= low < g[k] + reach < top:
            found[place] = g[k]
            place += 1
    return found[:place]


@compile_kernel
def bracket_values(g: F32, floor: float, ceiling: float) -> F32:
    """The g within [floor, ceiling], the largest below and the smallest above, in order."""
    found = np.empty(g.size, np.float32)
    below, above, count = -np.inf, np.inf, 0
    for k in range(g.size):
        if g[k] < floor:
            below = max(below, np.float64(g[k]))
        elif g[k] > ceiling:
            above = min(above, np.float64(g[k]))
        else:
            found[count] = g[k]
            count += 1
    for value in (below, above):
        if np.isfinite(value):
            found[count] = value
            count += 1
    return np.sort(found[:count])


@compile_kernel
def largest_probability(g: float, ordered: F32, reach: float, c: float) -> float:
    """max_j p(c (g_j − g)) over keys left out, where ``ordered`` holds the g_j around g + reach, sorted."""
    above = int(np.searchsorted(ordered, g + reach))
    best = 0.0
    for j in range(max(above - 1, 0), min(above + 1, ordered.size)):
        best = max(best, bound_probability((ordered[j] - g) * c))
    return best


@compile_kernel
def inner_sum(g: F32, left_out: F32, reach: float, c: float) -> tuple[float, float]:
    """Sums over early keys of the largest p over all g_j left out: (Σ_i p_i, max_i p_i)."""
    ordered = bracket_values(left_out, np.float64(g.min()) + reach, np.float64(g.max()) + reach)
    total, best = 0.0, 0.0
    for k in range(g.size):
        p = largest_probability(np.float64(g[k]), ordered, reach, c)
        total, best = total + p, max(best, p)
    return total, best


@compile_kernel
def bound_row(g: F32, split: int, late: int, c: float) -> tuple[float, float]:
    """The upper bounds of Precision and Recall (eq. 13, 15) of one row, N = split; g: (n,), ``late`` is exact."""
    selected, left_out, reach = g[:split], g[split:], XI_STAR / c
    low, top = np.float64(left_out.min()), np.float64(left_out.max())
    total, best, early, between = outer_sum(selected, low, top, reach, c)
    if between > 0:
        inner, largest = inner_sum(select_keys_between(selected, low, top, reach), left_out, reach, c)
        total, best = total + inner, max(best, largest)
    if split - late != early:  # float32 puts keys on the wrong side of low: up to rounding they are at low
        edge, _ = inner_sum(left_out[left_out == left_out.min()][:1], left_out, reach, c)
        total, best = max(total + (split - late - early) * edge, 0.0), max(best, edge)
    if late > 0:
        best = 0.5
    return 1.0 - best / (split + 1), 1.0 - (0.5 * late + (total if late < split else 0.0)) / split


@compile_kernel
def bound_tile(
    first: int,
    products: F32,
    s: F64,
    size: F32,
    alpha: F64,
    states: Floats,
    factors: Factors,
    curvature: F64,
    precision_upper: F64,
    recall_upper: F64,
) -> None:
    """Upper bounds for the rows N = first + 1, …, first + t of a tile and every κ.

    Parameters
    ----------
    products
        ⟨s'_N, v_l⟩ of the tile, (t, n).
    s, size
        s'_N of the tile (t, d), and at least its norm (t,).
    alpha, states, factors
        As for ``geometry.selection.kernels.count_tile``.
    curvature
        c for lifted energies, (κ, n − 1); NaN where there is no bound.
    precision_upper, recall_upper
        Outputs, (κ, n − 1).
    """
    g, nothing = np.empty(alpha.size, np.float32), np.zeros(alpha.size, np.float32)
    for row in range(products.shape[0]):
        split = first + row + 1
        early, _, _, _ = count_row(split, products[row], nothing, s[row], size[row], alpha, states, factors, g)
        for index in range(curvature.shape[0]):
            if curvature[index, split - 1] > 0.0:
                upper = bound_row(g, split, split - early, curvature[index, split - 1])
                precision_upper[index, split - 1], recall_upper[index, split - 1] = upper
