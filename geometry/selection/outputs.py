"""What the keys of a head contribute to its output, and what it loses when only those of the largest weights are kept.

Holds ``output_parts``, the norms of the parts of Σ y_i (Section 4.2), and ``selection_errors``. What does not belong
here: the loss of a model whose queries keep N keys (``extract.effects.sparsity``).
"""

import numpy as np
from numpy.typing import NDArray

from geometry.accelerate import compile_kernel, compile_row_sum_kernel
from geometry.arrays import F64, I64, Floats
from geometry.inputs import broadcast_lead, check_heads, iterate_heads, reject_masked
from geometry.quantities import OutputParts, SelectionErrors, list_declared
from geometry.selection.keys import add_key, inner, scale_states, sort_keys

PARTS, ERRORS = tuple(list_declared(OutputParts)), tuple(list_declared(SelectionErrors))
"""Names of the quantities, in the order in which ``measure_parts`` and ``fill_errors`` store them."""


def output_parts(weights: NDArray[np.floating], values: NDArray[np.floating], *, sink: bool = True) -> OutputParts:
    """Norms of the contributions of the sink, the last token and the rest to the output of each head (Section 4.2).

    Parameters
    ----------
    weights
        Attention weights α of one query over the keys it may attend to, in order of position, (…, n), n ≥ 1. The last
        key is the last token: the query's own position.
    values
        Value states v of the same keys, (…, n, d). Leading axes broadcast against those of ``weights``, so query heads
        of one KV group share theirs: weights (kv_head, group, n), values (kv_head, 1, n, d).
    sink
        Whether the first key is position 0 of the sequence. If the sink is the only key, it is also the last token,
        and both norms are those of this key.

    Raises
    ------
    ValueError
        If shapes disagree, there is no key, or either is a masked array.

    Notes
    -----
    All sums are computed in float64 directly over their keys, never as differences of other sums, so the rest keeps its
    precision however dominant the sink is. Squares of float32 numbers stay in the range of float64.
    """
    weights, values = reject_masked("weights", weights), reject_masked("values", values)
    if 0 in values.shape[-2:] or weights.shape[-1:] != values.shape[-2:-1]:
        raise ValueError(
            f"weights (…, n) and values (…, n, d) must have the same n ≥ 1 keys, got {weights.shape}, {values.shape}"
        )
    parts = np.empty((*broadcast_lead(weights, values), len(PARTS)))
    for head, of_head, states in iterate_heads(weights, values):
        measure_parts(of_head, states, sink, parts[head])
    return OutputParts(**{name: parts[..., index] for index, name in enumerate(PARTS)})


@compile_row_sum_kernel
def add_contribution(weight: float, state: Floats, total: F64) -> float:
    """Add a weighted value state, (d,), to a sum; returns its norm."""
    square = 0.0
    for k in range(total.size):
        part = np.float64(state[k])
        total[k] += weight * part
        square += part * part
    return float(weight * np.sqrt(square))


@compile_kernel
def measure_parts(weights: Floats, states: Floats, sink: bool, parts: F64) -> None:
    """The quantities of ``OutputParts`` of one head in the order of ``PARTS``, weights (n,), states (n, d)."""
    n, first = weights.size, 1 if sink else 0
    d, total, square = states.shape[1], 0.0, 0.0
    others, of_sink, of_last = np.zeros(d), np.zeros(d), np.zeros(d)
    for key in range(first, n - 1):
        norm = add_contribution(weights[key], states[key], others)
        total, square = total + norm, square + norm * norm
    y_0 = add_contribution(weights[0], states[0], of_sink) if sink else np.nan
    y_last = add_contribution(weights[n - 1], states[n - 1], of_last)
    if n == 1:  # the sink is the last token: without it nothing is left
        of_sink[:] = 0.0
    whole, rest = others + of_sink + of_last, np.sqrt(inner(others, others))
    without_sink, without_last = others + of_last if n > 1 else others, others + of_sink
    parts[0] = weights[0] if sink else np.nan
    parts[1], parts[2], parts[3] = y_0, y_last, rest
    parts[4] = max(total, rest)  # at least the norm of the sum, despite rounding
    parts[5] = np.sqrt(inner(whole, whole))
    parts[6] = np.sqrt(inner(without_sink, without_sink)) if sink else np.nan
    parts[7] = np.sqrt(inner(without_last, without_last))
    parts[8] = np.sqrt(square + y_last * y_last + (y_0 * y_0 if sink and n > 1 else 0.0))


def selection_errors(weights: NDArray[np.floating], values: NDArray[np.floating]) -> SelectionErrors:
    """Errors of the output of each head when it keeps the N keys of the largest weights, for every N.

    Parameters
    ----------
    weights, values
        As for ``geometry.selection_profile``: α, (…, n), and v, (…, n, d), of the keys that the query may attend to.

    Raises
    ------
    ValueError
        As for ``geometry.selection_profile``.

    Notes
    -----
    O(n d) for each head, in float64. The weighted value states left out are added from the smallest weight on, so that
    a small error keeps its digits beside the output.

    References
    ----------
    The error of renormalised weights is that of arXiv 2512.07647; the mean for the rest is that of SparQ, arXiv
    2312.04985.
    """
    weights, values = reject_masked("weights", weights), reject_masked("values", values)
    check_heads(weights, values)
    errors = np.empty((*broadcast_lead(weights, values), len(ERRORS), weights.shape[-1] - 1))
    for head, alpha, given in iterate_heads(weights, values):
        states, order = scale_states(given)[0], sort_keys(alpha)
        mean = states.mean(axis=0, dtype=np.float64)
        fill_errors(alpha.astype(np.float64), states, mean, order, errors[head])
    return SelectionErrors(*np.moveaxis(errors, -2, 0))


def count_keys_below(errors: NDArray[np.floating], limit: float) -> I64:
    """The smallest N from which on an error stays below a limit, from errors (…, n − 1); n if it never does.

    An error that does not exist, since the output is 0, is below every limit.
    """
    above = errors >= limit
    last = above.shape[-1] - above[..., ::-1].argmax(axis=-1)
    return np.where(above.any(axis=-1), last + 1, 1)


@compile_kernel
def fill_errors(weights: F64, states: Floats, mean: F64, order: I64, errors: F64) -> None:
    """The quantities of ``SelectionErrors`` of one head in the order of ``ERRORS``, (3, n − 1).

    weights (n,); states (n, d), in any unit; mean: v̄, (d,); order: keys by falling weight, (n,).
    """
    total, left_out = 0.0, 0.0
    output, rest = np.zeros(mean.size), np.zeros(mean.size)
    for key in order[::-1]:
        total += weights[key]
        add_key(weights[key], states[key], output)
    norm = np.sqrt(measure_square(output, 0.0, output))
    for row in range(order.size - 2, -1, -1):
        key = order[row + 1]
        left_out += weights[key]
        add_key(weights[key], states[key], rest)
        kept = total / (total - left_out)
        errors[0, row] = left_out
        errors[1, row] = measure_renormalised(rest, output, kept) / norm if norm > 0.0 else np.nan
        errors[2, row] = np.sqrt(measure_square(rest, left_out, mean)) / norm if norm > 0.0 else np.nan


@compile_row_sum_kernel
def measure_renormalised(rest: F64, output: F64, factor: float) -> float:
    """‖o − f s_N‖ with s_N = o − rest, as ‖rest − (f − 1) (o − rest)‖; all (d,)."""
    square = 0.0
    for k in range(rest.size):
        square += (rest[k] - (factor - 1.0) * (output[k] - rest[k])) ** 2
    return float(np.sqrt(square))


@compile_row_sum_kernel
def measure_square(vector: F64, weight: float, other: F64) -> float:
    """‖vector − weight · other‖², both (d,)."""
    square = 0.0
    for k in range(vector.size):
        square += (vector[k] - weight * other[k]) ** 2
    return float(square)
