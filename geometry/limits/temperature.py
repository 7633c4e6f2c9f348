"""Attention at other temperatures, computed from stored weights.

Holds the weights softmax(l / T) that follow from softmax(l), and the counts of the selection over several T. For the
sensitivity of weights to their logits see ``geometry.limits.jacobian``.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geometry.arrays import F64, I32
from geometry.inputs import check_heads, convert_array, convert_dtype
from geometry.selection import kernels
from geometry.selection.head_kernels import find_reach
from geometry.selection.host import arrange, prepare_keys
from geometry.selection.kernels import Head
from geometry.selection.profile import selection_counts

TEMPERATURES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Default temperatures; 1 gives the weights of the model."""


@dataclass(frozen=True)
class CountsByTemperature:
    """Counts and radii of the selection of the N largest weights, as ``SelectionCounts``, at several temperatures.

    Arrays have the shape (…, temperature, N), leading axes as given.
    """

    temperature: F64
    """T, (temperature,)."""
    n: I32
    """N, (N,)."""
    k_in: I32
    """K_in, selected keys no farther from s_N than r_min (eq. 20)."""
    k_out: I32
    """K_out, keys left out that are no farther from s_N than r_max (eq. 20)."""
    r_min: F64
    """Distance from s_N to the nearest key left out (eq. 19)."""
    r_max: F64
    """Distance from s_N to the farthest selected key (eq. 19)."""


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


def counts_by_temperature(
    weights: ArrayLike,
    values: ArrayLike,
    temperatures: Sequence[float] = TEMPERATURES,
    n: Sequence[int] | None = None,
    learned_sink: ArrayLike | None = None,
) -> CountsByTemperature:
    """Counts and radii of the selection at several temperatures.

    Parameters
    ----------
    weights, values
        As for ``selection_counts``, weights at temperature 1.
    temperatures
        Each T > 0.
    n
        The N to compute, ascending, each between 1 and n − 1; all by default. The matrix product has one row per N.
    learned_sink
        As for ``temper``.

    Returns
    -------
    CountsByTemperature
        Exact, as those of ``selection_counts``, for weights at T rounded to float64. The order of the keys, and
        so I_N, is the same at every T, except for keys whose weights underflow at T: they tie and are ordered by
        position.

    Raises
    ------
    ValueError
        For the reasons given in ``temper`` and ``selection_counts``, or if ``n`` is not as described.
    """
    alpha, states = convert_array(weights), convert_array(values)
    check_heads(alpha, states)
    keys = alpha.shape[-1]
    sizes = np.arange(1, keys) if n is None else np.asarray(n)
    if sizes.ndim != 1 or not np.issubdtype(sizes.dtype, np.integer) or (np.diff([0, *sizes, keys]) <= 0).any():
        msg = f"n must be ascending whole numbers from 1 to {keys - 1}, got {n!r}"
        raise ValueError(msg)
    parts = []
    for temperature in temperatures:
        tempered = temper(alpha, temperature)
        k_in, k_out, r_min, r_max = _measure_heads(tempered, states, sizes, every=n is None)
        if learned_sink is not None and temperature != 1:  # it takes the same share from every key
            kept = temper(alpha, temperature, learned_sink).sum(axis=-1, keepdims=True)
            r_min, r_max = kept * r_min, kept * r_max
        parts.append((k_in, k_out, r_min, r_max))
    arrays = (np.stack(of_measure, axis=-2) for of_measure in zip(*parts, strict=True))
    return CountsByTemperature(np.array(temperatures, np.float64), sizes.astype(np.int32), *arrays)


def _measure_heads(alpha: F64, states: NDArray[Any], sizes: NDArray[np.integer], *, every: bool) -> list[NDArray[Any]]:
    """The measures of all heads, (…, N) each, for ``every`` N or only ``sizes``; alpha (…, n), states (…, n, d)."""
    if every:
        counts = selection_counts(alpha, states)
        return [counts.k_in, counts.k_out, counts.r_min, counts.r_max]
    lead = np.broadcast_shapes(alpha.shape[:-1], states.shape[:-2])
    alpha = np.broadcast_to(alpha, (*lead, alpha.shape[-1]))
    states = np.broadcast_to(states, (*lead, *states.shape[-2:]))
    kinds = (np.int32, np.int32, np.float64, np.float64)
    out: list[NDArray[Any]] = [np.empty((*lead, sizes.size), kind) for kind in kinds]
    for head in np.ndindex(lead):
        rows = _measure_head(arrange(alpha[head], prepare_keys(convert_dtype(states[head])), sink=False), sizes)
        for array, row in zip(out, rows, strict=True):
            array[head] = row
    return out


def _measure_head(head: Head, sizes: NDArray[np.integer]) -> Iterator[tuple[float, ...]]:
    """The measures of one head for some N: products of the centres with all keys, then one row per N."""
    weighted = head.alpha[: sizes[-1], None] * head.states[: sizes[-1]]
    s = np.cumsum(np.add.reduceat(weighted, np.append(0, sizes[:-1]), axis=0), axis=0)
    products, sizes_of_s = (head.factor * s).astype(np.float32) @ head.columns, head.factor * np.linalg.norm(s, axis=1)
    (low, high, nothing), rows = np.zeros((3, products.shape[1]), np.float32), []
    for row, size in enumerate(sizes.tolist()):
        reach = find_reach(head, sizes_of_s[row])
        kernels.enclose(products[row : row + 1], nothing, head.a, head.least, reach, head.bend, low, high)
        counted = kernels.count_row(size, s[row], head.alpha, head.states, head.least, low, high)
        radii = (kernels.distance(s[row], head.alpha, head.states, key) for key in counted[2:])
        rows.append((*counted[:2], *(math.ldexp(radius, head.exponent) for radius in radii)))
    return zip(*rows, strict=True)


def check_temperature(temperature: float) -> None:
    """Raise a ValueError if the temperature is not a positive number."""
    if not 0 < temperature < math.inf:
        msg = f"temperature must be a positive number, got {temperature!r}"
        raise ValueError(msg)


def check_rows(weights: ArrayLike, learned_sink: ArrayLike | None) -> tuple[F64, F64]:
    """Weights (…, n) and shares of learned sinks (…), 0 by default, in float64; a ValueError if invalid."""
    alpha = np.asarray(convert_array(weights), np.float64)
    share = np.zeros(alpha.shape[:-1]) if learned_sink is None else np.asarray(convert_array(learned_sink), np.float64)
    if alpha.ndim < 1 or share.shape != alpha.shape[:-1]:
        msg = f"weights (…, n) and learned_sink (…) must match, got {alpha.shape} and {share.shape}"
        raise ValueError(msg)
    for name, array in (("weights", alpha), ("learned_sink", share)):
        if not ((array >= 0) & (array < math.inf)).all():
            msg = f"{name} must be finite and not negative"
            raise ValueError(msg)
    if not (alpha.max(axis=-1, initial=0.0) > 0).all():
        msg = "weights must be rows of a softmax, but all weights of a row are 0"
        raise ValueError(msg)
    return alpha, share
