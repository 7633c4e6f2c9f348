"""The keys of a head: their order, their norms, and how far their weighted value states lie from a centre.

Holds what every computation about single keys shares. What does not belong here: all N of a selection
(``geometry.selection.scan``).

Letters: n keys, d components of a value state; y_l = α_l v_l; a centre is s_N, or s_N without the sink's part.
"""

import math

import numpy as np

from geometry.accelerate import compile_kernel, compile_row_kernel, compile_row_sum_kernel
from geometry.arrays import F64, I64, Floats


@compile_row_kernel
def error_slope(terms: int, unit_roundoff: float) -> float:
    """Factor of ‖y‖ ‖s‖ in the error bound of ‖y‖² − 2⟨s, y⟩ for an inner product of so many terms, in any order.

    Higham, *Accuracy and Stability of Numerical Algorithms*, §3.1.
    """
    return 2.02 * (terms + 8) * unit_roundoff


@compile_row_sum_kernel
def inner(a: Floats, b: Floats) -> float:
    """⟨a, b⟩ summed in float64; a, b: (d,)."""
    total = 0.0
    for k in range(a.size):
        total += np.float64(a[k]) * np.float64(b[k])
    return total


@compile_row_sum_kernel
def add_key(weight: float, state: Floats, s: F64) -> None:
    """Add a weighted value state, (d,), to a sum."""
    for k in range(s.size):
        s[k] += weight * np.float64(state[k])


@compile_row_kernel
def compare_distances(s: F64, alpha: F64, states: Floats, key: int, other: int) -> float:
    """How much farther y of one key is from s than o of another, squared: ⟨y − o, (y − s) + (o − s)⟩ = D_y − D_o.

    s: (d,); alpha: (n,); states: (n, d); y_l = α_l v_l. Evaluated in this order, the second factor keeps the last
    digits of y and o near s, which y + o − 2s would round away. It is exactly 0 for equal y.
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


@compile_kernel
def length(vector: Floats) -> float:
    """‖vector‖ of a vector (d,), accurate even if the squares of its components underflow; they must not overflow."""
    square = inner(vector, vector)
    if square > 1e-200:
        return float(np.sqrt(square))
    largest = 0.0
    for k in range(vector.size):
        largest = max(largest, np.abs(np.float64(vector[k])))
    square = 0.0
    if largest > 0.0:
        for k in range(vector.size):
            square += (np.float64(vector[k]) / largest) ** 2
    return float(largest * np.sqrt(square))


@compile_kernel
def measure_norms(states: Floats, norms: F64) -> None:
    """‖v‖ of every value state, (n, d); output (n,)."""
    for key in range(states.shape[0]):
        norms[key] = length(states[key])


def sort_keys(weights: Floats) -> I64:
    """The keys in order of falling weight, ties in order of position, (…, n).

    The bits of float32 numbers that are not negative are ordered as the numbers are, and whole numbers are sorted
    fastest.
    """
    if weights.dtype != np.float32:
        return np.argsort(-weights, kind="stable")
    bits = np.arange(weights.shape[-1]) - ((weights + np.float32(0)).view(np.int32).astype(np.int64) << 32)
    bits.sort()
    return bits & 0xFFFFFFFF


def scale_states(states: Floats) -> tuple[Floats, int]:
    """Scale float64 value states to the middle of their range: states, and the exponent removed.

    Squares of float32 numbers stay in the range of float64. Read-only ones are copied: for these kernels would be
    compiled anew, in seconds.
    """
    if states.dtype == np.float32:
        return np.require(states, requirements=("C", "W")), 0
    size = int(np.frexp(max(float(states.max()), -float(states.min())))[1])
    return np.ldexp(states.astype(np.float64), -size), size
