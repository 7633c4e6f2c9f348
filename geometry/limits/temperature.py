"""Attention at other temperatures, computed from stored weights.

Holds the weights softmax(l / T) that follow from softmax(l). For selections with them see ``geometry.limits.tempered``,
and for the sensitivity of weights to their logits ``geometry.limits.jacobian``.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from geometry.arrays import F64
from geometry.inputs import convert_array

TEMPERATURES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Default temperatures; 1 gives the weights of the model."""


def temper(weights: ArrayLike, temperature: float, learned_sink: ArrayLike | None = None) -> F64:
    """The weights of the same logits at another temperature: softmax(l / T), α_i(T) ∝ α_i^(1/T).

    Parameters
    ----------
    weights
        Attention weights at temperature 1, (…, n), each row a softmax of its keys; rows of learned sinks sum to less
        than 1.
    temperature
        T > 0: below 1 weights become sharper, above 1 more uniform.
    learned_sink
        Weight of a learned sink in every row, (…); none by default. Its logit is divided by T as well.

    Returns
    -------
    ndarray
        float64 (…, n). At T = 1 the weights as given. At any other T rows sum to 1, or with a learned sink to 1 minus
        its share at T. Weights of 0 stay 0: the logit of a key whose weight underflowed in the model is not known.

    Raises
    ------
    ValueError
        If T is not a positive number, weights or shares are negative or not finite, the shapes do not match, or all
        weights of a row are 0.

    Notes
    -----
    Computed with logarithms, so nothing overflows. A float32 weight has a relative error of 2⁻²⁴, which becomes
    2⁻²⁴ / T. Weights below 10⁻³⁰⁸ at T are 0.

    References
    ----------
    *Limitations of Normalization in Attention Mechanism*, arXiv 2508.17821: temperature; softmax(l / T) by definition.
    """
    alpha, share = check_rows(weights, learned_sink)
    check_temperature(temperature)
    if temperature == 1:
        return alpha.copy()
    tempered, sink = divide_by_largest(alpha, share, temperature)
    tempered /= tempered.sum(axis=-1, keepdims=True) + sink[..., None]
    return tempered


def divide_by_largest(alpha: F64, share: F64, temperature: float) -> tuple[F64, F64]:
    """The weights at a temperature and that of a learned sink, both divided by the largest of them: (…, n) and (…).

    ``temper`` divides them by their sum. They keep the digits of 1 minus the largest weight.
    """
    with np.errstate(divide="ignore"):
        logits, sink = np.log(alpha) / temperature, np.log(share) / temperature
    largest = np.maximum(logits.max(axis=-1), sink)
    return np.exp(logits - largest[..., None]), np.exp(sink - largest)


def check_temperature(temperature: float) -> None:
    """Raise a ValueError if the temperature is not a positive number."""
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be a positive number, got {temperature!r}")


def check_rows(weights: ArrayLike, learned_sink: ArrayLike | None) -> tuple[F64, F64]:
    """Weights (…, n) and shares of learned sinks (…), 0 by default, in float64; a ValueError if invalid."""
    alpha = np.asarray(convert_array(weights), np.float64)
    share = np.zeros(alpha.shape[:-1]) if learned_sink is None else np.asarray(convert_array(learned_sink), np.float64)
    if alpha.ndim < 1 or share.shape != alpha.shape[:-1]:
        raise ValueError(f"weights (…, n) and learned_sink (…) must match, got {alpha.shape} and {share.shape}")
    for name, array in (("weights", alpha), ("learned_sink", share)):
        if not ((array >= 0) & (array < math.inf)).all():
            raise ValueError(f"{name} must be finite and not negative")
    if not (alpha.max(axis=-1, initial=0.0) > 0).all():
        raise ValueError("weights must be rows of a softmax, but all weights of a row are 0")
    return alpha, share
