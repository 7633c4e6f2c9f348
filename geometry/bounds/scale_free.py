"""A lower bound of Precision and Recall that does not depend on the unit of the value states, and has no constant.

Holds the bound for every N of a head, which depends only on a = ‖α v‖ and the dimension. Its statement, assumptions and
proof are in ``scale_free.md`` in the same directory. The bounds printed in the paper are in ``geometry.bounds.lower``
and ``geometry.selection.upper_bounds``; ``geometry.bounds.monte_carlo`` tests how often each holds.

Letters of the proof: for one N, A is the sum of a² over the selected keys and A_i = A − a_i². A key j left out *passes*
a selected key i if X_ij = D_j − D_i ≤ 0. X_ij = U_i + V_j, where only selected keys enter U_i, and τ is the level that
separates the two parts. Φ(γ) is the rate of the tails: each bound is exp(−d Φ(γ)).
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from geometry.accelerate import compile_kernel, compile_row_kernel, compile_row_sum_kernel, smaller, widen_vectors
from geometry.arrays import F64
from geometry.quantities import ScaleFreeBounds

TAILS = 0.75 * 1.5 ** np.arange(9)
"""The t of the levels τ at which the largest key left out passes with probability e^−t; any τ is valid."""

SLACK = 1e-12  # A_i is increased by this share of A, which exceeds the rounding error

TRIFLE = 1e-3
"""Number of passing keys, or their share of those already counted, that is small enough to stop a refinement."""

LEAST = 1e-100  # Sums of squares below this share of the largest a² count as 0, so that their products do not underflow
CERTAIN = 700.0  # e^−x of this x and larger ones is at most 10⁻³⁰⁴

POWERS = tuple(math.log(2.0) ** k / math.factorial(k) for k in range(11))
"""Coefficients of the Taylor polynomial of 2^x, the relative error of which is below 3·10⁻¹³ for |x| ≤ 1/2."""

PAD = 8  # Events are computed so many at a time

LN_2 = math.log(2.0)

MANTISSA_BITS, EXPONENT_BIAS = 52, 1023  # The parts of a float64

HALF_STEP = int(np.float64(2.0).view(np.int64) - np.float64(math.sqrt(2.0)).view(np.int64))
"""Added to the bits of a float64, it raises the exponent by 1 if the mantissa is at least √2."""


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
        of_head = bound_ordered(a[head], head_dim)
        precision[head], recall[head] = of_head.precision_lower, of_head.recall_lower
    return ScaleFreeBounds(precision, recall)


def bound_ordered(a: F64, head_dim: int) -> ScaleFreeBounds:
    """``scale_free_lower_bounds`` of one head from its α‖v‖ in order of falling weight, (n,)."""
    precision, recall = np.full((2, a.size - 1), np.nan)
    if np.isfinite(a).all():
        largest = a.max()
        square = (a / largest) ** 2 if largest > 0 else a
        bound_rows(square, np.sort(square), float(head_dim), precision, recall)
    return ScaleFreeBounds(precision, recall)


def _check_input(weights: ArrayLike, norms: ArrayLike, head_dim: int) -> tuple[F64, F64]:
    """Weights and norms as float64 arrays of one shape (…, n), or a ValueError if they are invalid."""
    alpha, lengths = np.asarray(weights, np.float64), np.asarray(norms, np.float64)
    if head_dim < 1:
        raise ValueError(f"head_dim must be at least 1, got {head_dim}")
    if min(alpha.ndim, lengths.ndim) < 1 or alpha.shape[-1] != lengths.shape[-1] or alpha.shape[-1] < 2:
        raise ValueError(
            f"weights and norms must have the shape (…, n) with the same n ≥ 2, got {alpha.shape}, {lengths.shape}"
        )
    if (alpha < 0).any() or (lengths < 0).any():
        raise ValueError("weights and norms must not be negative")
    alpha, lengths = np.broadcast_arrays(alpha, lengths)
    return alpha, lengths


@compile_row_sum_kernel
def log_one_plus(h: float) -> float:
    """ln(1 + h) for h ≥ 0, absolute error below 10⁻¹³ up to 2³²; vectorised, unlike ``math.log1p``.

    2 artanh((m − 1)/(m + 1)) + e ln 2, where 1 + h = m 2^e with m between √½ and √2.
    """
    bits = np.float64(1.0 + h).view(np.int64)
    exponent = (bits + HALF_STEP >> MANTISSA_BITS) - EXPONENT_BIAS
    m = np.int64(bits - (exponent << MANTISSA_BITS)).view(np.float64)
    s = (m - 1.0) / (m + 1.0)
    t = s * s
    series = 1 / 9 + t * (1 / 11 + t * (1 / 13 + t * (1 / 15 + t * (1 / 17))))
    series = 1.0 + t * (1 / 3 + t * (1 / 5 + t * (1 / 7 + t * series)))
    return float(2.0 * s * series + exponent * LN_2)


@compile_row_sum_kernel
def exp_minus(x: float) -> float:
    """e^−x for x ≥ 0, relative error below 10⁻¹² up to ``CERTAIN``, from where on it is that of ``CERTAIN``."""
    power = smaller(x, CERTAIN) * (-1.0 / LN_2)
    whole = np.rint(power)
    part = power - whole
    c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10 = POWERS
    high = c5 + part * (c6 + part * (c7 + part * (c8 + part * (c9 + part * c10))))
    low = c0 + part * (c1 + part * (c2 + part * (c3 + part * (c4 + part * high))))
    return float(low * np.int64(np.int64(whole) + EXPONENT_BIAS << MANTISSA_BITS).view(np.float64))


@compile_row_sum_kernel
def tail(square: float, dim: float) -> float:
    """exp(−d Φ(γ)) from γ², with Φ(γ) = max over z of γz + ln(1 − z²)/2 (equation 2 of the note)."""
    h = 0.5 * (np.sqrt(1.0 + 4.0 * square) - 1.0)
    return exp_minus(dim * (h - 0.5 * log_one_plus(h)))


@compile_row_kernel
def fill_tails(squares: F64, tails: F64, count: int, dim: float) -> None:
    """Fill the first ``count`` of ``tails``, (event,), each from its γ²."""
    widen_vectors()
    for k in range(np.uint64(-(-count // PAD) * PAD)):
        tails[k] = tail(squares[k], dim)


@compile_row_sum_kernel
def pair_square(own: float, total: float, least: float, most: float) -> float:
    """The least γ² of X_ij over keys left out with a_j² between ``least`` and ``most`` (equation 5 of the note).

    own: a_i²; total: A.
    """
    g = min(max(2.0 * own * own / total, own + least), own + most)
    if g < LEAST:
        return 0.0
    return float(g * g / (4.0 * (g * (total - own + SLACK * total) + own * (g - own))))


@compile_row_sum_kernel
def own_square(own: float, total: float, tau: float) -> float:
    """γ² of U_i ≤ τ, 0 where the bound is trivial (equation 6); own: a_i²."""
    if own <= max(tau, LEAST):
        return 0.0
    return (own - tau) ** 2 / (4.0 * own * (total - own + SLACK * total))


@compile_row_sum_kernel
def level(growth: float, total: float, most: float) -> float:
    """τ at which no key left out with a_j² ≤ ``most`` has V_j ≤ −τ with probability above e^−t (equation 8).

    growth: e^(2t/d) − 1.
    """
    if most <= growth * total:
        return float(2.0 * np.sqrt(growth * total * most) - most)
    return float(growth * total)


@compile_row_kernel
def fill_levels(growths: F64, largest: float, total: float, most: float, taus: F64) -> int:
    """Fill in the levels of one N, (level,), and return their number.

    largest: the largest a² selected, which no useful level exceeds; most: the largest left out.
    """
    for m in range(growths.size):
        taus[m] = level(growths[m], total, most)
        if taus[m] >= largest:
            return m
    return int(growths.size)


@compile_row_kernel
def fill_group(levels: int, total: float, most: float, taus: F64, squares: F64, place: int) -> None:
    """Fill γ² of V_j ≤ −τ for every level, from ``place`` on; most: a_j²."""
    widen_vectors()
    for m in range(np.uint64(levels)):
        square = smaller(most, taus[m])
        exists = square >= LEAST  # otherwise V_j = 0 > −τ
        divisor = 4.0 * square * total if exists else 1.0
        squares[np.uint64(place) + m] = (taus[m] + square) ** 2 / divisor if exists else CERTAIN / LEAST


@compile_row_kernel
def fill_passing(
    levels: int, total: float, left: F64, keys: int, dim: float, taus: F64, squares: F64, tails: F64, passes: F64
) -> int:
    """Bounds of the expected numbers of keys left out with V_j ≤ −τ for each level (equation 7); the levels of use.

    left: their a², rising, the first ``keys``. From the largest down, keys form groups of 1, 2, 4, …, and each key has
    the probability of the largest of its group. Levels beyond one that hardly any key passes are of no use.
    """
    count, start, group = 0, keys, 1
    while start > 0:
        fill_group(levels, total, left[start - 1], taus, squares, count)
        count, start, group = count + levels, start - group, 2 * group
    fill_tails(squares, tails, count, dim)
    for m in range(levels):
        passes[m] = add_groups(tails, m, levels, keys)
        if passes[m] < TRIFLE:
            return m + 1
    return levels


@compile_row_sum_kernel
def add_groups(tails: F64, m: int, levels: int, keys: int) -> float:
    """The expected number of passing keys at level m, from the probabilities of the groups, (group · level,)."""
    expected, group, start, place = 0.0, 1, keys, m
    while start > 0:
        members = start if start * tails[place] < TRIFLE * expected else min(group, start)
        expected += members * tails[place]
        start, group, place = start - members, 2 * group, place + levels
    return float(expected)


@compile_row_sum_kernel
def bound_outdone(tails: F64, place: int, keys: int, begin: int, levels: int, passes: F64) -> float:
    """q_i, an upper bound of the probability that any of the keys left out passes the selected key i (equation 9).

    tails: at ``place`` of the worst pair, then of U_i ≤ τ for the levels from ``begin`` on.
    """
    least = min(1.0, keys * tails[place])
    for m in range(begin, levels):
        least = min(least, passes[m] + tails[place + 1 + m - begin])
    return float(least)


@compile_row_kernel
def recall_row(
    heavy: F64,
    count: int,
    total: float,
    left: F64,
    keys: int,
    levels: int,
    dim: float,
    taus: F64,
    passes: F64,
    squares: F64,
    tails: F64,
) -> float:
    """Σ_i 1 − q_i; heavy: a² of ``count`` selected keys.

    A key with a_i² ≤ A_i / 2d has d Φ ≤ 1/16 for U_i ≤ 0: its q_i is taken as 1, which saves most of the work.
    """
    begin, place = 0, 0
    while begin < levels and passes[begin] >= 1.0:
        begin += 1
    for i in range(count):
        squares[place] = pair_square(heavy[i], total, left[0], left[keys - 1])
        place += 1
        for m in range(begin, levels):
            squares[place] = own_square(heavy[i], total, taus[m])
            place += 1
    fill_tails(squares, tails, place, dim)
    kept = 0.0
    for i in range(count):
        kept += 1.0 - bound_outdone(tails, i * (1 + levels - begin), keys, begin, levels, passes)
    return kept


@compile_row_kernel
def pair_precision(square: F64, size: int, total: float, left: F64, keys: int, dim: float) -> float:
    """Lower bound of Precision by a union over pairs (equation 10); square: a² in order of falling weight."""
    probability = 0.0
    for i in range(size - 1, -1, -1):  # the smallest weights first: their sum soon exceeds 1
        probability += tail(pair_square(square[i], total, left[0], left[keys - 1]), dim)
        if probability >= 1.0:
            break
    return size / (size + keys * min(1.0, probability))


@compile_row_kernel
def level_precision(square: F64, size: int, total: float, tau: float, expected: float, dim: float) -> float:
    """Lower bound of Precision by one level τ that ``expected`` keys left out pass (equation 11), or N/n."""
    floor = size / square.size
    bound = size / (size + expected)
    for i in range(size - 1, -1, -1):
        of_own = own_square(square[i], total, tau)
        if of_own == 0.0:
            return floor
        bound -= (1.0 - floor) * tail(of_own, dim)
        if bound <= floor:
            return floor
    return bound


@compile_row_kernel
def remove(ordered: F64, count: int, element: float) -> None:
    """Remove one element from the first ``count`` of a rising array: the elements above it move down by one."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if ordered[middle] < element:
            low = middle + 1
        else:
            high = middle
    for k in range(np.uint64(low), np.uint64(count - 1)):
        ordered[k] = ordered[k + np.uint64(1)]


@compile_row_kernel
def keep_heavy(heavy: F64, count: int, own: float, total: float, dim: float) -> int:
    """Append a_i² of a key, and keep the keys whose q may be below 1; returns their number."""
    heavy[count], kept = own, 0
    for i in range(count + 1):
        if (2.0 * dim + 1.0) * heavy[i] > total:
            heavy[kept] = heavy[i]
            kept += 1
    return kept


@compile_kernel
def bound_rows(square: F64, left: F64, dim: float, precision: F64, recall: F64) -> None:
    """The bounds for N = 1, …, n − 1.

    square: a² in order of falling weight, the largest 1 or all 0, (n,); left: the same, rising, overwritten; outputs
    (n − 1,).
    """
    n, total, largest = square.size, square[0], square[0]
    growths = np.expm1(2.0 * TAILS / dim)
    taus, passes, heavy = np.empty(TAILS.size), np.empty(TAILS.size), np.empty(n)
    events = (1 + TAILS.size) * (2 + int(min(n, 2 * dim + 1)) + 64)
    squares, tails = np.zeros(events), np.empty(events)
    remove(left, n, square[0])
    # the one selected key has D = 0; almost surely no other key has
    precision[0] = 1.0 if dim > 1.0 and total > 0.0 else 1.0 / n
    recall[0], count = 1.0, keep_heavy(heavy, 0, square[0], total, dim)
    for size in range(2, n):
        own, keys = square[size - 1], n - size
        largest, total = max(largest, own), total + own
        remove(left, keys + 1, own)
        count = keep_heavy(heavy, count, own, total, dim)
        precision[size - 1], recall[size - 1] = size / n, 0.0
        if total < LEAST:
            continue
        levels = fill_levels(growths, largest, total, left[keys - 1], taus)
        levels = fill_passing(levels, total, left, keys, dim, taus, squares, tails, passes)
        kept = recall_row(heavy, count, total, left, keys, levels, dim, taus, passes, squares, tails)
        best = max(size / n, pair_precision(square, size, total, left, keys, dim))
        for m in range(levels):
            best = max(best, level_precision(square, size, total, taus[m], passes[m], dim))
        precision[size - 1], recall[size - 1] = best, kept / size
