"""Running means and deviations of arrays that are added one by one."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geometry.arrays import F64


class Mean:
    """A running mean of arrays of the same shape, element by element, without NaN."""

    def __init__(self) -> None:
        self._total: Any = 0.0
        self._known: Any = 0

    def add(self, part: F64) -> None:
        """Add one array."""
        self._total = self._total + np.nan_to_num(part)
        self._known = self._known + ~np.isnan(part)

    def value(self) -> F64:
        """The mean; NaN where all elements were NaN."""
        return _divide(self._total, self._known)

    def mean_over_heads(self) -> F64:
        """The mean also over the first axis, which is kept with length 1."""
        return _divide(self._total.sum(axis=0, keepdims=True), self._known.sum(axis=0, keepdims=True))


class Spread:
    """A running mean and standard deviation of arrays of the same shape, element by element, without NaN.

    Computed by Welford's recurrence, which is accurate even if the deviation is much smaller than the mean.
    """

    def __init__(self) -> None:
        self._mean: Any = 0.0
        self._squares: Any = 0.0
        self._known: Any = 0

    def add(self, part: F64) -> None:
        """Add one array."""
        known = ~np.isnan(part)
        self._known = self._known + known
        before = np.where(known, part - self._mean, 0)
        self._mean = self._mean + before / np.maximum(self._known, 1)
        self._squares = self._squares + before * np.where(known, part - self._mean, 0)

    def value(self) -> F64:
        """The mean; NaN where all elements were NaN."""
        return np.where(self._known > 0, self._mean, np.nan)

    def deviation(self) -> F64:
        """The standard deviation (divisor: number of elements that were not NaN); NaN where all elements were NaN."""
        return np.sqrt(_divide(self._squares, self._known))

    def standard_error(self) -> F64:
        """The standard error of the mean; NaN where fewer than two elements were not NaN."""
        return np.sqrt(_divide(self._squares, self._known * np.maximum(self._known - 1, 0)))


def average_arrays(parts: Iterable[F64]) -> F64:
    """Mean of arrays of the same shape, element by element, without NaN."""
    mean = Mean()
    for part in parts:
        mean.add(part)
    return mean.value()


def standard_error(values: F64) -> F64:
    """Standard error of a mean over the first axis, (sequence, …) → (…); NaN for one sequence."""
    if values.shape[0] < 2:
        return np.full(values.shape[1:], np.nan)
    deviation: F64 = values.std(axis=0, ddof=1) / np.sqrt(values.shape[0])
    return deviation


def variation(values: F64) -> F64:
    """Coefficient of variation along the last axis (divisor: number of values); NaN for fewer than two, or all 0."""
    mean = values.mean(axis=-1)
    varied = (mean > 0) & (values.shape[-1] > 1)
    found: F64 = np.divide(values.std(axis=-1), mean, out=np.full(mean.shape, np.nan), where=varied)
    return found


def _divide(total: F64, known: NDArray[np.integer]) -> F64:
    ratio: F64 = np.divide(total, known, out=np.full(total.shape, np.nan), where=known > 0)
    return ratio
