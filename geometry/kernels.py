"""Compiled kernels of the all-N selection counts. They know no Dask and no files, and assume good input.

Letters: n keys in order of falling weight, d components of a value state, t rows of a tile. Row N−1 belongs to N.

How a count is made exact. Distances from s_N are ordered by E_l = ‖y_l‖² − 2⟨s_N, y_l⟩ (``D_l`` without the common term
‖s_N‖²). The inner products of all N with all keys are one float32 matrix product; a rigorous bound δ_l of the error of
each E_l comes with it:

    δ_l = a_l (slope ‖s_N‖ + bend a_l) + TINY,    a_l = ‖y_l‖,

where ``slope`` is 2 (d + 8) u for any order of summation (Higham, *Accuracy and Stability of Numerical Algorithms*,
§3.1) with u = 2⁻²⁴, ``bend`` covers the rounding of ‖y_l‖² and of E_l itself, and TINY covers underflow. A comparison
that the bound decides is decided; the few others are made again in float64 with ``farther_by``, a product of
differences that keeps its digits however near two keys are. Equal y give 0 there, so true ties are ties. The float32
product thus decides speed, never the result.
"""

import math

import numpy as np
from numpy.typing import NDArray

from geometry.accelerate import compiled, compiled_finite

UNIT_ROUNDOFF = 2.0**-24
"""Largest relative error of one float32 rounding."""

TINY = np.float32(1e-33)
"""Absolute part of the error bound: more than float32 underflow can cost in one E_l."""

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]


def error_slope(head_dim: int) -> float:
    """Factor of a_l ‖s_N‖ in the error bound of E_l, for value states of ``head_dim`` components."""
    return 2.02 * (head_dim + 8) * UNIT_ROUNDOFF


ERROR_BEND = 4.04 * UNIT_ROUNDOFF
"""Factor of a_l² in the error bound of E_l."""


@compiled
def farther_by(s: F64, y: F64, other: F64, norm2: float, other_norm2: float) -> float:
    """How much farther ``y`` is from s than ``other``, squared: D_y − D_other = ⟨y − other, y + other − 2s⟩; (d,) each.

    norm2 and other_norm2 are their squared norms; if both are 0 the answer is, without looking.
    """
    total = 0.0
    if norm2 > 0.0 or other_norm2 > 0.0:
        for k in range(s.size):
            total += (y[k] - other[k]) * (y[k] + other[k] - 2.0 * s[k])
    return total


@compiled
def distance(s: F64, y: F64) -> float:
    """‖s − y‖ in float64 from the differences themselves; s, y: (d,)."""
    total = 0.0
    for k in range(s.size):
        total += (s[k] - y[k]) ** 2
    return math.sqrt(total)


@compiled_finite
def energies(products: F32, weight2: F32, norm2: F32) -> None:
    """Turn the inner products ⟨s_N, v_l⟩ of one row into E_l, in place; weight2 is 2α, norm2 is a²; (keys,) each."""
    for k in range(products.size):
        products[k] = norm2[k] - weight2[k] * products[k]


@compiled_finite
def enclose_maximum(
    energy: F32, slope: F32, bend: F32, size: np.float32, sign: np.float32
) -> tuple[np.float32, np.float32]:
    """Lower and upper bound of the maximum of ``sign`` · E.

    energy, slope (error slope · a), bend (error bend · a² + TINY): (keys,); size: ‖s_N‖; sign: 1 or −1.
    """
    lower = np.float32(-np.inf)
    upper = np.float32(-np.inf)
    for k in range(energy.size):
        value = sign * energy[k]
        error = slope[k] * size + bend[k]
        lower = max(lower, value - error)
        upper = max(upper, value + error)
    return lower, upper


@compiled_finite
def count_candidates(
    energy: F32, slope: F32, bend: F32, size: np.float32, sign: np.float32, lower: np.float32
) -> tuple[int, int]:
    """How many keys may attain the maximum of ``sign`` · E, known to be at least ``lower``, and the last of them."""
    candidates = 0
    last = -1
    for k in range(energy.size):
        if sign * energy[k] + (slope[k] * size + bend[k]) >= lower:
            candidates += 1
            last = k
    return candidates, last


@compiled_finite
def count_within(
    energy: F32, slope: F32, bend: F32, size: np.float32, lower: np.float32, upper: np.float32
) -> tuple[int, int]:
    """How many keys surely have E at most a threshold in [lower, upper], and how many are in doubt."""
    sure = 0
    possible = 0
    for k in range(energy.size):
        error = slope[k] * size + bend[k]
        sure += energy[k] + error <= lower
        possible += energy[k] - error <= upper
    return sure, possible - sure


@compiled
def exact_extremum(
    s: F64,
    y: F64,
    norm2: F64,
    energy: F32,
    slope: F32,
    bend: F32,
    size: np.float32,
    sign: np.float32,
    lower: np.float32,
) -> int:
    """The first of the candidates whose exact ``sign`` · D is the maximum; y: (keys, d)."""
    best = -1
    for k in range(energy.size):
        if sign * energy[k] + (slope[k] * size + bend[k]) >= lower:
            if best < 0:
                best = k
                continue
            if sign * farther_by(s, y[k], y[best], norm2[k], norm2[best]) > 0.0:
                best = k
    return best


@compiled
def exact_within(
    s: F64,
    y: F64,
    norm2: F64,
    energy: F32,
    slope: F32,
    bend: F32,
    size: np.float32,
    lower: np.float32,
    upper: np.float32,
    threshold: F64,
    threshold_norm2: float,
) -> int:
    """How many keys in doubt of ``count_within`` are exactly no farther than ``threshold`` (d,); y: (keys, d)."""
    count = 0
    for k in range(energy.size):
        error = slope[k] * size + bend[k]
        if energy[k] - error <= upper and not energy[k] + error <= lower:
            count += farther_by(s, y[k], threshold, norm2[k], threshold_norm2) <= 0.0
    return count


@compiled
def side(
    s: F64,
    y: F64,
    norm2: F64,
    energy: F32,
    slope: F32,
    bend: F32,
    extremal: slice,
    counted: slice,
    sign: np.float32,
) -> tuple[int, int]:
    """Count the keys of ``counted`` with E at most the extremum over ``extremal``, and name the key attaining that.

    The extremum is the maximum of E for ``sign`` 1 and the minimum for −1. y: (n, d); the other arrays: (n,).
    """
    size = np.float32(np.sqrt(np.sum(s * s)))
    energy_x, slope_x, bend_x = energy[extremal], slope[extremal], bend[extremal]
    energy_c, slope_c, bend_c = energy[counted], slope[counted], bend[counted]
    lower, upper = enclose_maximum(energy_x, slope_x, bend_x, size, sign)
    candidates, where = count_candidates(energy_x, slope_x, bend_x, size, sign, lower)
    least, most = (lower, upper) if sign > 0 else (-upper, -lower)
    count, doubtful = count_within(energy_c, slope_c, bend_c, size, least, most)
    if candidates > 1 or doubtful > 0:
        y_x, norm2_x, y_c, norm2_c = y[extremal], norm2[extremal], y[counted], norm2[counted]
        where = exact_extremum(s, y_x, norm2_x, energy_x, slope_x, bend_x, size, sign, lower)
        count += exact_within(s, y_c, norm2_c, energy_c, slope_c, bend_c, size, least, most, y_x[where], norm2_x[where])
    return count, where


@compiled
def count_tile(
    first: int,
    products: F32,
    s: F64,
    y: F64,
    norm2: F64,
    factors: tuple[F32, F32, F32, F32],
    k_in: I32,
    k_out: I32,
    r_min: F64,
    r_max: F64,
) -> None:
    """Counts and radii (eq. 19-20) for the rows N = first + 1, …, first + t of a tile.

    Parameters
    ----------
    products
        ⟨s_N, v_l⟩ of the tile, (t, n); overwritten.
    s, y, norm2
        s_N of the tile (t, d), y_l (n, d) and ‖y_l‖² (n,), in order of falling weight.
    factors
        2α, a², slope · a, bend · a² + TINY, float32 (n,) each.
    k_in, k_out, r_min, r_max
        Outputs, (t,) each.
    """
    weight2, square, slope, bend = factors
    n = products.shape[1]
    for row in range(products.shape[0]):
        split = first + row + 1
        energies(products[row], weight2, square)
        inside, outside = slice(0, split), slice(split, n)
        one, minus_one = np.float32(1.0), np.float32(-1.0)
        k_out[row], farthest = side(s[row], y, norm2, products[row], slope, bend, inside, outside, one)
        k_in[row], nearest = side(s[row], y, norm2, products[row], slope, bend, outside, inside, minus_one)
        r_max[row] = distance(s[row], y[farthest])
        r_min[row] = distance(s[row], y[split + nearest])
