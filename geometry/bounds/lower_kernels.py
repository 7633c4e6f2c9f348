"""Compiled kernels of the lower bounds that ``geometry.bounds.lower`` defines, of all selections of a layer.

Holds their margins, and the sums over sequences of the bounds and of the F-scores that follow, for every κ.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geometry.accelerate import compile_kernel, compile_row_kernel, larger
from geometry.arrays import F64
from geometry.bounds import lower

LOWER = ("precision_lower", "recall_lower", "f_r_max_lower", "f_r_min_lower")
"""The bounds that are summed, in the order of arrays."""


def measure_margins(parts: lower.Ingredients, unit: F64) -> tuple[F64, F64]:
    """Δ/B and Δ_0/B of values divided by ``unit``, each with its sign.

    Parameters
    ----------
    parts
        Ingredients, arrays (sequence, head, N).
    unit
        Divisor of the value states, (sequence, head).

    Returns
    -------
    ndarray, ndarray
        float64 (sequence, head, N); NaN where B or ``unit`` is not positive, or only the sink is selected, and Δ_0/B
        also where the sink is not.
    """
    margin, sink_margin = np.full((2, *np.shape(parts.s_in)), np.nan)
    _fill_margins(margin, sink_margin, unit, *(np.asarray(getattr(parts, name)) for name in lower.INGREDIENTS))
    return margin, sink_margin


_subtract_overlap: Any = compile_kernel(lower.subtract_overlap)
_subtract_from_sink: Any = compile_kernel(lower.subtract_from_sink)


@compile_kernel
def _fill_margins(
    margin: F64,
    sink_margin: F64,
    unit: F64,
    a_0: NDArray[np.floating],
    s_in: NDArray[np.floating],
    a_min_in: NDArray[np.floating],
    a_max_in: NDArray[np.floating],
    a_max_out: NDArray[np.floating],
    rho_out: NDArray[np.floating],
) -> None:
    """Fill both margins where B and the unit are positive, (sequence, head, N)."""
    sequences, heads, last = margin.shape
    for sequence in range(sequences):
        for head in range(heads):
            for at in range(last):
                place = (sequence, head, at)
                total, cosine, most = np.float64(s_in[place]), np.float64(rho_out[place]), np.float64(a_max_out[place])
                divisor = (a_max_in[place] + most + total) * unit[sequence, head]
                if divisor > 0:
                    margin[place] = _subtract_overlap(np.float64(a_min_in[place]), most, total, cosine) / divisor
                    sink_margin[place] = _subtract_from_sink(np.float64(a_0[place]), total, cosine) / divisor


def sum_lower_bounds(margin: F64, sink_margin: F64, *, n_keys: int, head_dim: int, kappas: Sequence[float]) -> F64:
    """Sum the lower bounds of the selections of one layer over its sequences.

    Parameters
    ----------
    margin, sink_margin
        Δ/B and Δ_0/B, (sequence, head, N), N from 1 to n − 1; a selection without Δ/B is left out, and one without
        Δ_0/B lacks its term.
    n_keys
        n, the number of keys.
    head_dim
        d, the dimension of the value states.
    kappas
        Concentration constants κ > 0.

    Returns
    -------
    ndarray
        float64 (bound, head, κ, N), in the order of ``LOWER``: Precision and Recall (eq. 12 and 14, as
        ``geometry.bounds.lower.lower_bounds``), F(r_max) and F(r_min), 2x/(1 + x) of these (eq. 16 and 17).
    """
    _, heads, last = margin.shape
    sums = np.zeros((heads, len(kappas), len(LOWER), last))
    rates = -head_dim * np.array(kappas, np.float64)
    _add_sequences(margin, sink_margin, rates, n_keys, sums)
    return np.moveaxis(sums, 2, 0)


@compile_kernel
def _add_sequences(margin: F64, sink_margin: F64, rates: F64, n_keys: int, sums: F64) -> None:
    """Add the bounds of every sequence to ``sums``, (head, κ, bound, N); rates: −κ d, (κ,)."""
    sequences, heads, last = margin.shape
    missed = np.empty(last)
    for head in range(heads):
        for sequence in range(sequences):
            for at in range(rates.size):
                _fill_missed(margin[sequence, head], sink_margin[sequence, head], rates[at], n_keys, missed)
                _add_bounds(missed, sums[head, at])


@compile_row_kernel
def _fill_missed(margin: F64, sink_margin: F64, rate: float, n_keys: int, missed: F64) -> None:
    """(n − N) q + (n − N)/N · q_0 of one row, (N,); infinite, which leaves nothing of any bound, without Δ/B."""
    for at in range(margin.size):
        tail, of_sink, n = 1.0, 0.0, at + 1
        if margin[at] > 0:
            tail = math.exp(rate * margin[at] * margin[at])
        elif math.isnan(margin[at]):
            tail = math.inf
        if sink_margin[at] > 0:
            of_sink = math.exp(rate * sink_margin[at] * sink_margin[at])
        elif sink_margin[at] <= 0:
            of_sink = 1.0
        missed[at] = (n_keys - n) * (tail + of_sink / n)


@compile_row_kernel
def _add_bounds(missed: F64, sums: F64) -> None:
    """Add the bounds that follow from one row, (bound, N)."""
    for at in range(missed.size):
        recall = larger(1.0 - missed[at], 0.0)
        sums[0, at] += 1.0 / (1.0 + missed[at])
        sums[1, at] += recall
        sums[2, at] += 2.0 / (2.0 + missed[at])
        sums[3, at] += 2.0 * recall / (1.0 + recall)
