"""Sensitivity of attention weights to their logits: the spectral norm of the softmax Jacobian.

Holds the norm of (diag α − α αᵀ) / T. The weights at another temperature are computed in
``geometry.limits.temperature``; views of the warehouse compare the norm with its bounds.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from geometry.arrays import F64
from geometry.limits.temperature import TEMPERATURES, check_rows, check_temperature, divide_by_largest

BLOCK = 2**14
"""Number of weights that are processed together, so that their arrays stay in the cache of a core."""

MOST_STEPS = 64
"""Largest number of steps of the iteration; most heads take four or five."""

EPSILON = float(np.finfo(np.float64).eps)


def jacobian_norm(weights: ArrayLike, learned_sink: ArrayLike | None = None) -> F64:
    """The spectral norm of diag α − α αᵀ, the Jacobian of softmax(l) by l, for every row.

    Parameters
    ----------
    weights
        Attention weights α, (…, n).
    learned_sink
        Weight of a learned sink in every row, (…); none by default. The Jacobian is then that of the keys by their own
        logits: the same matrix, with α that sum to less than 1.

    Returns
    -------
    ndarray
        float64 (…), within [0, 1/2], with a relative error of a few units in the last place for every head, including
        saturated heads. Weights are first divided by their sum, including the share of the sink, so that 1 minus the
        largest weight is exactly the sum of the others.

    Raises
    ------
    ValueError
        If weights or shares are negative or not finite, the shapes do not match, or all weights of a row are 0.

    Notes
    -----
    A rank-one update of a diagonal: with α₁ > α₂ the two largest weights, the largest eigenvalue λ lies between them
    and is the only root there of

        h(λ) = λ − α₁ (1 − α₁) − (α₁ − λ) S(λ),    S(λ) = Σ_(i ≥ 2) α_i² / (λ − α_i),

    the secular equation times α₁ − λ. h rises and is concave, so Newton's step from any λ ends at or below the root. S
    replaced by c / (λ − α₂) + e of the same value and slope at λ is at least S, so the root of that quadratic equation
    is at or above that of h. Both sequences converge quadratically and enclose the root until they meet. If α₁ = α₂, λ
    is that weight; zero weights are ignored. O(n) per head and step, four or five steps; ``estimate_scratch_bytes`` of
    memory.

    References
    ----------
    J. R. Bunch, C. P. Nielsen, D. C. Sorensen, *Rank-one Modification of the Symmetric Eigenproblem*, Numerische
    Mathematik 31, 1978.
    """
    alpha, share = check_rows(weights, learned_sink)
    return _norms(alpha, share)


def sensitivity(
    weights: ArrayLike, temperatures: Sequence[float] = TEMPERATURES, learned_sink: ArrayLike | None = None
) -> F64:
    """The spectral norm of the Jacobian of softmax(l / T) by l, (diag α(T) − α(T) α(T)ᵀ) / T, at several temperatures.

    Parameters
    ----------
    weights
        Attention weights at temperature 1, (…, n).
    temperatures
        Each T > 0.
    learned_sink
        As for ``jacobian_norm``; its logit is divided by T as well.

    Returns
    -------
    ndarray
        float64 (…, temperature), at most 1/(2T). Keys whose weight underflowed in the model are ignored at every T.

    Raises
    ------
    ValueError
        For the reasons given in ``jacobian_norm`` and ``geometry.limits.temperature.temper``.

    References
    ----------
    *Limitations of Normalization in Attention Mechanism*, arXiv 2508.17821, as cited in secondary accounts.
    """
    alpha, share = check_rows(weights, learned_sink)
    norms = np.empty((*share.shape, len(temperatures)))
    for index, temperature in enumerate(temperatures):
        check_temperature(temperature)
        norms[..., index] = _norms(*divide_by_largest(alpha, share, temperature)) / temperature
    return norms


def estimate_scratch_bytes(heads: int, n: int) -> int:
    """Upper bound of the memory of both functions without its input and output, in bytes.

    Four float64 copies of the weights, and five arrays of one block of heads.
    """
    return 32 * heads * n + 40 * max(BLOCK, n) + 256 * heads + 2**12


def _norms(alpha: F64, share: F64) -> F64:
    """``jacobian_norm`` of checked rows, block after block."""
    n = alpha.shape[-1]
    rows, shares, norms = alpha.reshape(-1, n), share.reshape(-1), np.empty(share.size)
    step = max(1, BLOCK // n)
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        norms[part] = _largest_eigenvalues(rows[part], shares[part])
    return norms.reshape(share.shape)


def _largest_eigenvalues(alpha: F64, share: F64) -> F64:
    """The norms of a block of rows, (heads, n) → (heads,)."""
    total = alpha.sum(axis=1) + share
    p = np.partition(alpha, alpha.shape[1] - 1, axis=1) / total[:, None]
    first, others = p[:, -1], p[:, :-1]
    second = others.max(axis=1, initial=0.0)
    left = others.sum(axis=1) + share / total  # 1 − α₁, with all its digits
    least = first * left
    largest = np.where(second > 0, first, least)  # the norm if α₁ = α₂, and if α₂ = 0
    open_ = np.flatnonzero((second > 0) & (first > second))
    largest[open_] = _find_roots(others[open_], first[open_], second[open_], least[open_])
    norms: F64 = np.minimum(largest, 0.5)
    return norms


def _find_roots(others: F64, first: F64, second: F64, least: F64) -> F64:
    """The roots of h between the second and the first weight, (heads,); ``least`` is α₁ (1 − α₁)."""
    low = np.maximum(second, least)
    high: F64 = np.minimum(first, 2.0 * np.maximum(least, second * (1.0 - second)))  # Gershgorin's discs
    moving = high > low
    for _ in range(MOST_STEPS):
        below, above = _enclose_roots(others, first, second, least, high)
        low = np.fmax(low, below)
        lower = np.fmax(np.fmin(above, high), low)  # NaN where λ equals α₂ to the last digit: high is kept
        moving &= (lower < high) & (high - low > 2.0 * EPSILON * high)
        if not moving.any():
            break
        high[moving] = lower[moving]  # a converged head is not changed, whichever heads are computed with it
    return high


def _enclose_roots(others: F64, first: F64, second: F64, least: F64, at: F64) -> tuple[F64, F64]:
    """Enclose the roots of h by a step from ``at``, (heads,) each: Newton's from below, the quadratic's from above."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = others / (at[:, None] - others)
        value, slope = np.einsum("hi,hi->h", others, ratio), np.einsum("hi,hi->h", ratio, ratio)  # S and −S'
        rest, beyond = first - at, at - second
        newton = at - (at - least - rest * value) / (1.0 + value + rest * slope)
        c, e = slope * beyond**2, np.maximum(value - slope * beyond, 0.0)
        b, product = second - least + c - (first - second) * e, (first - second) * c
        root = np.sqrt(b * b + 4.0 * (1.0 + e) * product)
        beyond = np.where(b > 0, 2.0 * product / (b + root), (root - b) / (2.0 * (1.0 + e)))
    return newton, second + beyond
