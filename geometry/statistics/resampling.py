"""Intervals of statistics over sequences and heads: a bootstrap over both, and a jackknife where refitting is costly.

Holds the draws, weighted statistics over sequences and over heads for all replicates at once, and the intervals. What
does not belong here: the choice of the statistic of a claim.

A replicate draws sequences with replacement and, independently, clusters of heads (KV groups) with replacement: the
pigeonhole bootstrap (Owen 2007), which is conservative: its intervals tend to be too wide. A draw is a vector of
whole-number weights, so a replicate of a mean over sequences is a matrix product, and replicate 0 is the data
themselves. Letters in shapes: S sequences, G clusters, H heads, R replicates, R + 1 with the data.

References
----------
A. B. Owen, The pigeonhole bootstrap, Annals of Applied Statistics 1, 2007. T. C. Hesterberg, What teachers should know
about the bootstrap, The American Statistician 69, 2015 (intervals for few units).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from geometry.arrays import F64, I64
from geometry.statistics.quantiles import quantiles_of_replicates
from geometry.threads import one_blas_thread

REPLICATES = 2000
"""Replicates of an interval; with this many the ends of a 95 % interval vary by 6 % of a standard error."""

LEVEL = 0.95
"""Probability that all intervals of a family cover the true values simultaneously."""

LEAST_KNOWN = 0.95
"""Share of the replicates that must have a value for there to be an interval."""

LEAST_HEADS = 3
"""Least number of heads of a correlation: that of two heads is always 1 or −1."""

GROUPS = 10
"""Largest number of groups of a jackknife that leaves out one group at a time."""

_RESOLUTION = 1e-12
"""Relative spread of values below which it is attributed to rounding."""


@dataclass(frozen=True)
class Resampling:
    """How often each sequence and each cluster of heads is drawn; replicate 0 draws each once."""

    sequences: F64
    """(S, R + 1)."""
    clusters: F64
    """(G, R + 1)."""

    @property
    def replicates(self) -> int:
        """R, the number of replicates without the data."""
        return int(self.sequences.shape[1]) - 1

    @property
    def units(self) -> int:
        """The smaller of the numbers of sequences and clusters, which limits the precision of an interval's width."""
        return min(len(self.sequences), len(self.clusters))

    def count_head_draws(self, clusters: ArrayLike) -> F64:
        """How often each head is drawn, (H, R + 1), from the index of its cluster, (H,)."""
        return self.clusters[np.asarray(clusters, np.int64)]

    def means(self, values: ArrayLike) -> F64:
        """Weighted means over sequences of those that are not NaN: (S, …) → (…, R + 1); NaN where none is drawn."""
        return weighted_means(values, self.sequences)


def resample(sequences: int, clusters: int, replicates: int = REPLICATES, *, seed: int = 0) -> Resampling:
    """Draw sequences and clusters of heads, each as many as there are, with replacement.

    Parameters
    ----------
    sequences, clusters
        Numbers of sequences and clusters, at least 1.
    replicates
        Number of draws in addition to the data.
    seed
        The draws depend only on the seed and the three numbers.

    Raises
    ------
    ValueError
        If one of the numbers is below 1.

    Notes
    -----
    Takes 8 · (sequences + clusters) · (replicates + 1) bytes.
    """
    if min(sequences, clusters, replicates) < 1:
        msg = f"sequences, clusters and replicates must be at least 1, got {sequences}, {clusters} and {replicates}"
        raise ValueError(msg)
    rng = np.random.default_rng([seed, sequences, clusters, replicates])
    return Resampling(*(_draw_units(rng, count, replicates) for count in (sequences, clusters)))


def _draw_units(rng: np.random.Generator, count: int, replicates: int) -> F64:
    """How often each of ``count`` units is drawn, (count, replicates + 1), the first column ones."""
    drawn = np.ones((count, replicates + 1))
    for replicate in range(1, replicates + 1):
        drawn[:, replicate] = np.bincount(rng.integers(count, size=count), minlength=count)
    return drawn


def weighted_means(values: ArrayLike, weights: F64) -> F64:
    """Means over the first axis, without NaN: (S, …) and (S, R) → (…, R); NaN where the weights are all 0.

    Does not depend on the number of threads. Differences to the first known value are averaged, so that a value that is
    the same in all of S is also exactly that in every replicate.

    Raises
    ------
    ValueError
        If the numbers of weights and values differ.

    Notes
    -----
    Takes at most ``estimate_means_bytes`` in addition to its arguments.
    """
    given = np.asarray(values, np.float64)
    if len(given) != len(weights):
        msg = f"{len(given)} values along the first axis need as many weights, got {len(weights)}"
        raise ValueError(msg)
    flat = given.reshape(len(given), -1)
    known = ~np.isnan(flat)
    reference = flat[known.argmax(axis=0), np.arange(flat.shape[1])]
    with one_blas_thread:
        means = np.where(known, flat - reference, 0.0).T @ weights
        total = weights.sum(axis=0) if known.all() else known.T.astype(np.float64) @ weights
    with np.errstate(invalid="ignore"):  # 0/0 where nothing is drawn
        means /= total
    means += reference[:, None]
    return means.reshape(*given.shape[1:], weights.shape[1])


def estimate_means_bytes(sequences: int, size: int, replicates: int) -> int:
    """Upper bound of the memory of ``weighted_means`` of ``size`` quantities without its arguments, in bytes."""
    return 8 * size * (2 * (replicates + 1) + 4 * sequences + 4) + 2**20


def mean_over_heads(values: F64, weights: F64) -> F64:
    """Weighted means over heads, without NaN: (…, H, R) and (H, R) → (…, R); NaN where none is drawn."""
    known = ~np.isnan(values)
    total = np.where(known, weights, 0.0).sum(axis=-2)
    with np.errstate(invalid="ignore"):  # 0/0 where nothing is drawn
        means: F64 = np.where(known, values * weights, 0.0).sum(axis=-2) / total
    return means


def median_over_heads(values: F64, weights: F64) -> F64:
    """Weighted medians over heads, without NaN: (H, R) twice → (R,); NaN where none is drawn.

    With equal weights this is the usual median: the mean of the two middle values of an even number.
    """
    order = np.argsort(values, axis=0, kind="stable")  # NaN last
    ordered = np.take_along_axis(values, order, axis=0)
    drawn = np.where(np.isnan(ordered), 0.0, np.take_along_axis(weights, order, axis=0))
    reached = np.cumsum(drawn, axis=0)
    half = reached[-1] / 2
    below, above = ((reached >= half).argmax(axis=0), (reached > half).argmax(axis=0))
    ends = [np.take_along_axis(ordered, index[None], axis=0)[0] for index in (below, above)]
    return np.where(half > 0, (ends[0] + ends[1]) / 2, np.nan)


def correlation_over_heads(x: F64, y: F64, weights: F64) -> F64:
    """Weighted Pearson correlations over the heads that have both: (…, H, R), (H, R), (H, R) → (…, R).

    NaN where fewer than ``LEAST_HEADS`` heads are drawn, or x or y is the same in all of them.
    """
    known = ~(np.isnan(x) | np.isnan(y))
    drawn = np.where(known, weights, 0.0)
    apart_x, apart_y = (_centre_values(values, drawn) for values in (x, y))
    spread_x, spread_y, both = (
        (drawn * first * second).sum(axis=-2)
        for first, second in ((apart_x, apart_x), (apart_y, apart_y), (apart_x, apart_y))
    )
    enough = (drawn > 0).sum(axis=-2) >= LEAST_HEADS
    scale = np.sqrt(spread_x) * np.sqrt(spread_y)
    correlated = enough & (scale > 0)
    return np.where(correlated, np.clip(both / np.where(correlated, scale, 1.0), -1, 1), np.nan)


def _centre_values(values: F64, weights: F64) -> F64:
    """Differences to the weighted mean over heads; 0 where all values are equal up to rounding."""
    total = np.maximum(weights.sum(axis=-2, keepdims=True), 1.0)
    filled = np.where(weights > 0, values, 0.0)
    apart = np.where(weights > 0, filled - (weights * filled).sum(axis=-2, keepdims=True) / total, 0.0)
    size = np.abs(filled).max(axis=-2, keepdims=True)
    return np.where(np.abs(apart).max(axis=-2, keepdims=True) > _RESOLUTION * size, apart, 0.0)


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval; NaN if missing."""

    value: float
    low: float
    high: float


NOTHING = Interval(math.nan, math.nan, math.nan)
"""A missing estimate."""


def percentile_interval(
    replicates: ArrayLike,
    *,
    units: int,
    family: int = 1,
    level: float = LEVEL,
    domain: tuple[float, float] = (-math.inf, math.inf),
) -> Interval:
    """The interval of a statistic from its replicates, simultaneous with the others of a family.

    The percentile interval at ``level``, with each half-width multiplied by t/z · √(units/(units − 1)): Student's t
    with units − 1 degrees of freedom at level 1 − (1 − level)/family over the normal quantile at ``level``. If the
    percentiles at that level are further out, as is possible for a statistic with few values, they are the ends.

    Parameters
    ----------
    replicates
        The statistic of the data, then of each replicate, (R + 1,); NaN for a replicate without a value.
    units
        Number of independent units that were drawn; the smaller number for two kinds (``Resampling.units``).
    family
        Number of simultaneous intervals (Bonferroni).
    level
        Probability that all of them cover the true values.
    domain
        Range of the statistic, to which the ends of the interval are clipped.

    Returns
    -------
    Interval
        Ends are NaN for a single unit, if the data have no value, and if fewer than ``LEAST_KNOWN`` of the replicates
        have one.

    Raises
    ------
    ValueError
        If ``level`` is not between 0 and 1, or ``family`` is below 1.
    """
    found = np.asarray(replicates, np.float64)
    value, drawn = float(found[0]), found[1:]
    known = drawn[~np.isnan(drawn)]
    if math.isnan(value) or known.size < LEAST_KNOWN * drawn.size or not known.size:
        _adjust_level(level, family)
        return Interval(value, math.nan, math.nan)
    data = np.concatenate([[value], known])
    low, high = percentile_ends(data, units=units, family=family, level=level, domain=domain)
    return Interval(value, float(low), float(high))


def percentile_ends(
    replicates: F64,
    *,
    units: int,
    family: int = 1,
    level: float = LEVEL,
    domain: tuple[float, float] = (-math.inf, math.inf),
) -> tuple[F64, F64]:
    """The ends of ``percentile_interval`` for many statistics, without missing replicates.

    Parameters
    ----------
    replicates
        The statistics of the data, then of each replicate, along the last axis, (…, R + 1), without NaN.
    units, family, level, domain
        As for ``percentile_interval``.

    Returns
    -------
    low, high
        (…); NaN for a single unit.

    Raises
    ------
    ValueError
        For the reasons given in ``percentile_interval``.
    """
    each = _adjust_level(level, family)
    value, drawn = replicates[..., 0], replicates[..., 1:]
    if units < 2:
        return np.full(value.shape, np.nan), np.full(value.shape, np.nan)
    tails = [(1 - level) / 2, (1 + level) / 2, (1 - each) / 2, (1 + each) / 2]
    low, high, far_low, far_high = quantiles_of_replicates(drawn, tails)
    factor = _student_quantile(units - 1, each) / stats.norm.ppf((1 + level) / 2) * math.sqrt(units / (units - 1))
    below = np.minimum.reduce([value - factor * (value - low), far_low, value])
    above = np.maximum.reduce([value + factor * (high - value), far_high, value])
    return np.clip(below, *domain), np.clip(above, *domain)


def jackknife_interval(
    value: float,
    *left_out: ArrayLike,
    family: int = 1,
    level: float = LEVEL,
    domain: tuple[float, float] = (-math.inf, math.inf),
) -> Interval:
    """The interval of a statistic from its values with one group left out at a time: value ± t · standard error.

    Parameters
    ----------
    value
        The statistic of all data.
    left_out
        For each kind of groups, such as groups of sequences and groups of heads, the statistic with each group left
        out, (groups,). The variances of the kinds are added.
    family, level, domain
        As for ``percentile_interval``.

    Returns
    -------
    Interval
        Ends are NaN if a kind has a single group, or a value is NaN.

    Raises
    ------
    ValueError
        For the reasons given in ``percentile_interval``.
    """
    each, kinds = _adjust_level(level, family), [np.asarray(values, np.float64) for values in left_out]
    fewest = min(len(values) for values in kinds)
    if fewest < 2 or math.isnan(value):
        return Interval(value, math.nan, math.nan)
    error = math.sqrt(sum(((len(values) - 1) * values.var()) for values in kinds))
    reach = _student_quantile(fewest - 1, each) * error
    return Interval(value, *(float(np.clip(end, *domain)) for end in (value - reach, value + reach)))


def assign_groups(units: int, groups: int = GROUPS) -> I64:
    """Group of each unit, (units,): one group per unit, but at most ``groups``, of sizes that differ by at most 1."""
    return np.arange(units, dtype=np.int64) % min(units, groups)


def linearise(value: F64, left_out: F64, weights: F64) -> F64:
    """First-order replicates of a statistic from its values with one group left out at a time.

    Parameters
    ----------
    value
        The statistic of all data, (…).
    left_out
        The statistic without each group, (groups, …).
    weights
        How often each group is drawn, (groups, R + 1), as ``Resampling.sequences`` for that number of groups.

    Returns
    -------
    ndarray
        (…, R + 1). Exact for a mean of groups of equal size.
    """
    influence = (len(left_out) - 1) / len(left_out) * (value - left_out)
    with one_blas_thread:
        moved = influence.reshape(len(left_out), -1).T @ (weights - 1)
    replicates: F64 = value[..., None] + moved.reshape(*value.shape, weights.shape[1])
    return replicates


def _adjust_level(level: float, family: int) -> float:
    """The level of each interval of a family."""
    if not 0 < level < 1 or family < 1:
        msg = f"level must be between 0 and 1 and family at least 1, got {level} and {family}"
        raise ValueError(msg)
    return 1 - (1 - level) / family


def _student_quantile(degrees: int, level: float) -> float:
    """Quantile of Student's t such that ± the quantile encloses ``level`` of the distribution."""
    return float(stats.t.ppf((1 + level) / 2, degrees))


def compute_log_weights(n: ArrayLike, first: int, last: int) -> F64:
    """Weights of the numbers of a grid, uniform in ln N from ``first`` to ``last``, (grid,); their sum is 1.

    The weight of a number is proportional to the length in ln N of the points that are nearer to it than to its
    neighbours, within ``first`` − 1/2 to ``last`` + 1/2; 0 outside.

    Parameters
    ----------
    n
        Ascending whole numbers, (grid,).
    first, last
        The range, 1 ≤ first ≤ last.

    Raises
    ------
    ValueError
        If ``n`` has no number within the range.
    """
    grid = np.asarray(n, np.float64)
    inside = (grid >= first) & (grid <= last)
    if not inside.any():
        msg = f"n must have a number from {first} to {last}, but all of its {grid.size} numbers are outside"
        raise ValueError(msg)
    chosen = grid[inside]
    edges = np.concatenate([[math.log(first - 0.5)], np.log(chosen[1:] * chosen[:-1]) / 2, [math.log(last + 0.5)]])
    weights = np.zeros(grid.size)
    weights[inside] = np.diff(edges) / (edges[-1] - edges[0])
    return weights
