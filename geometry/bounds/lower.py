"""The lower bounds of Theorems 1 and 2 as printed, from the ingredients in a profile.

Holds the margins Δ and Δ_0, the breadth B, and the resulting bounds for any κ, in float64 NumPy; SQL macros compute the
same bounds. What does not belong here: their sums over sequences (``geometry.bounds.lower``), the ingredients
and the upper bounds (``geometry.selection.upper_bounds``), and the bound without κ (``geometry.bounds.scale_free``).

Results have the shape that the arrays of ``Ingredients`` broadcast to.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

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


INGREDIENTS = tuple(field.name for field in fields(Ingredients))  # The names of the ingredients


def delta(parts: Ingredients) -> F64:
    """Δ = (a_min^in)² − 2 a_max^out S_in ρ_out, the margin of the selected keys except the sink (eq. 8)."""
    least, most, total, cosine = _convert_arrays(parts.a_min_in, parts.a_max_out, parts.s_in, parts.rho_out)
    return least * least - 2 * most * total * cosine


def delta_sink(parts: Ingredients) -> F64:
    """Δ_0 = a_0² − (S_in ρ_out)², the sink's margin; NaN where the sink is not selected.

    Eq. 8 prints ρ_in, which the paper does not define; its derivation (eq. 29) has ρ_out.
    """
    sink, total, cosine = _convert_arrays(parts.a_0, parts.s_in, parts.rho_out)
    return sink * sink - (total * cosine) ** 2


def breadth(parts: Ingredients) -> F64:
    """B = a_max^in + a_max^out + S_in (eq. 8)."""
    inside, outside, total = _convert_arrays(parts.a_max_in, parts.a_max_out, parts.s_in)
    return inside + outside + total


def margin(parts: Ingredients, unit: ArrayLike = 1.0) -> F64:
    """Δ/B, with its sign, of values divided by ``unit``; NaN where B is 0 or ``unit`` is not a positive number."""
    return _divide_margin(delta(parts), breadth(parts), unit)


def margin_sink(parts: Ingredients, unit: ArrayLike = 1.0) -> F64:
    """Δ_0/B likewise."""
    return _divide_margin(delta_sink(parts), breadth(parts), unit)


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
    term = left_out - np.log(selected) + _log_tail(margin_sink(parts, unit), factor)
    absent = np.isnan(np.asarray(parts.a_0, np.float64))  # the sink is not selected, or hidden by a window
    with np.errstate(invalid="ignore"):  # NaN stays NaN
        missed: F64 = np.logaddexp(left_out + _log_tail(margin(parts, unit), factor), np.where(absent, -np.inf, term))
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


def _log_tail(relative: F64, factor: F64 | float) -> F64:
    """Logarithm of the tail bound: −κ d (Δ/B)², or 0, the trivial bound of a probability, where Δ is not positive."""
    tail: F64 = -factor * np.maximum(relative, 0.0) ** 2  # NumPy's maximum keeps NaN
    return tail


LOWER = ("precision_lower", "recall_lower", "f_r_max_lower", "f_r_min_lower")
"""The bounds that are summed, in the order of arrays."""


def sum_lower_bounds(margin: F64, sink_margin: F64, *, n_keys: int, head_dim: int, kappas: Sequence[float]) -> F64:
    """Sum the lower bounds of the selections of one layer over its sequences, float64 (bound, head, κ, N).

    From Δ/B and Δ_0/B, (sequence, head, N), N from 1 to n − 1; a selection without Δ/B is left out, and one without
    Δ_0/B lacks its term. The bounds are ``LOWER``: Precision and Recall (eq. 12 and 14, as ``lower_bounds``), F(r_max)
    and F(r_min), 2x/(1 + x) of these (eq. 16 and 17).
    """
    n = np.arange(1, margin.shape[-1] + 1)
    sums = np.zeros((len(LOWER), margin.shape[1], len(kappas), n.size))
    for of_content, of_sink in zip(margin, sink_margin, strict=True):
        for index, kappa in enumerate(kappas):
            tail, tail_sink = (np.exp(_log_tail(part, kappa * head_dim)) for part in (of_content, of_sink))
            # an infinite miss leaves nothing of any bound
            missed = (n_keys - n) * (np.where(np.isnan(tail), np.inf, tail) + np.nan_to_num(tail_sink) / n)
            recall = np.maximum(1 - missed, 0)
            sums[:, :, index] += 1 / (1 + missed), recall, 2 / (2 + missed), 2 * recall / (1 + recall)
    return sums
