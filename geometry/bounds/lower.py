"""The lower bounds of Theorems 1 and 2 as printed, from the ingredients in a profile.

Holds the margins Δ and Δ_0, the breadth B, and the resulting bounds for any κ, in float64 NumPy; SQL macros compute the
same bounds. What does not belong here: their sums over sequences (``geometry.bounds.lower``), the ingredients
and the upper bounds (``geometry.selection.upper_bounds``), and the bound without κ (``geometry.bounds.scale_free``).

Results have the shape that the arrays of ``Ingredients`` broadcast to.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from geometry.accelerate import compile_kernel, compile_row_kernel, larger
from geometry.arrays import F64


@dataclass(frozen=True, kw_only=True)
class Ingredients:
    """The ingredients of the bounds of one or many selections (eq. 7 and 8), in the unit of the value states.

    The fields are the arrays of the same names in ``geometry.selection.profile.SelectionProfile``, float of any shapes
    that broadcast against one another. All except ``a_0`` are NaN where J, the selection without the sink, is empty.
    """

    a_0: ArrayLike = math.nan
    """a_0, weighted norm of the sink; NaN where the sink is not selected or is hidden by a window."""
    s_in: ArrayLike
    """S_in, the sum of the weighted norms of J."""
    a_min_in: ArrayLike
    """The smallest weighted norm of J."""
    a_max_in: ArrayLike
    """The largest weighted norm of J."""
    a_max_out: ArrayLike
    """The largest weighted norm of the keys left out."""
    rho_out: ArrayLike
    """ρ_out, the largest cosine of a key of J with a key left out, at least 0."""


INGREDIENTS = tuple(field.name for field in fields(Ingredients))
"""The names of the ingredients."""


def delta(parts: Ingredients) -> F64:
    """Δ = (a_min^in)² − 2 a_max^out S_in ρ_out, the margin of the selected keys except the sink (eq. 8)."""
    return subtract_overlap(*_convert_arrays(parts.a_min_in, parts.a_max_out, parts.s_in, parts.rho_out))


def subtract_overlap(least: F64, most: F64, total: F64, cosine: F64) -> F64:
    """Δ from a_min^in, a_max^out, S_in and ρ_out, all float64 numbers or arrays."""
    return least * least - 2 * most * total * cosine


def delta_sink(parts: Ingredients) -> F64:
    """Δ_0 = a_0² − (S_in ρ_out)², the sink's margin; NaN where the sink is not selected.

    Eq. 8 prints ρ_in, which the paper does not define; its derivation (eq. 29) has ρ_out.
    """
    return subtract_from_sink(*_convert_arrays(parts.a_0, parts.s_in, parts.rho_out))


def subtract_from_sink(sink: F64, total: F64, cosine: F64) -> F64:
    """Δ_0 from a_0, S_in and ρ_out, all float64 numbers or arrays."""
    return sink * sink - (total * cosine) ** 2


def breadth(parts: Ingredients) -> F64:
    """B = a_max^in + a_max^out + S_in (eq. 8)."""
    inside, outside, total = _convert_arrays(parts.a_max_in, parts.a_max_out, parts.s_in)
    return inside + outside + total


def margin(parts: Ingredients, unit: ArrayLike = 1.0) -> F64:
    """Δ/B, with its sign, of values divided by ``unit``; NaN where B is 0 or ``unit`` is not a positive number."""
    return _divide_margin(delta(parts), breadth(parts), unit)


def log_miss(
    parts: Ingredients,
    *,
    size: ArrayLike,
    n_keys: ArrayLike,
    head_dim: ArrayLike,
    kappa: ArrayLike,
    unit: ArrayLike = 1.0,
) -> F64:
    """ln((n − N) q + (n − N)/N · q_0), on which both lower bounds depend; parameters as for ``lower_bounds``.

    The logarithm still distinguishes two heads whose bounds have both reached 0 or 1.
    """
    selected, keys = _convert_arrays(size, n_keys)
    factor = np.asarray(kappa, np.float64) * np.asarray(head_dim, np.float64)
    left_out = np.log(keys - selected)
    content = margin(parts, unit)
    of_sink = _divide_margin(delta_sink(parts), breadth(parts), unit)
    term = left_out - np.log(selected) + _log_tail(of_sink, factor)
    absent = np.isnan(np.asarray(parts.a_0, np.float64))  # the sink is not selected, or hidden by a window
    with np.errstate(invalid="ignore"):  # NaN stays NaN
        missed: F64 = np.logaddexp(left_out + _log_tail(content, factor), np.where(absent, -np.inf, term))
    return missed


def lower_bounds(
    parts: Ingredients,
    *,
    size: ArrayLike,
    n_keys: ArrayLike,
    head_dim: ArrayLike,
    kappa: ArrayLike,
    unit: ArrayLike = 1.0,
) -> tuple[F64, F64]:
    """Lower bounds of Precision P(r_max, N) and Recall R(r_min, N) as the paper prints them (eq. 12, 14).

    Parameters
    ----------
    parts
        Ingredients of eq. 7 and 8, in the unit of the value states.
    size
        N, the number of selected keys, 1 ≤ N < n.
    n_keys
        n, the number of keys.
    head_dim
        d, the dimension of the value states.
    kappa
        Concentration constant κ > 0; the paper gives none.
    unit
        Divisor of the value states: ``value_scale`` (with an axis for N added) for the ``unit`` scale, 1 for
        the ``raw`` one.

    Returns
    -------
    precision_lower, recall_lower
        float64, in [0, 1]: 1/(1 + miss) and max(0, 1 − miss) with miss = (n − N) q + (n − N)/N · q_0. The factor
        q = exp(−κ d (Δ/B)²) is 1 unless Δ > 0, and so is q_0 of Δ_0; the term of q_0 is absent where a_0 is NaN. NaN
        where J is empty, B is 0, or ``unit`` is not a positive number.

    Notes
    -----
    Δ is quadratic in the values and B linear: except with ``unit`` = C, the bounds depend on the unit of the values,
    while Precision and Recall do not.

    References
    ----------
    *Geometric Analysis of Token Selection in Multi-Head Attention*, arXiv 2602.01893, Theorems 1 and 2.
    """
    missed = log_miss(parts, size=size, n_keys=n_keys, head_dim=head_dim, kappa=kappa, unit=unit)
    precision: F64 = special.expit(-missed)
    recall: F64 = -np.expm1(np.minimum(missed, 0.0))
    return precision, recall


def _convert_arrays(*given: ArrayLike) -> tuple[F64, ...]:
    """Convert the arguments to float64 arrays."""
    return tuple(np.asarray(array, np.float64) for array in given)


def _divide_margin(margin_of: F64, breadth_of: F64, unit: ArrayLike) -> F64:
    """A margin over B for values divided by ``unit``; NaN where either divisor is not positive."""
    divisor = breadth_of * np.where(np.asarray(unit, np.float64) > 0, unit, np.nan)
    relative: F64 = margin_of / np.where(divisor > 0, divisor, np.nan)
    return relative


def _log_tail(relative: F64, factor: F64) -> F64:
    """Logarithm of the tail bound: −κ d (Δ/B)², or 0, the trivial bound of a probability, where Δ is not positive."""
    tail: F64 = -factor * np.maximum(relative, 0.0) ** 2  # NumPy's maximum keeps NaN
    return tail


LOWER = ("precision_lower", "recall_lower", "f_r_max_lower", "f_r_min_lower")
"""The bounds that are summed, in the order of arrays."""


def measure_margins(parts: Ingredients, unit: F64) -> tuple[F64, F64]:
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
    _fill_margins(margin, sink_margin, unit, *(np.asarray(getattr(parts, name)) for name in INGREDIENTS))
    return margin, sink_margin


_subtract_overlap: Any = compile_kernel(subtract_overlap)
_subtract_from_sink: Any = compile_kernel(subtract_from_sink)


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
