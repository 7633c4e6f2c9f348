"""Differences between two samples of sequences, and where in an ordered list of them a quantity exceeds a threshold."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from geometry.arrays import F64
from geometry.statistics.intervals import UNBOUNDED, Domain, Estimate, make_estimate
from geometry.statistics.moments import estimate_mean


def estimate_difference(
    values: ArrayLike, reference: ArrayLike, *, paired: bool, domain: Domain = UNBOUNDED
) -> Estimate:
    """The mean of some quantities minus that of a reference, with its error and interval over sequences.

    Parameters
    ----------
    values, reference
        Quantities of each sequence, (S, …) and (R, …); NaN where a sequence has none.
    paired
        Whether the sequences are the same in the same order, so that S = R and the differences are averaged. If not,
        the interval is Welch's: independent samples of different spread, degrees of freedom after Satterthwaite (1946).
    domain
        Smallest and largest possible difference.
    """
    if paired:
        return estimate_mean(np.asarray(values, np.float64) - np.asarray(reference, np.float64), domain)
    (one, ones), (other, others) = _summarise(values), _summarise(reference)
    spread = one.error**2 + other.error**2
    with np.errstate(invalid="ignore", divide="ignore"):
        degrees = spread**2 / (one.error**4 / (ones - 1) + other.error**4 / (others - 1))
    degrees = np.where(spread == 0, ones + others - 2, degrees)
    return make_estimate(one.value - other.value, np.sqrt(spread), degrees + 1, domain)


def _summarise(values: ArrayLike) -> tuple[Estimate, F64]:
    """Mean and error of some quantities over sequences, and the number of sequences behind each."""
    known = np.asarray(values, np.float64)
    return estimate_mean(known), (~np.isnan(known)).sum(axis=0).astype(np.float64)


State = Literal["appears", "always", "never", "undecided"]


@dataclass(frozen=True)
class Onset:
    """From which member of an ordered list on a quantity exceeds a threshold."""

    state: State
    """``appears``; ``always`` if in all members; ``never`` if not in the last one; ``undecided`` if an interval that
    decides it holds the threshold, or does not exist."""
    first: int | None = None
    """The first member from which on every estimate exceeds the threshold; None unless it appears."""
    last_below: int | None = None
    """The last member before that whose whole interval lies at or below the threshold."""
    first_above: int | None = None
    """The first member from ``first`` on whose whole interval lies above the threshold."""


def find_onset(value: ArrayLike, low: ArrayLike, high: ArrayLike, threshold: float) -> Onset:
    """Find from which member on a quantity exceeds a threshold: the first from which on every estimate does.

    It is told only with the members between which it lies, whose whole intervals are below and above; no step is
    interpolated.

    Parameters
    ----------
    value, low, high
        The quantity of each member with its interval, (members,) in order; NaN for members that lack it, which are
        passed over.
    threshold
        What it has to exceed.
    """
    values, lows, highs = (np.asarray(part, np.float64) for part in (value, low, high))
    known = np.flatnonzero(~np.isnan(values))
    above = values[known] > threshold
    if not known.size:
        return Onset("undecided")
    if not above[-1]:
        return Onset("never" if highs[known[-1]] <= threshold else "undecided")
    start = known.size - int(np.argmin(above[::-1])) if not above.all() else 0
    surely_above = known[start:][lows[known[start:]] > threshold]
    if not surely_above.size:
        return Onset("undecided")
    if start == 0:
        return Onset("always" if surely_above[0] == known[0] else "undecided")
    surely_below = known[:start][highs[known[:start]] <= threshold]
    if not surely_below.size:
        return Onset("undecided")
    return Onset("appears", int(known[start]), int(surely_below[-1]), int(surely_above[0]))
