"""Compiled kernels of the all-N selection counts. They do not validate their input.

Letters: n keys in order of falling weight, d components of a value state, t rows of a tile. Row N−1 belongs to N. A
*centre* is s_N, or s_N without the sink's part.

Exact counts. Distances from a centre s are ordered by E_l = ‖y_l‖² − 2⟨s, y_l⟩ (``D_l`` without the
common term ‖s‖²). The inner products of all N with all keys are one float32 matrix product; a rigorous bound δ_l of the
error of each E_l comes with it:

    δ_l = a_l (slope · size + bend · a_l) + a bound of underflow,    a_l = ‖y_l‖,

where size is at least ‖s‖, ``slope`` is 2 (d + 8) u for any order of summation (Higham, *Accuracy and Stability of
Numerical Algorithms*, §3.1) with u = 2⁻²⁴, and ``bend`` covers the rounding of ‖y_l‖² and of E_l itself. Where y_l = 0,
E_l and δ_l are exactly 0. The few comparisons that the bound does not decide are repeated in float64 with
``compare_distances``, a product of differences that keeps its digits however near two keys are. It is 0 for equal y, so
true ties are ties. The float32 product thus affects speed, never the result.
"""

import math

import numpy as np

from geometry.accelerate import compile_kernel, compile_sum_kernel, larger
from geometry.arrays import F32, F64, I32, Floats

UNIT_ROUNDOFF = 2.0**-24
"""Largest relative error of one float32 rounding."""

ERROR_BEND = 4.04 * UNIT_ROUNDOFF
"""Factor of a_l² in the error bound of E_l."""

Factors = F32
"""Coefficients of energies and their error bounds, (4, n): 2α, a², slope · a and bend · a² + underflow.

All are multiplied by one power of two, the lift.
"""

# Leaf kernels take whole arrays and a range of keys, start to stop: passing slices would take longer than the work on
# them.


def error_slope(head_dim: int, unit_roundoff: float = UNIT_ROUNDOFF) -> float:
    """Factor of a_l · size in the error bound of E_l, for value states of ``head_dim`` components."""
    return 2.02 * (head_dim + 8) * unit_roundoff


@compile_sum_kernel
def inner(a: Floats, b: Floats) -> float:
    """⟨a, b⟩ summed in float64; a, b: (d,)."""
    total = 0.0
    for k in range(a.size):
        total += np.float64(a[k]) * np.float64(b[k])
    return total


@compile_kernel
def compare_distances(s: F64, alpha: F64, states: Floats, key: int, other: int) -> float:
    """How much farther y of one key is from s than o of another, squared: ⟨y − o, (y − s) + (o − s)⟩ = D_y − D_o.

    s: (d,); alpha: (n,); states: (n, d); y_l = α_l v_l. Evaluated in this order, the second factor keeps the last
    digits of y and o near s, which y + o − 2s would round away.
    """
    total = 0.0
    if alpha[key] > 0.0 or alpha[other] > 0.0:
        for k in range(s.size):
            y, o = alpha[key] * states[key, k], alpha[other] * states[other, k]
            total += (y - o) * ((y - s[k]) + (o - s[k]))
    return total


@compile_sum_kernel
def distance(s: F64, alpha: F64, states: Floats, key: int) -> float:
    """‖s − y_key‖ in float64 from the differences themselves; s: (d,)."""
    total = 0.0
    for k in range(s.size):
        total += (s[k] - alpha[key] * states[key, k]) ** 2
    return math.sqrt(total)


@compile_kernel
def enclose(
    products: F32, less: F32, factors: Factors, size: np.float32, sign: np.float32, energy: F32, start: int, stop: int
) -> tuple[np.float32, np.float32]:
    """Turn inner products ⟨s, v_l⟩ into E_l, and enclose the maximum of ``sign`` · E: (lower, upper).

    products are those with s without the sink's part; less is 2α_l ⟨y_0, v_l⟩, lifted, if s includes that part, and 0
    otherwise; energy: output, E; (n,) each; sign is 1 or −1.
    """
    product, subtract, out = products[start:stop], less[start:stop], energy[start:stop]
    weight2, square = factors[0, start:stop], factors[1, start:stop]
    slope, bend = factors[2, start:stop], factors[3, start:stop]
    lower, upper = np.float32(-np.inf), np.float32(-np.inf)
    for k in range(out.size):
        value = square[k] - weight2[k] * product[k] - subtract[k]
        out[k] = value
        error = slope[k] * size + bend[k]
        lower = larger(lower, sign * value - error)
        upper = larger(upper, sign * value + error)
    return lower, upper


@compile_kernel
def survey(
    energy: F32,
    factors: Factors,
    size: np.float32,
    sign: np.float32,
    reach: np.float32,
    interval: tuple[np.float32, np.float32],
    start: int,
    stop: int,
) -> tuple[int, int, int, int]:
    """Count the cases that the error bound decides: (candidates, the first of them, surely within, perhaps within).

    Candidates may attain the maximum of ``sign`` · E, known to be at least ``reach``. The last two count the keys whose
    E is surely, and perhaps, at most a threshold that lies in ``interval``.
    """
    value, slope, bend = energy[start:stop], factors[2, start:stop], factors[3, start:stop]
    lower, upper = interval
    candidates, sure, possible = np.int32(0), np.int32(0), np.int32(0)
    first = np.int32(value.size)
    for k in range(value.size):
        error = slope[k] * size + bend[k]
        reaches = sign * value[k] + error >= reach
        candidates += np.int32(reaches)
        first = min(first, np.int32(k) if reaches else np.int32(value.size))
        sure += np.int32(value[k] + error <= lower)
        possible += np.int32(value[k] - error <= upper)
    return int(candidates), start + int(first), int(sure), int(possible)


@compile_kernel
def find_extremal_key(
    s: F64,
    alpha: F64,
    states: Floats,
    energy: F32,
    factors: Factors,
    size: np.float32,
    sign: np.float32,
    reach: np.float32,
    best: int,
    stop: int,
) -> int:
    """The first key whose exact ``sign`` · D is the maximum, among the candidates of ``survey`` from ``best`` on."""
    empty = factors[3, best] == 0.0  # y = 0; there may be thousands of them, all equal
    for k in range(best + 1, stop):
        error = factors[2, k] * size + factors[3, k]
        if sign * energy[k] + error >= reach and not (empty and factors[3, k] == 0.0):
            empty = empty or factors[3, k] == 0.0
            if sign * compare_distances(s, alpha, states, k, best) > 0.0:
                best = k
    return best


@compile_kernel
def count_doubtful(
    s: F64,
    alpha: F64,
    states: Floats,
    energy: F32,
    factors: Factors,
    size: np.float32,
    interval: tuple[np.float32, np.float32],
    threshold: int,
    start: int,
    stop: int,
) -> int:
    """Count, exactly, the keys in doubt after ``survey`` that are no farther from s than the key ``threshold``."""
    lower, upper = interval
    count, empty = 0, -1  # whether y = 0 is within; −1: not known yet
    for k in range(start, stop):
        error = factors[2, k] * size + factors[3, k]
        if energy[k] - error <= upper and not energy[k] + error <= lower:
            if factors[3, k] > 0.0:
                count += compare_distances(s, alpha, states, k, threshold) <= 0.0
            else:
                if empty < 0:
                    empty = int(compare_distances(s, alpha, states, k, threshold) <= 0.0)
                count += empty
    return count


@compile_kernel
def count_row(
    split: int,
    products: F32,
    less: F32,
    s: F64,
    size: np.float32,
    alpha: F64,
    states: Floats,
    factors: Factors,
    energy: F32,
) -> tuple[int, int, int, int]:
    """One row, N = split: (K_in, K_out, the nearest key left out, the farthest selected key).

    products, less: (n,); s: (d,); the others as for ``count_tile``; energy: output, E, (n,).
    """
    most, least, n = np.float32(1.0), np.float32(-1.0), alpha.size
    low, high = enclose(products, less, factors, size, most, energy, 0, split)
    reach, other = enclose(products, less, factors, size, least, energy, split, n)
    farthest_in, nearest_out = (low, high), (-other, -reach)
    several, farthest, k_in, possible = survey(energy, factors, size, most, low, nearest_out, 0, split)
    doubt_in = possible > k_in
    if several > 1:
        farthest = find_extremal_key(s, alpha, states, energy, factors, size, most, low, farthest, split)
    several, nearest, k_out, possible = survey(energy, factors, size, least, reach, farthest_in, split, n)
    doubt_out = possible > k_out
    if several > 1:
        nearest = find_extremal_key(s, alpha, states, energy, factors, size, least, reach, nearest, n)
    if doubt_in:
        k_in += count_doubtful(s, alpha, states, energy, factors, size, nearest_out, nearest, 0, split)
    if doubt_out:
        k_out += count_doubtful(s, alpha, states, energy, factors, size, farthest_in, farthest, split, n)
    return k_in, k_out, nearest, farthest


@compile_kernel
def count_tile(
    first: int,
    products: F32,
    less: F32,
    sink: int,
    s: F64,
    size: F32,
    alpha: F64,
    states: Floats,
    factors: Factors,
    k_in: I32,
    k_out: I32,
    r_min: F64,
    r_max: F64,
) -> None:
    """Counts and radii (eq. 19-20) for the rows N = first + 1, …, first + t of a tile.

    Parameters
    ----------
    products
        ⟨s_N without the sink's part, v_l⟩ of the tile, (t, n).
    less
        2α_l ⟨y_0, v_l⟩, lifted, (n,).
    sink
        Rank of the sink among the weights; n or more if there is none.
    s, size
        s_N of the tile (t, d), and at least its norm (t,).
    alpha, states
        Weights (n,) and value states (n, d), in order of falling weight.
    factors
        See ``Factors``.
    k_in, k_out, r_min, r_max
        Outputs, (t,) each.
    """
    energy, nothing = np.empty_like(less), np.zeros_like(less)
    for row in range(products.shape[0]):
        split = first + row + 1
        subtract = less if sink < split else nothing
        k_in[row], k_out[row], nearest, farthest = count_row(
            split, products[row], subtract, s[row], size[row], alpha, states, factors, energy
        )
        r_min[row] = distance(s[row], alpha, states, nearest)
        r_max[row] = distance(s[row], alpha, states, farthest)
