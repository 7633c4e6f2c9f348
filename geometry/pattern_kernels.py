"""Compiled kernel of ``geometry.patterns``: softmax, entropy and weights on some keys in one pass over each row."""

import math

import numpy as np

from geometry.accelerate import compile_kernel, compile_row_kernel, compile_row_sum_kernel, larger
from geometry.arrays import F32, F64, I64
from geometry.powers import power_of_two
from geometry.quantities import LOCAL_KEYS

LEAST = -87.0
"""Least difference of logits whose power of e is not taken as 0; that of -88 is too small for float32."""

PIECE = 1024
"""Keys whose float32 exponentials are added before the sum is added to one in float64."""


@compile_row_sum_kernel
def find_largest(row: F32, stop: int) -> np.float32:
    """The largest of the first logits of a row."""
    most = np.float32(-np.inf)
    for k in range(np.uint64(stop)):
        most = larger(most, row[k])
    return most


@compile_row_sum_kernel
def exponentiate(row: F32, start: int, stop: int, largest: np.float32) -> tuple[float, float]:
    """Replace some logits l of a row by e^(l − largest), relative error below 10⁻⁷ (2 + largest − l).

    Returns their sum, and that of their products with l − largest.
    """
    total, weighted = np.float32(0.0), np.float32(0.0)
    for k in range(np.uint64(start), np.uint64(stop)):
        below = row[k] - largest
        raised = larger(np.float32(LEAST), below)
        exponential = power_of_two(raised * np.float32(1.0 / math.log(2.0)))
        exponential = exponential if below >= raised else np.float32(0.0)
        row[k] = exponential
        total += exponential
        weighted += exponential * raised
    return float(total), float(weighted)


@compile_kernel
def add_rows(logits: F32, first: int, earlier: I64, sinks: F32, sums: F64, keep: bool) -> None:
    """Add the patterns of rows from position ``first`` on to ``sums``, (H, P).

    logits: (H, R, K), of which only keys up to the row's position are read, and overwritten; earlier: (K,), the
    position of the last earlier copy of each token, -1 if there is none; sinks: (H,), the logits of the learned sinks;
    keep: whether the logits are overwritten by the weights.
    """
    for head in range(logits.shape[0]):
        for place in range(logits.shape[1]):
            row, stop = logits[head, place], first + place + 1
            norm = add_row(row, first + place, earlier, sinks[head], sums[head])
            if keep:
                for key in range(row.size):
                    row[key] = np.float32(row[key] / norm) if key < stop else np.float32(0.0)


@compile_row_kernel
def add_row(row: F32, q: int, earlier: I64, sink: np.float32, sums: F64) -> float:
    """Add the patterns of the row at position q, (K,), to ``sums``, (P,); returns the sum that divides its weights."""
    largest = max(find_largest(row, q + 1), sink)
    total, weighted, local = 0.0, 0.0, 0.0
    for start in range(0, q + 1, PIECE):
        part = exponentiate(row, start, min(start + PIECE, q + 1), largest)
        total, weighted = total + part[0], weighted + part[1]
    norm = total + math.exp(sink - largest)
    for key in range(max(0, q + 1 - LOCAL_KEYS), q + 1):
        local += row[key]
    duplicate, induction, copy = 0.0, 0.0, earlier[q]
    while copy >= 0:
        duplicate, induction = duplicate + row[copy], induction + row[copy + 1]
        copy = earlier[copy]
    rest, own, previous = np.float64(row[0]), np.float64(row[q]), np.float64(row[q - 1])
    matched = rest if earlier[q] >= 0 else 0.0
    weights = (rest, own, previous, local, duplicate, induction, matched, rest - matched)
    for pattern in range(len(weights)):  # in the order of PATTERNS, whose last is the entropy
        sums[pattern] += weights[pattern] / norm
    sums[-1] += (total * math.log(norm) - weighted) / norm / math.log1p(q)
    return norm
