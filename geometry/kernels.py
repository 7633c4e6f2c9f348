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
"""Absolute part of the error bound: more than float32 underflow can cost in one E_l, for value states of components at
most 1 and up to 10⁵ of them."""

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
def enclose(
    products: F32, weight2: F32, norm2: F32, slope: F32, bend: F32, size: np.float32, sign: np.float32
) -> tuple[np.float32, np.float32]:
    """Turn the inner products ⟨s_N, v_l⟩ into E_l, in place, and enclose the maximum of ``sign`` · E: (lower, upper).

    weight2 is 2α, norm2 is a², slope is error slope · a, bend is error bend · a² + TINY, (keys,) each; size is ‖s_N‖;
    sign is 1 or −1.
    """
    lower = np.float32(-np.inf)
    upper = np.float32(-np.inf)
    for k in range(products.size):
        value = norm2[k] - weight2[k] * products[k]
        products[k] = value
        error = slope[k] * size + bend[k]
        lower = max(lower, sign * value - error)
        upper = max(upper, sign * value + error)
    return lower, upper


@compiled_finite
def decide(
    energy: F32,
    slope: F32,
    bend: F32,
    size: np.float32,
    sign: np.float32,
    reach: np.float32,
    lower: np.float32,
    upper: np.float32,
) -> tuple[int, int, int]:
    """Count what the error bound can tell: (candidates, surely within, in doubt).

    Candidates may attain the maximum of ``sign`` · E, known to be at least ``reach``. The others are about E being at
    most a threshold that lies in [lower, upper].
    """
    candidates = np.int32(0)
    sure = np.int32(0)
    possible = np.int32(0)
    for k in range(energy.size):
        error = slope[k] * size + bend[k]
        candidates += np.int32(sign * energy[k] + error >= reach)
        sure += np.int32(energy[k] + error <= lower)
        possible += np.int32(energy[k] - error <= upper)
    return int(candidates), int(sure), int(possible - sure)


@compiled
def extremal_key(
    s: F64,
    y: F64,
    norm2: F64,
    energy: F32,
    slope: F32,
    bend: F32,
    size: np.float32,
    sign: np.float32,
    reach: np.float32,
    candidates: int,
) -> int:
    """The first of the ``candidates`` of ``decide`` whose exact ``sign`` · D is the maximum; y: (keys, d)."""
    best = -1
    seen = 0
    for k in range(energy.size):
        if sign * energy[k] + (slope[k] * size + bend[k]) >= reach:
            if best < 0 or sign * farther_by(s, y[k], y[best], norm2[k], norm2[best]) > 0.0:
                best = k
            seen += 1
            if seen == candidates:
                break
    return best


@compiled
def doubtful_within(
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
    """How many keys that ``decide`` leaves in doubt are exactly no farther than ``threshold`` (d,); y: (keys, d)."""
    count = 0
    for k in range(energy.size):
        error = slope[k] * size + bend[k]
        if energy[k] - error <= upper and not energy[k] + error <= lower:
            count += farther_by(s, y[k], threshold, norm2[k], threshold_norm2) <= 0.0
    return count


@compiled
def count_row(
    split: int, products: F32, s: F64, size: np.float32, y: F64, norm2: F64, factors: tuple[F32, F32, F32, F32]
) -> tuple[int, int, int, int]:
    """One row, N = split: (K_in, K_out, the nearest key left out, the farthest selected key); see ``count_tile``."""
    weight2, square, slope, bend = factors
    most, least = np.float32(1.0), np.float32(-1.0)
    e_in, w_in, q_in, p_in, b_in = products[:split], weight2[:split], square[:split], slope[:split], bend[:split]
    e_out, w_out, q_out, p_out, b_out = products[split:], weight2[split:], square[split:], slope[split:], bend[split:]
    y_in, n_in, y_out, n_out = y[:split], norm2[:split], y[split:], norm2[split:]

    max_low, max_high = enclose(e_in, w_in, q_in, p_in, b_in, size, most)
    low, high = enclose(e_out, w_out, q_out, p_out, b_out, size, least)
    min_low, min_high = -high, -low
    far, k_in, doubt_in = decide(e_in, p_in, b_in, size, most, max_low, min_low, min_high)
    near, k_out, doubt_out = decide(e_out, p_out, b_out, size, least, low, max_low, max_high)

    farthest = extremal_key(s, y_in, n_in, e_in, p_in, b_in, size, most, max_low, far)
    nearest = extremal_key(s, y_out, n_out, e_out, p_out, b_out, size, least, low, near)
    if doubt_in > 0:
        k_in += doubtful_within(
            s, y_in, n_in, e_in, p_in, b_in, size, min_low, min_high, y_out[nearest], n_out[nearest]
        )
    if doubt_out > 0:
        k_out += doubtful_within(
            s, y_out, n_out, e_out, p_out, b_out, size, max_low, max_high, y_in[farthest], n_in[farthest]
        )
    return k_in, k_out, split + nearest, farthest


@compiled
def count_tile(
    first: int,
    products: F32,
    s: F64,
    size: F32,
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
    s, size
        s_N of the tile (t, d), and ‖s_N‖ (t,).
    y, norm2
        y_l (n, d) and ‖y_l‖² (n,), in order of falling weight.
    factors
        2α, a², error slope · a, error bend · a² + TINY, (n,) each.
    k_in, k_out, r_min, r_max
        Outputs, (t,) each.
    """
    for row in range(products.shape[0]):
        split = first + row + 1
        k_in[row], k_out[row], nearest, farthest = count_row(split, products[row], s[row], size[row], y, norm2, factors)
        r_min[row] = distance(s[row], y[nearest])
        r_max[row] = distance(s[row], y[farthest])
