"""Errors of statistics that are no means of per-sequence numbers: computed again without each sequence.

Reference: Efron & Tibshirani, *An Introduction to the Bootstrap*, chapter 11.
"""

import numpy as np
from numpy.typing import ArrayLike

from geometry.arrays import F64
from geometry.statistics.intervals import RESOLUTION, UNBOUNDED, Domain, Estimate, make_estimate
from geometry.statistics.moments import estimate_mean


def estimate_jackknife(whole: ArrayLike, left_out: ArrayLike, domain: Domain = UNBOUNDED) -> Estimate:
    """The statistic of all sequences, with its error from the values without each sequence.

    Parameters
    ----------
    whole
        The statistic of all sequences, (…).
    left_out
        The statistic without each sequence, (S, …); there is no interval where one is NaN.
    domain
        Smallest and largest possible value.
    """
    without = np.asarray(left_out, np.float64)
    spread = estimate_mean(compute_pseudo_values(whole, without))
    error = np.where(np.isnan(without).any(axis=0), np.nan, spread.error)
    return make_estimate(whole, error, len(without), domain)


def estimate_correlation(whole: ArrayLike, left_out: ArrayLike) -> Estimate:
    """A correlation of all sequences, with the jackknife's interval in Fisher's z; arguments as for the jackknife.

    The error is that of the correlation, to first order.
    """
    z = estimate_jackknife(transform_fisher(whole), transform_fisher(left_out))
    value = np.tanh(z.value)
    return Estimate(value, z.error * (1 - value**2), np.tanh(z.low), np.tanh(z.high))


def compute_pseudo_values(whole: ArrayLike, left_out: ArrayLike) -> F64:
    """Jackknife pseudo-values S·θ − (S − 1)·θ₍ₛ₎, (S, …): for a mean, the numbers that were averaged.

    NaN for one sequence.
    """
    without = np.asarray(left_out, np.float64)
    count = len(without)
    if count < 2:
        return np.full(without.shape, np.nan)
    return np.asarray(whole, np.float64) - (count - 1) * (without - np.asarray(whole, np.float64))


def average_known(parts: ArrayLike) -> F64:
    """Means over the first axis of what is not NaN, (S, …) → (…); NaN where nothing is, without a warning."""
    given = np.asarray(parts, np.float64)
    counts = (~np.isnan(given)).sum(axis=0)
    total = np.nansum(given, axis=0)
    means: F64 = np.divide(total, counts, out=np.full(total.shape, np.nan), where=counts > 0)
    return means


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
