"""Estimates with their errors and intervals over sequences: Student's t.

The model is fixed and its texts are the sample: every head is measured, so that only sequences are random. A mean over
sequences has the interval mean ± t·sd/√S with S − 1 degrees of freedom. Any other statistic of the sequences, such as
a correlation of means or a fit to a mean curve, is computed again without each sequence
(the jackknife), with the same t. ``docs/statistics.md`` has the measured coverage.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geometry.arrays import F64, I64

LEVEL = 0.95  # Probability with which an interval covers the value that infinitely many sequences would give
Domain = tuple[float, float]  # Smallest and largest possible value of a statistic, to which intervals are clipped

UNBOUNDED: Domain = (-math.inf, math.inf)
SHARE: Domain = (0.0, 1.0)
DIFFERENCE: Domain = (-1.0, 1.0)
POSITIVE: Domain = (0.0, math.inf)

RESOLUTION = 1e-12  # Relative size below which a spread is attributed to rounding and counts as 0


@dataclass(frozen=True)
class Estimate:
    """Statistics of the sequences; float64 arrays of one shape."""

    value: F64
    error: F64  # Standard error over sequences; NaN for one sequence
    low: F64  # Lower end of the interval; NaN for one sequence
    high: F64  # Upper end of the interval

    def name_ends(self, name: str) -> dict[str, F64]:
        """The statistics and the ends of their intervals as columns: ``NAME``, ``NAME_low`` and ``NAME_high``."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


def make_estimate(
    value: ArrayLike, error: ArrayLike, sequences: int | NDArray[np.integer] | F64, domain: Domain = UNBOUNDED
) -> Estimate:
    """The interval value ± t · error of each statistic, clipped to its domain.

    t has one degree of freedom less than there are ``sequences`` behind a statistic, which need not be whole where two
    samples are compared.
    """
    middle, errors = np.asarray(value, np.float64), np.asarray(error, np.float64)
    reach = student_quantile(sequences) * errors
    low, high = np.maximum(middle - reach, domain[0]), np.minimum(middle + reach, domain[1])
    return Estimate(middle, errors, np.minimum(low, middle), np.maximum(high, middle))


def student_quantile(sequences: int | NDArray[np.integer] | F64, level: float = LEVEL) -> F64:
    """The t such that ± t encloses ``level`` of Student's distribution; NaN for fewer than two sequences."""
    from scipy import special  # imported here because it is slow to import

    degrees = np.asarray(sequences, np.float64) - 1
    return np.where(degrees > 0, special.stdtrit(np.maximum(degrees, 1), (1 + level) / 2), np.nan)


class Moments:
    """Mean and spread over sequences of an array of quantities, element by element, without NaN.

    A quantity that is the same in all sequences has exactly that mean and no spread. Blocks are joined by the formula
    of Chan, Golub & LeVeque (1979), so that digits that all sequences share do not reduce the precision. Memory: 24
    bytes for each element of the quantities of one sequence, and while a block is added 86 more and 12 for each element
    of the block.
    """

    def __init__(self) -> None:
        self.counts: I64 = np.zeros((), np.int64)
        """Number of sequences that have the quantity."""
        self._mean: F64 = np.zeros(())
        self._squares: F64 = np.zeros(())

    def add(self, block: ArrayLike) -> None:
        """Add the next sequences: floats (sequences, …), NaN where there is no quantity."""
        values = np.asarray(block)
        if not len(values):
            return
        known = ~np.isnan(values)
        counts: I64 | int = len(values) if (is_whole := bool(known.all())) else known.sum(axis=0)
        first = values[0] if is_whole else np.take_along_axis(values, known.argmax(axis=0)[None], axis=0)[0]
        apart = np.subtract(values, first, dtype=np.float64)
        if not is_whole:
            apart[~known] = 0
        middle = apart.sum(axis=0) / np.maximum(counts, 1)
        apart -= middle
        if not is_whole:
            apart[~known] = 0
        self.merge(counts, np.where(counts > 0, first, 0.0) + middle, np.einsum("s...,s...->...", apart, apart))

    def merge(self, counts: I64 | int, mean: F64, squares: F64) -> None:
        """Add sequences by their number, mean, and sum of squared differences to it, each (…)."""
        if not self.counts.any():
            self.counts, self._mean, self._squares = np.asarray(counts, np.int64), mean, squares
            return
        total = self.counts + counts
        apart = mean - self._mean
        share = counts / np.maximum(total, 1)
        self._squares = self._squares + squares + np.square(apart) * (self.counts * share)
        self._mean = self._mean + apart * share
        self.counts = total

    @property
    def mean(self) -> F64:
        """The mean; NaN where no sequence has the quantity."""
        return self._mean if self.counts.all() else np.where(self.counts > 0, self._mean, np.nan)

    def estimate(self, domain: Domain = UNBOUNDED) -> Estimate:
        """The mean with its error and interval over sequences."""
        error = np.sqrt(self._squares / np.where(self.counts > 1, self.counts * (self.counts - 1.0), np.nan))
        return make_estimate(self.mean, error, self.counts, domain)


@dataclass
class Mean:
    """Mean over sequences of an array of quantities alone, element by element, without NaN."""

    counts: I64 | int = 0  # Number of sequences that have the quantity
    total: F64 | float = 0.0  # Its sum over them

    def add(self, block: ArrayLike) -> None:
        """Add the next sequences: floats (sequences, …), NaN where there is no quantity."""
        values = np.asarray(block)
        counts, total = len(values), values.sum(axis=0, dtype=np.float64)
        if np.isnan(total).any():
            known = ~np.isnan(values)
            counts, total = known.sum(axis=0), values.sum(axis=0, dtype=np.float64, where=known)
        self.merge(Mean(counts, total))

    def merge(self, other: "Mean") -> None:
        """Add the sequences of another mean."""
        self.counts, self.total = self.counts + other.counts, self.total + other.total

    @property
    def value(self) -> F64:
        """The mean; NaN where no sequence has the quantity."""
        with np.errstate(invalid="ignore"):  # 0/0
            return np.divide(self.total, self.counts)


def average(values: ArrayLike) -> Mean:
    """The mean over sequences, (S, …) → (…), of those that are not NaN, which others can be merged with."""
    mean = Mean()
    mean.add(values)
    return mean


def estimate_mean(values: ArrayLike, domain: Domain = UNBOUNDED) -> Estimate:
    """The mean over sequences, (S, …) → (…), of those that are not NaN."""
    moments = Moments()
    moments.add(values)
    return moments.estimate(domain)


def estimate_jackknife(whole: ArrayLike, left_out: ArrayLike, domain: Domain = UNBOUNDED) -> Estimate:
    """The statistic of all sequences, (…), with its error from the values without each sequence, (S, …).

    There is no interval where one of these is NaN. Reference: Efron & Tibshirani, *An Introduction to the Bootstrap*,
    chapter 11.
    """
    without = np.asarray(left_out, np.float64)
    spread = estimate_mean(compute_pseudo_values(whole, without))
    error = np.where(np.isnan(without).any(axis=0), np.nan, spread.error)
    return make_estimate(whole, error, len(without), domain)


def estimate_correlation(whole: ArrayLike, left_out: ArrayLike) -> Estimate:
    """A correlation of all sequences, with the jackknife's interval in Fisher's z; its error is that to first order."""
    z = estimate_jackknife(transform_fisher(whole), transform_fisher(left_out))
    value = np.tanh(z.value)
    return Estimate(value, z.error * (1 - value**2), np.tanh(z.low), np.tanh(z.high))


def compute_pseudo_values(whole: ArrayLike, left_out: ArrayLike) -> F64:
    """Jackknife pseudo-values S·θ − (S − 1)·θ₍ₛ₎, (S, …): for a mean, the numbers that were averaged; NaN for one
    sequence.
    """
    without = np.asarray(left_out, np.float64)
    count = len(without)
    if count < 2:
        return np.full(without.shape, np.nan)
    return np.asarray(whole, np.float64) - (count - 1) * (without - np.asarray(whole, np.float64))


def average_known(parts: ArrayLike) -> F64:
    """Means over the first axis of what is not NaN, (S, …) → (…); NaN where nothing is."""
    return average(parts).value


def leave_one_out(parts: ArrayLike) -> F64:
    """Means without each sequence, (S, …) → (S, …), of those that are not NaN; NaN where none is left."""
    given = np.asarray(parts, np.float64)
    known = ~np.isnan(given)
    counts = known.sum(axis=0, dtype=np.float64) - known
    filled = np.where(known, given, 0.0)
    means: F64 = (filled.sum(axis=0) - filled) / np.where(counts > 0, counts, np.nan)
    return means


def transform_fisher(correlations: ArrayLike) -> F64:
    """Fisher's z = artanh r, finite for r = ±1: up to 1 − 10⁻¹²."""
    return np.arctanh(np.clip(np.asarray(correlations, np.float64), -1 + RESOLUTION, 1 - RESOLUTION))


def estimate_difference(
    values: ArrayLike, reference: ArrayLike, *, paired: bool, domain: Domain = UNBOUNDED
) -> Estimate:
    """The mean of quantities of each sequence, (S, …), minus that of a reference, (R, …), of what is not NaN.

    If paired, both have the same sequences in the same order, and differences are averaged. If not, the interval is
    Welch's: independent samples of different spread, degrees of freedom after Satterthwaite (1946).
    """
    if paired:
        return estimate_mean(np.asarray(values, np.float64) - np.asarray(reference, np.float64), domain)
    one, other = estimate_mean(values), estimate_mean(reference)
    ones, others = ((~np.isnan(np.asarray(part, np.float64))).sum(axis=0) for part in (values, reference))
    spread = one.error**2 + other.error**2
    with np.errstate(invalid="ignore", divide="ignore"):
        degrees = spread**2 / (one.error**4 / (ones - 1) + other.error**4 / (others - 1))
    degrees = np.where(spread == 0, ones + others - 2, degrees)
    return make_estimate(one.value - other.value, np.sqrt(spread), degrees + 1, domain)
