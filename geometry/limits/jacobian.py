"""Sensitivity of attention weights to their logits: the spectral norm of the softmax Jacobian.

Holds the norm of (diag α − α αᵀ) / T. The weights at another temperature are computed in
``geometry.limits.temperature``; views of the warehouse compare the norm with its bounds.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from geometry.accelerate import compile_kernel, compile_sum_kernel
from geometry.arrays import F64
from geometry.limits.temperature import TEMPERATURES, check_rows, check_temperature, divide_by_largest

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

    Four float64 copies of the weights, and one row of them.
    """
    return 32 * heads * n + 8 * n + 256 * heads + 2**12


def _norms(alpha: F64, share: F64) -> F64:
    """``jacobian_norm`` of checked rows."""
    norms = np.empty(share.size)
    _find_norms(alpha.reshape(share.size, alpha.shape[-1]), share.reshape(-1), norms)
    return norms.reshape(share.shape)


@compile_kernel
def _find_norms(alpha: F64, share: F64, norms: F64) -> None:
    """The norm of every row, (heads, n) and (heads,) → (heads,)."""
    others = np.empty(alpha.shape[1])
    for head in range(share.size):
        at, total = alpha[head].argmax(), _sum(alpha[head]) + share[head]
        for key in range(others.size):
            others[key] = alpha[head, key] / total
        first, others[at] = others[at], 0.0
        second, left = others.max(), _sum(others) + share[head] / total  # left: 1 − α₁, with all its digits
        norm = first if second > 0.0 else first * left  # the norm if α₁ = α₂, and if α₂ = 0
        if first > second > 0.0:
            norm = _find_root(others, first, second, first * left)
        norms[head] = min(norm, 0.5)


@compile_kernel
def _find_root(others: F64, first: float, second: float, least: float) -> float:
    """The root of h between the second and the first weight; ``least`` is α₁ (1 − α₁), others have no first weight."""
    low = max(second, least)
    high = min(first, 2.0 * max(least, second * (1.0 - second)))  # Gershgorin's discs
    for _ in range(MOST_STEPS if high > low else 0):
        below, above = _enclose_root(*_sum_ratios(others, high), first, second, least, high)
        low = max(low, below)
        lower = max(min(high, above), low)  # NaN where λ equals α₂ to the last digit: high is kept
        if lower >= high or high - low <= 2.0 * EPSILON * high:
            break
        high = lower
    return high


@compile_kernel
def _enclose_root(
    value: float, slope: float, first: float, second: float, least: float, at: float
) -> tuple[float, float]:
    """Enclose the root of h by a step from ``at``: Newton's from below, the quadratic's from above; S and −S' there."""
    rest, beyond = first - at, at - second
    newton = at - (at - least - rest * value) / (1.0 + value + rest * slope)
    c, e = slope * beyond**2, max(value - slope * beyond, 0.0)
    b, product = second - least + c - (first - second) * e, (first - second) * c
    root = math.sqrt(b * b + 4.0 * (1.0 + e) * product)
    step = 2.0 * product / (b + root) if b > 0.0 else (root - b) / (2.0 * (1.0 + e))
    return newton, second + step


@compile_sum_kernel
def _sum(numbers: F64) -> float:
    total = 0.0
    for number in numbers:
        total += number
    return total


@compile_sum_kernel
def _sum_ratios(others: F64, at: float) -> tuple[float, float]:
    """S(λ) and −S'(λ) at a λ, for the weights without the first."""
    value = slope = 0.0
    for weight in others:
        ratio = weight / (at - weight)
        value, slope = value + weight * ratio, slope + ratio * ratio
    return value, slope
