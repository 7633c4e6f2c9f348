"""What the output of a head loses when only the N keys of the largest weights are kept, for every N.

Holds ``selection_errors``. What does not belong here: the loss of a model whose queries keep N keys
(``extract.sparsity``).
"""

import numpy as np
from numpy.typing import NDArray

from geometry.accelerate import compile_kernel, compile_row_sum_kernel
from geometry.arrays import F64, I64, Floats
from geometry.inputs import broadcast_lead, check_heads, iterate_heads, reject_masked
from geometry.quantities import SelectionErrors, list_declared
from geometry.selection.keys import scale_states, sort_keys

NAMES = tuple(list_declared(SelectionErrors))
"""Names of the quantities, in the order in which ``fill_errors`` stores them."""


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
    errors = np.empty((*broadcast_lead(weights, values), len(NAMES), weights.shape[-1] - 1))
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
    """The quantities of ``SelectionErrors`` of one head in the order of ``NAMES``, (3, n − 1).

    weights (n,); states (n, d), in any unit; mean: v̄, (d,); order: keys by falling weight, (n,).
    """
    total, left_out = 0.0, 0.0
    output, rest = np.zeros(mean.size), np.zeros(mean.size)
    for key in order[::-1]:
        total += weights[key]
        add_weighted(weights[key], states[key], output)
    norm = np.sqrt(measure_square(output, 0.0, output))
    for row in range(order.size - 2, -1, -1):
        key = order[row + 1]
        left_out += weights[key]
        add_weighted(weights[key], states[key], rest)
        kept = total / (total - left_out)
        errors[0, row] = left_out
        errors[1, row] = measure_renormalised(rest, output, kept) / norm if norm > 0.0 else np.nan
        errors[2, row] = np.sqrt(measure_square(rest, left_out, mean)) / norm if norm > 0.0 else np.nan


@compile_row_sum_kernel
def add_weighted(weight: float, state: Floats, total: F64) -> None:
    """Add a weighted value state, (d,), to a sum."""
    for k in range(total.size):
        total[k] += weight * np.float64(state[k])


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
