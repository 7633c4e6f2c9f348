"""Means of quantities over sequences, added in blocks, with what their errors need."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from geometry.arrays import F64, I64
from geometry.statistics.intervals import UNBOUNDED, Domain, Estimate, make_estimate


class Moments:
    """Mean and spread over sequences of an array of quantities, element by element, without NaN.

    A quantity that is the same in all sequences has exactly that mean and no spread. Blocks are joined by the formula
    of Chan, Golub & LeVeque (1979), so that digits that all sequences share do not reduce the precision.

    Memory: 24 bytes for each element of the quantities of one sequence, and while a block is added 86 more and 12 for
    each element of the block.
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

    counts: I64 | int = 0
    """Number of sequences that have the quantity."""
    total: F64 | float = 0.0
    """Its sum over them."""

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
