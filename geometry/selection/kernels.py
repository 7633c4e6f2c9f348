"""Compiled kernels of the all-N selection counts. They do not validate their input.

Letters: n keys in order of falling weight, d components of a value state, w ≥ n the keys padded to a multiple of
``LANES``. A *centre* is s_N, or s_N without the sink's part; a_l = ‖y_l‖; u_l = v_l/‖v_l‖.

Exact counts. Distances from a centre s are ordered by E_l = ‖y_l‖² − 2⟨s, y_l⟩ = a_l (a_l − 2⟨s, u_l⟩), which is D_l
without the common term ‖s‖². The inner products ⟨s, u_l⟩ are computed in float32: from one tile of cosines of some keys
with all keys, each row is the one before it plus a_N cos(u_N, u_l). A rigorous bound δ_l of the error of each E_l comes
with it:

    δ_l = a_l (slope · size + bend · a_l),

where size is at least the norm of the centre at the first row of the tile plus the a of the keys added since.
``error_slope`` covers d additions in any order (Higham, *Accuracy and Stability of Numerical Algorithms*, §3.1) and as
many as a tile has rows, ``ERROR_BEND`` the rounding of a_l and of E_l itself. Where y_l = 0, E_l and δ_l are exactly 0.
The few comparisons that the bound does not decide are repeated in float64 with ``compare_distances``, a product of
differences that keeps its digits however near two keys are. It is 0 for equal y, so true ties are ties. The float32
product thus affects speed, never the result.

Underflow. All a are multiplied by 2^lift, with which the largest ‖v‖ lies between 2^(LIFT−1) and 2^LIFT. In δ_l, a_l is
replaced by ``least``, which is not below FLOOR unless y_l = 0, and ``TRIFLE`` is added to the bracket: least · slope ·
size then exceeds the error of an a_l below 2⁻¹²⁶, and least · TRIFLE that of a subnormal product.
"""

import math
from typing import NamedTuple

import numpy as np

from geometry.accelerate import compile_row_kernel, compile_row_sum_kernel, larger, smaller, widen_vectors
from geometry.arrays import F32, F64, I64, Floats

LANES = 16
"""Numbers of float32 that one instruction handles on the widest processors, and that fill a cache line."""

UNIT_ROUNDOFF = 2.0**-24
"""Largest relative error of one float32 rounding."""

ERROR_BEND = 6.3 * UNIT_ROUNDOFF
"""Factor of a_l² in the error bound of E_l."""

LIFT, FLOOR, TRIFLE = 60, 2.0**-87, 2.0**-58
"""The exponent of the largest lifted norm, and what underflow adds to the error bound: see above."""


Interval = tuple[np.float32, np.float32]
"""The ends of an interval that holds a number."""


class Head(NamedTuple):
    """One head, keys in order of falling weight; lifted numbers are multiplied by ``factor``, a power of two."""

    alpha: F64
    """Weights, (n,)."""
    states: Floats
    """Value states times 2^−exponent, (n, d)."""
    norm: F64
    """‖v‖, (n,), times 2^−exponent."""
    order: I64
    """Position of each key, (n,)."""
    unit: F32
    """u in order of position, (n, d); 0 where v = 0."""
    columns: F32
    """u in order of falling weight, (d, w)."""
    a: F32
    """‖y‖, lifted, (w,)."""
    least: F32
    """max(a, FLOOR), or 0 where y = 0, (w,)."""
    along: F32
    """⟨y_0, u⟩, lifted, (w,)."""
    twins: I64
    """For each key the first key of the same weight and value state, (n,); empty if no two keys are equal."""
    sink: int
    """Rank of the sink; n if there is none."""
    last: int
    """Rank of the last token."""
    exponent: int
    factor: float
    slope: np.float32
    bend: np.float32
    trifle: np.float32
    """Coefficients of the error bound, those of a, of a² and of nothing."""


# Leaf kernels take whole arrays and the places in them: slices, and the fields of a tuple, are counted references,
# which take longer than the work on them. Places are unsigned, because the compiler does not vectorise a loop over
# those that may be negative.


def error_slope(terms: int, unit_roundoff: float = UNIT_ROUNDOFF) -> float:
    """Factor of a_l · size in the error bound of E_l, for inner products that are sums of so many terms."""
    return 2.02 * (terms + 8) * unit_roundoff


@compile_row_sum_kernel
def inner(a: Floats, b: Floats) -> float:
    """⟨a, b⟩ summed in float64; a, b: (d,)."""
    total = 0.0
    for k in range(a.size):
        total += np.float64(a[k]) * np.float64(b[k])
    return total


@compile_row_kernel
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


@compile_row_sum_kernel
def distance(s: F64, alpha: F64, states: Floats, key: int) -> float:
    """‖s − y_key‖ in float64 from the differences themselves; s: (d,)."""
    total = 0.0
    for k in range(s.size):
        total += (s[k] - alpha[key] * states[key, k]) ** 2
    return math.sqrt(total)


@compile_row_kernel
def advance(tile: F32, row: int, weight: np.float32) -> None:
    """Add a key to the centre, the products with which are the first row of a tile: ⟨s, u⟩ += weight · cos; (t, w)."""
    widen_vectors()
    for k in range(tile.shape[1]):
        tile[0, k] += weight * tile[row, k]


@compile_row_kernel
def enclose(
    tile: F32, along: F32, a: F32, least: F32, reach: np.float32, bend: np.float32, low: F32, high: F32
) -> None:
    """Enclose E of every key between ``low`` and ``high``, outputs, (w,).

    The first row of ``tile``, (t, w), is ⟨s, u⟩ with s without the sink's part; along is ``Head.along`` if s includes
    that part, otherwise 0. The error of E is at most least · (reach + bend · a).
    """
    widen_vectors()
    for k in range(low.size):
        energy = a[k] * (a[k] - np.float32(2.0) * (tile[0, k] + along[k]))
        error = least[k] * (reach + bend * a[k])
        low[k] = energy - error
        high[k] = energy + error


@compile_row_kernel
def find_least(low: F32, high: F32, start: int, stop: int) -> Interval:
    """The interval of the least E of some keys."""
    widen_vectors()
    lower, upper = np.float32(np.inf), np.float32(np.inf)
    for k in range(np.uint64(start), np.uint64(stop)):
        lower, upper = smaller(lower, low[k]), smaller(upper, high[k])
    return lower, upper


@compile_row_kernel
def find_most(low: F32, high: F32, start: int, stop: int) -> Interval:
    """The interval of the largest E of some keys."""
    widen_vectors()
    lower, upper = np.float32(-np.inf), np.float32(-np.inf)
    for k in range(np.uint64(start), np.uint64(stop)):
        lower, upper = larger(lower, low[k]), larger(upper, high[k])
    return lower, upper


@compile_row_kernel
def survey(low: F32, high: F32, threshold: Interval, start: int, stop: int) -> tuple[int, int]:
    """Count the keys whose E is surely, and perhaps, at most a threshold that is known as an interval."""
    widen_vectors()
    lower, upper = threshold
    sure, possible = np.int32(0), np.int32(0)
    for k in range(np.uint64(start), np.uint64(stop)):
        sure = np.int32(sure + np.int32(high[k] <= lower))
        possible = np.int32(possible + np.int32(low[k] <= upper))
    return int(sure), int(possible)


@compile_row_kernel
def find_candidates(ends: F32, sign: np.float32, reach: np.float32, start: int, stop: int) -> tuple[int, int]:
    """The first and the last of some keys with sign · end ≥ sign · reach; there must be one.

    They may attain the maximum (sign 1, upper ends) or the minimum (sign −1, lower ends) of E.
    """
    widen_vectors()
    limit, first, last = sign * reach, np.int32(stop), np.int32(-1)
    for k in range(np.uint64(start), np.uint64(stop)):
        reaches = sign * ends[k] >= limit
        first = min(first, np.int32(k) if reaches else np.int32(stop))
        last = max(last, np.int32(k) if reaches else np.int32(-1))
    return int(first), int(last)


@compile_row_kernel
def find_extremal_key(
    s: F64,
    alpha: F64,
    states: Floats,
    least: F32,
    ends: F32,
    sign: np.float32,
    reach: np.float32,
    first: int,
    final: int,
) -> int:
    """The first key whose exact ``sign`` · D is the maximum, among the candidates from ``first`` to ``final``."""
    best, empty = first, least[first] == 0.0  # y = 0; there may be thousands of them, all equal
    for k in range(first + 1, final + 1):
        if sign * ends[k] >= sign * reach and not (empty and least[k] == 0.0):
            empty = empty or least[k] == 0.0
            if sign * compare_distances(s, alpha, states, k, best) > 0.0:
                best = k
    return best


@compile_row_kernel
def count_doubtful(
    s: F64,
    alpha: F64,
    states: Floats,
    least: F32,
    low: F32,
    high: F32,
    threshold: Interval,
    key: int,
    start: int,
    stop: int,
) -> int:
    """Count, exactly, the keys in doubt after ``survey`` that are no farther from s than ``key``, the threshold."""
    lower, upper = threshold
    count, empty = 0, -1  # whether y = 0 is within; −1: not known yet
    for k in range(start, stop):
        if low[k] <= upper and not high[k] <= lower:
            if least[k] > 0.0:
                count += compare_distances(s, alpha, states, k, key) <= 0.0
            else:
                if empty < 0:
                    empty = int(compare_distances(s, alpha, states, k, key) <= 0.0)
                count += empty
    return count


@compile_row_kernel
def find_nearest(split: int, s: F64, alpha: F64, states: Floats, least: F32, low: F32, near: Interval) -> int:
    """The key left out that is nearest to s, among those of rank ``split`` and above; near: from ``find_least``."""
    first, final = find_candidates(low, np.float32(-1.0), near[1], split, alpha.size)
    if first == final:
        return first
    return find_extremal_key(s, alpha, states, least, low, np.float32(-1.0), near[1], first, final)


@compile_row_kernel
def find_farthest(split: int, s: F64, alpha: F64, states: Floats, least: F32, high: F32, far: Interval) -> int:
    """The selected key that is farthest from s, among those below rank ``split``; far: from ``find_most``."""
    first, final = find_candidates(high, np.float32(1.0), far[0], 0, split)
    if first == final:
        return first
    return find_extremal_key(s, alpha, states, least, high, np.float32(1.0), far[0], first, final)


@compile_row_kernel
def count_row(
    split: int, s: F64, alpha: F64, states: Floats, least: F32, low: F32, high: F32
) -> tuple[int, int, int, int]:
    """One row, N = split: (K_in, K_out, the nearest key left out, the farthest selected key).

    s: (d,); least, low, high: (w,).
    """
    n = alpha.size
    far, near = find_most(low, high, 0, split), find_least(low, high, split, n)
    farthest = find_farthest(split, s, alpha, states, least, high, far)
    nearest = find_nearest(split, s, alpha, states, least, low, near)
    k_in, possible = survey(low, high, near, 0, split)
    if k_in < possible:
        k_in += count_doubtful(s, alpha, states, least, low, high, near, nearest, 0, split)
    k_out, possible = survey(low, high, far, split, n)
    if k_out < possible:
        k_out += count_doubtful(s, alpha, states, least, low, high, far, farthest, split, n)
    return k_in, k_out, nearest, farthest


@compile_row_kernel
def count_nearer(split: int, s: F64, alpha: F64, states: Floats, least: F32, low: F32, high: F32) -> int:
    """K_in of one row, N = split, as ``count_row``."""
    near = find_least(low, high, split, alpha.size)
    k_in, possible = survey(low, high, near, 0, split)
    if k_in < possible:
        nearest = find_nearest(split, s, alpha, states, least, low, near)
        k_in += count_doubtful(s, alpha, states, least, low, high, near, nearest, 0, split)
    return k_in
