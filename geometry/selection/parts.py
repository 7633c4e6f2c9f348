"""Contributions of the sink, the last token and all other keys to a head's output.

Holds ``output_parts``, the norms of the parts of Σ y_i (Section 4.2). For selections of the N largest weights see
``geometry.selection.profile``.
"""

import numpy as np
from numpy.typing import NDArray

from geometry.accelerate import compile_kernel, compile_row_sum_kernel
from geometry.arrays import F64, Floats
from geometry.inputs import broadcast_lead, iterate_heads, reject_masked
from geometry.quantities import OutputParts, list_declared
from geometry.selection.keys import inner

NAMES = tuple(list_declared(OutputParts))
"""Names of the norms, in the order in which ``measure_parts`` stores them."""


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
    parts = np.empty((*broadcast_lead(weights, values), len(NAMES)))
    for head, of_head, states in iterate_heads(weights, values):
        measure_parts(of_head, states, sink, parts[head])
    return OutputParts(**{name: parts[..., index] for index, name in enumerate(NAMES)})


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
    """The quantities of ``OutputParts`` of one head in the order of ``NAMES``, weights (n,), states (n, d)."""
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
