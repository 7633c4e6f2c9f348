"""A lower bound of Precision and Recall that does not depend on the unit of the value states, and has no constant.

Holds the bound for every N of a head, which depends only on a = ‖α v‖ and the dimension. Its statement, assumptions and
proof are in ``scale_free.md`` in the same directory. The bounds printed in the paper are in ``geometry.bounds.lower``
and ``geometry.selection.bound_kernels``; ``geometry.bounds.monte_carlo`` tests how often each holds.

Letters of the proof: for one N, A is the sum of a² over the selected keys and A_i = A − a_i². A key j left out *passes*
a selected key i if X_ij = D_j − D_i ≤ 0. X_ij = U_i + V_j, where only selected keys enter U_i, and τ is the level that
separates the two parts. Φ(γ) is the rate of the tails: each bound is exp(−d Φ(γ)).
"""

import numpy as np
from numpy.typing import ArrayLike

from geometry.accelerate import compile_kernel
from geometry.arrays import F64
from geometry.quantities import ScaleFreeBounds

TAILS = 0.75 * 1.5 ** np.arange(9)
"""The t of the levels τ at which the largest key left out passes with probability e^−t; any τ is valid."""

SLACK = 1e-12
"""A_i is increased by this share of A, which exceeds the rounding error."""

TRIFLE = 1e-3
"""Number of passing keys, or their share of those already counted, that is small enough to stop a refinement."""

LEAST = 1e-100
"""Sums of squares below this share of the largest a² count as 0, so that their products do not underflow."""


def scale_free_lower_bounds(weights: ArrayLike, norms: ArrayLike, head_dim: int) -> ScaleFreeBounds:
    """Lower bounds of Precision and Recall for every N, independent of the unit of the value states.

    Parameters
    ----------
    weights
        Attention weights α of one query over its keys in order of position, (…, n), n ≥ 2, not negative. As in
        ``geometry.selection_profile``, the N largest are selected and ties go to the lower position.
    norms
        Norms of the value states of the same keys, (…, n), in any unit. Leading axes broadcast against those of
        ``weights``.
    head_dim
        Dimension d of the value states.

    Returns
    -------
    ScaleFreeBounds
        float64 arrays (…, n − 1), in [0, 1]. All bounds of a head with a weight or norm that is not finite are NaN.
        Where nothing follows from the assumptions, or all α‖v‖ of a selection are 0, the bounds are the trivial ones,
        N/n and 0.

    Raises
    ------
    ValueError
        If shapes disagree, n < 2, ``head_dim`` < 1, or a weight or norm is negative.

    Notes
    -----
    The bounds hold in expectation if the directions of the value states, including the sink's, are independent and
    uniform on the sphere, and independent of weights and norms. If directions are correlated, the bounds are only a
    reference.

    References
    ----------
    ``geometry/bounds/scale_free.md``; the reduction to pairs is that of eq. 21-24 of arXiv 2602.01893.
    """
    alpha, lengths = _check_input(weights, norms, head_dim)
    lead, n = alpha.shape[:-1], alpha.shape[-1]
    order = np.argsort(-alpha, axis=-1, kind="stable")
    a = np.take_along_axis(alpha * lengths, order, axis=-1)
    precision, recall = np.full((2, *lead, n - 1), np.nan)
    for head in np.ndindex(lead):
        if np.isfinite(a[head]).all():
            largest = a[head].max()
            square = (a[head] / largest) ** 2 if largest > 0 else a[head]
            bound_rows(square, float(head_dim), precision[head], recall[head])
    return ScaleFreeBounds(precision, recall)


def _check_input(weights: ArrayLike, norms: ArrayLike, head_dim: int) -> tuple[F64, F64]:
    """Weights and norms as float64 arrays of one shape (…, n), or a ValueError if they are invalid."""
    alpha, lengths = np.asarray(weights, np.float64), np.asarray(norms, np.float64)
    if head_dim < 1:
        msg = f"head_dim must be at least 1, got {head_dim}"
        raise ValueError(msg)
    if min(alpha.ndim, lengths.ndim) < 1 or alpha.shape[-1] != lengths.shape[-1] or alpha.shape[-1] < 2:
        msg = f"weights and norms must have the shape (…, n) with the same n ≥ 2, got {alpha.shape}, {lengths.shape}"
        raise ValueError(msg)
    if (alpha < 0).any() or (lengths < 0).any():
        msg = "weights and norms must not be negative"
        raise ValueError(msg)
    alpha, lengths = np.broadcast_arrays(alpha, lengths)
    return alpha, lengths


@compile_kernel
def rate(square: float) -> float:
    """Φ(γ) = max over z of γz + ln(1 − z²)/2, from γ² (equation 2 of the note)."""
    h = 2.0 * square / (1.0 + np.sqrt(1.0 + 4.0 * square))
    return float(h - 0.5 * np.log1p(h))


@compile_kernel
def pair_square(own: float, total: float, least: float, most: float) -> float:
    """The least γ² of X_ij over keys left out with a_j² between ``least`` and ``most`` (equation 5 of the note).

    own: a_i²; total: A.
    """
    g = min(max(2.0 * own * own / total, own + least), own + most)
    if g < LEAST:
        return 0.0
    return float(g * g / (4.0 * (g * (total - own + SLACK * total) + own * (g - own))))


@compile_kernel
def own_square(own: float, total: float, tau: float) -> float:
    """γ² of U_i ≤ τ, 0 where the bound is trivial (equation 6); own: a_i²."""
    if own <= max(tau, LEAST):
        return 0.0
    return (own - tau) ** 2 / (4.0 * own * (total - own + SLACK * total))


@compile_kernel
def level(tail: float, total: float, most: float, dim: float) -> float:
    """τ at which no key left out with a_j² ≤ ``most`` has V_j ≤ −τ with probability above e^−tail (equation 8)."""
    square = np.expm1(2.0 * tail / dim)
    if most <= square * total:
        return float(2.0 * np.sqrt(square * total * most) - most)
    return float(square * total)


@compile_kernel
def count_passing(tau: float, total: float, left: F64, dim: float) -> float:
    """Bound of the expected number of keys left out with V_j ≤ −τ (equation 7); left: their a², rising.

    From the largest down, keys form groups of 1, 2, 4, …, and each key has the probability of the largest of its group.
    """
    expected, group, start = 0.0, 1, left.size
    while start > 0:
        square = min(left[start - 1], tau)
        if square < LEAST:
            break  # V_j = 0 > −τ
        likely = np.exp(-dim * rate((tau + square) ** 2 / (4.0 * square * total)))
        members = start if start * likely < TRIFLE * expected else min(group, start)
        expected += members * likely
        start, group = start - members, 2 * group
    return expected


@compile_kernel
def fill_levels(largest: float, total: float, left: F64, dim: float, taus: F64, passes: F64) -> int:
    """Fill in the levels of one N and their ``count_passing``, and return their number.

    largest: the largest a² selected, which no useful level exceeds. Levels beyond one that hardly any key passes are
    not useful either.
    """
    for m in range(TAILS.size):
        taus[m] = level(TAILS[m], total, left[-1], dim)
        if taus[m] >= largest:
            return m
        passes[m] = count_passing(taus[m], total, left, dim)
        if passes[m] < TRIFLE:
            return m + 1
    return int(TAILS.size)


@compile_kernel
def bound_outdone(own: float, total: float, left: F64, taus: F64, passes: F64, dim: float) -> float:
    """q_i, an upper bound of the probability that any key left out passes the selected key i (equation 9).

    own: a_i²; left: a² of the keys left out, rising; taus, passes: levels and ``count_passing``.
    """
    union = left.size * np.exp(-dim * rate(pair_square(own, total, left[0], left[-1])))
    least = min(1.0, union)
    for m in range(taus.size):
        if passes[m] < least and own > taus[m]:
            least = min(least, passes[m] + np.exp(-dim * rate(own_square(own, total, taus[m]))))
    return float(least)


@compile_kernel
def recall_row(own: F64, total: float, left: F64, taus: F64, passes: F64, dim: float) -> float:
    """1 − Σ_i q_i / N; own: a² of the selected keys, (N,), the others as for ``bound_outdone``.

    A key with a_i² ≤ A_i / 2d has d Φ ≤ 1/16 for U_i ≤ 0: its q_i is taken as 1, which saves most of the work.
    """
    kept = 0.0
    for i in range(own.size):
        if (2.0 * dim + 1.0) * own[i] > total:
            kept += 1.0 - bound_outdone(own[i], total, left, taus, passes, dim)
    return kept / own.size


@compile_kernel
def pair_precision(own: F64, total: float, left: F64, dim: float) -> float:
    """Lower bound of Precision by a union over pairs (equation 10); parameters as for ``recall_row``."""
    probability = 0.0
    for i in range(own.size - 1, -1, -1):  # the smallest weights first: their sum soon exceeds 1
        probability += np.exp(-dim * rate(pair_square(own[i], total, left[0], left[-1])))
        if probability >= 1.0:
            break
    return own.size / (own.size + left.size * min(1.0, probability))


@compile_kernel
def level_precision(own: F64, total: float, n: int, tau: float, expected: float, dim: float) -> float:
    """Lower bound of Precision by one level τ that ``expected`` keys left out pass (equation 11), or N/n."""
    floor = own.size / n
    bound = own.size / (own.size + expected)
    for i in range(own.size - 1, -1, -1):
        bound -= (1.0 - floor) * np.exp(-dim * rate(own_square(own[i], total, tau)))
        if bound <= floor:
            return floor
    return bound


@compile_kernel
def remove(ordered: F64, element: float) -> None:
    """Remove one element of a rising array: the elements above it move down by one."""
    for k in range(np.searchsorted(ordered, element), ordered.size - 1):
        ordered[k] = ordered[k + 1]


@compile_kernel
def bound_rows(square: F64, dim: float, precision: F64, recall: F64) -> None:
    """The bounds for N = 1, …, n − 1.

    square: a² in order of falling weight, the largest 1 or all 0, (n,); outputs (n − 1,).
    """
    n, total = square.size, square[0]
    ordered, taus, passes = np.sort(square), np.empty(TAILS.size), np.empty(TAILS.size)
    remove(ordered, square[0])
    # the one selected key has D = 0; almost surely no other key has
    precision[0] = 1.0 if dim > 1.0 and total > 0.0 else 1.0 / n
    recall[0], largest = 1.0, square[0]
    for size in range(2, n):
        own, largest = square[:size], max(largest, square[size - 1])
        remove(ordered[: n - size + 1], square[size - 1])
        left = ordered[: n - size]
        total += square[size - 1]
        precision[size - 1], recall[size - 1] = size / n, 0.0
        if total < LEAST:
            continue
        levels = fill_levels(largest, total, left, dim, taus, passes)
        recall[size - 1] = recall_row(own, total, left, taus[:levels], passes[:levels], dim)
        best = max(size / n, pair_precision(own, total, left, dim))
        for m in range(levels):
            best = max(best, level_precision(own, total, n, taus[m], passes[m], dim))
        precision[size - 1] = best
