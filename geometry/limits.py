"""Limits of normalisation: distances, temperatures and sensitivity of the softmax (arXiv 2508.17821)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from geometry.accelerate import compile_kernel, compile_sum_kernel
from geometry.arrays import F64, I64, Floats
from geometry.grids import choose_grid
from geometry.inputs import broadcast_lead, convert_array, iterate_groups, read_heads
from geometry.separation import chance
from geometry.separation.comparisons import arrange_keys, compare, compute_measures, select
from geometry.statistics.intervals import average_known, estimate_jackknife, leave_one_out


def random_subset_distance(
    norm_output: ArrayLike, norm_contributions: ArrayLike, *, size: ArrayLike, n_keys: ArrayLike
) -> F64:
    """Root mean square of ‖Σ_{i∉S} y_i − Σ_{i∈S} y_i‖ over all sets S of N of the n keys.

    Parameters
    ----------
    norm_output
        ‖s_n‖, the norm of the sum of all y_i = α_i v_i, in any unit; as ``geometry.output_parts`` gives it.
    norm_contributions
        √Σ‖y_i‖², in the same unit; as ``geometry.output_parts`` gives it.
    size
        N, the number of selected keys.
    n_keys
        n, the number of keys.

    Returns
    -------
    ndarray
        float64, in the unit of the norms, of the shape that the arguments broadcast to; NaN unless 1 ≤ N < n.

    Notes
    -----
    Let ε_i be −1 for keys of S and 1 for all others, so that the difference is Σ ε_i y_i. For i ≠ j the mean of
    ε_i ε_j over all S is ((n − 2N)² − n) / (n(n − 1)), and Σ_{i≠j} ⟨y_i, y_j⟩ is ‖s_n‖² − Σ‖y_i‖². So the mean square
    is

        4N(n − N) / (n(n − 1)) · (Σ‖y_i‖² − ‖s_n‖²/n) + (1 − 2N/n)² ‖s_n‖²,

    where the first bracket, n times the variance of y over the keys, is not negative.
    """
    whole, parts, n, keys = (np.asarray(x, np.float64) for x in (norm_output, norm_contributions, size, n_keys))
    there = (n >= 1) & (n < keys)
    n, keys = np.where(there, n, np.nan), np.where(keys > 1, keys, np.nan)
    mean = whole / np.sqrt(keys)
    spread = np.sqrt(np.maximum(parts - mean, 0) * (parts + mean))
    distance: F64 = np.hypot(np.sqrt(4 * n * (keys - n) / (keys * (keys - 1))) * spread, (1 - 2 * n / keys) * whole)
    return distance


@dataclass(frozen=True)
class Exponent:
    """The least-squares line of ln y over ln x; NaN where the points do not determine it."""

    exponent: float
    """b of y = e^a x^b."""
    low: float
    """Lower end of its interval over sequences; NaN for one sequence."""
    high: float
    """Upper end of that interval."""
    level: float
    """e^a, y at x = 1."""
    r2: float
    """Share of the variance of ln y that the line explains; NaN where ln y does not vary."""
    points: int
    """Number of points with x > 0 and y > 0."""


def fit_exponents(x: ArrayLike, y: ArrayLike) -> Exponent:
    """Fit a line to ln ȳ over ln x, ȳ the mean of curves over sequences; the interval is the jackknife's.

    Parameters
    ----------
    x
        (points,); those that are not above 0 are left out.
    y
        The curves of the sequences, (S, points); points whose mean is not above 0 are left out.
    """
    given, curves = np.asarray(x, np.float64), np.asarray(y, np.float64)
    means = np.concatenate([average_known(curves)[None], leave_one_out(curves)])
    used = (given > 0) & (np.nan_to_num(means) > 0).all(axis=0) if len(curves) > 1 else (given > 0) & (means[0] > 0)
    lines = _fit_lines(np.log(given[used]), np.log(means[:, used]))
    estimate = estimate_jackknife(lines[0, 0], lines[1:, 0])
    exponent, intercept, r2 = lines[0].tolist()
    return Exponent(exponent, float(estimate.low), float(estimate.high), float(np.exp(intercept)), r2, int(used.sum()))


def _fit_lines(x: F64, y: F64) -> F64:
    """Slope, intercept and R² of each curve (curves, points), (curves, 3); NaN for fewer than two different x."""
    if x.size < 2 or np.ptp(x) == 0:
        return np.full((len(y), 3), np.nan)
    apart, middle = x - x.mean(), y.mean(axis=1)
    slope = (y - middle[:, None]) @ apart / (apart @ apart)
    total = ((y - middle[:, None]) ** 2).sum(axis=1)
    explained = np.divide(slope**2 * (apart @ apart), total, out=np.full(len(y), np.nan), where=total > 0)
    return np.stack([slope, middle - slope * x.mean(), explained], axis=1)


TEMPERATURES = (0.25, 0.5, 1.0, 2.0, 4.0)  # Default temperatures; 1 gives the weights of the model


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


MOST_STEPS = 64  # Largest number of steps of the iteration; most heads take four or five

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
        saturated heads. Weights are first divided by their sum, including the share of the sink.

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
    is that weight; zero weights are ignored. O(n) per head and step, four or five steps.

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
        For the reasons given in ``jacobian_norm`` and ``geometry.limits.temper``.

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


MEASURES = ("precision", "recall", "specificity", "auc")
"""The measures of ``geometry.separation.chance`` that are computed at every temperature."""

COLUMNS = [chance.MEASURES.index(name) for name in MEASURES]  # Where they are among those


@dataclass(frozen=True)
class SelectionByTemperature:
    """A selection at several temperatures; arrays are float64 with leading axes as given."""

    temperature: F64
    """T, (temperature,)."""
    n: I64
    """N, (grid,)."""
    measures: F64
    """``MEASURES``, (…, temperature, measure, grid): P(r_max, N), R(r_min, N), 1 − K_out/(n − N), AUC(N)."""
    distance: F64
    """d̃(N), the distance of s_N from the sum of the y left out, (…, temperature, grid), in the unit of the values."""
    random_distance: F64
    """The root mean square of the same for random N-subsets, (…, temperature, grid)."""


def selection_by_temperature(
    weights: ArrayLike,
    values: ArrayLike,
    temperatures: Sequence[float] = TEMPERATURES,
    n: Sequence[int] | I64 | None = None,
    *,
    learned_sink: ArrayLike | None = None,
) -> SelectionByTemperature:
    """Separation of a selection and its distance from the rest, by temperature.

    Parameters
    ----------
    weights
        Attention weights at temperature 1 over the keys of one query, in order of position, (…, n), n ≥ 1.
    values
        Value states of the same keys, (…, n, d). Leading axes broadcast against those of ``weights``.
    temperatures
        Each T > 0.
    n
        N, ascending whole numbers from 1 to n − 1, (grid,); by default ``log_grid`` of the number of keys. Ignored
        for n = 1: one key leaves nothing to select, so there is no N.
    learned_sink
        Weight of a learned sink in every row, (…); its logit is divided by T as well.

    Returns
    -------
    SelectionByTemperature
        Counts are exact, as those of ``geometry.separation.chance.separability``, for weights at T rounded to float64.

    Raises
    ------
    ValueError
        For the reasons given in ``geometry.limits.temper`` and ``geometry.separation.chance.separability``.

    Notes
    -----
    O(grid · n d) per temperature and head.

    References
    ----------
    *Limitations of Normalization in Attention Mechanism*, arXiv 2508.17821: temperature; softmax(l / T) by definition.
    """
    alpha, states = read_heads(weights, values, least_keys=1)
    sizes = choose_grid(n, alpha.shape[-1]) if alpha.shape[-1] > 1 else np.empty(0, np.int64)
    lead, shape = broadcast_lead(alpha, states), (len(temperatures), len(MEASURES) + 2, sizes.size)
    tempered = np.stack([temper(alpha, temperature) for temperature in temperatures], axis=-2)
    tempered = np.broadcast_to(tempered, (*lead, *tempered.shape[-2:]))
    selections = np.empty((*lead, *shape))
    rows_of_heads = selections.reshape(math.prod(lead) * shape[0], *shape[1:])
    for rows, weights_of_rows, of_keys in iterate_groups(tempered, states[..., None, :, :]) if sizes.size else ():
        rows_of_heads[rows] = _measure_rows(weights_of_rows, of_keys, sizes)
    measures, distance, random_distance = selections[..., :-2, :], selections[..., -2, :], selections[..., -1, :]
    if learned_sink is not None:  # it takes the same share from every key, which changes only lengths
        shares = [
            temper(alpha, temperature, learned_sink).sum(axis=-1) if temperature != 1 else np.ones(alpha.shape[:-1])
            for temperature in temperatures
        ]
        kept = np.broadcast_to(np.stack(shares, axis=-1), (*lead, len(shares)))[..., None]
        distance, random_distance = kept * distance, kept * random_distance
    return SelectionByTemperature(np.array(temperatures, np.float64), sizes, measures, distance, random_distance)


def _measure_rows(weights: F64, states: Floats, sizes: I64) -> F64:
    """The measures of rows of weights, their distances from the rest and random ones, (row, measure, grid).

    Of rows that share their value states: weights (row, n), states (n, d).
    """
    n, keys = len(states), arrange_keys(weights, states)
    selected = select(keys, np.append(sizes, n))
    selected, output = selected._replace(s=selected.s[:, :-1]), selected.s[:, -1:]
    measures = compute_measures(compare(keys, sizes, selected), sizes, n)[:, COLUMNS]
    norms = np.linalg.norm(output, axis=-1), np.linalg.norm(keys.a, axis=-1)[:, None]
    distance = np.linalg.norm(output - 2 * selected.s, axis=-1)
    lengths = distance, random_subset_distance(*norms, size=sizes, n_keys=n)
    return np.concatenate([measures, np.ldexp(np.stack(lengths, axis=1), keys.exponent)], axis=1)
