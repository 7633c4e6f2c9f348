"""Estimates with their errors and intervals over sequences: Student's t.

The model is fixed and its texts are the sample: every head is measured, so that only sequences are random. A mean over
sequences has the interval mean ± t·sd/√S with S − 1 degrees of freedom. Any other statistic of the sequences, such as
a correlation of means or a fit to a mean curve, is computed again without each sequence
(``geometry.statistics.jackknife``), with the same t. ``docs/statistics.md`` has the measured coverage.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geometry.arrays import F64

LEVEL = 0.95
"""Probability with which an interval covers the value that infinitely many sequences would give."""

Domain = tuple[float, float]
"""Smallest and largest possible value of a statistic, to which intervals are clipped."""

UNBOUNDED: Domain = (-math.inf, math.inf)
SHARE: Domain = (0.0, 1.0)
DIFFERENCE: Domain = (-1.0, 1.0)
POSITIVE: Domain = (0.0, math.inf)

RESOLUTION = 1e-12
"""Relative size below which a spread is attributed to rounding and counts as 0."""


@dataclass(frozen=True)
class Estimate:
    """Statistics of the sequences; float64 arrays of one shape."""

    value: F64
    error: F64
    """Standard error over sequences; NaN for one sequence."""
    low: F64
    """Lower end of the interval; NaN for one sequence."""
    high: F64
    """Upper end of the interval."""

    def name_ends(self, name: str) -> dict[str, F64]:
        """The statistics and the ends of their intervals as columns: ``NAME``, ``NAME_low`` and ``NAME_high``."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


def make_estimate(
    value: ArrayLike, error: ArrayLike, sequences: int | NDArray[np.integer] | F64, domain: Domain = UNBOUNDED
) -> Estimate:
    """The interval value ± t · error of each statistic, clipped to its domain.

    Parameters
    ----------
    value, error
        Statistics and their standard errors over sequences, of one shape.
    sequences
        Number of sequences behind each, a number or an array of that shape; t has one degree of freedom less. It need
        not be whole where two samples are compared.
    domain
        Smallest and largest possible value.
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
