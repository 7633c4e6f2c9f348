"""How many times chance a share is, with its error over sequences and its test."""

from dataclasses import dataclass

import numpy as np

from geometry.arrays import F64
from geometry.statistics.intervals import POSITIVE, Estimate
from geometry.statistics.jackknife import estimate_jackknife, leave_one_out
from geometry.statistics.verdicts import LEAST_SEQUENCES, compare_with_threshold, correct_holm


@dataclass(frozen=True)
class Lift:
    """Means of shares over those of their chance; float64 arrays of one shape."""

    ratio: Estimate
    """Mean share over mean chance, with the jackknife's interval; NaN where the mean chance is 0."""
    p: F64
    """Two-sided p value of a mean difference of 0, which is a ratio of 1, by Student's t; NaN for fewer than
    ``LEAST_SEQUENCES`` sequences."""
    p_holm: F64
    """The same after Holm's correction for all elements."""


def compare_with_chance(shares: F64, chance: F64) -> Lift:
    """Compare shares with their chance in the same sequences, both (S, …), NaN in sequences that have neither.

    A sequence that one element lacks is left out of that element only.
    """
    given, expected = (parts.reshape(len(parts), -1) for parts in (shares, chance))
    known, columns = ~(np.isnan(given) | np.isnan(expected)), np.full((5, given.shape[1]), np.nan)
    for sequences in np.unique(known, axis=1).T:
        alike = (known == sequences[:, None]).all(axis=0)
        alike[alike] = expected[sequences][:, alike].any(axis=0)
        if alike.any():
            columns[:, alike] = _compare_complete(given[sequences][:, alike], expected[sequences][:, alike])
    value, error, low, high, p = columns.reshape(5, *shares.shape[1:])
    tested, adjusted = ~np.isnan(p), np.full(p.shape, np.nan)
    adjusted[tested] = correct_holm(p[tested].tolist())
    return Lift(Estimate(value, error, low, high), p, adjusted)


def _compare_complete(shares: F64, chance: F64) -> F64:
    """Ratio, error, ends of the interval and p value of elements that all sequences have, (S, element) → (5, element).

    No element has chance 0 in all sequences.
    """
    others = leave_one_out(chance)
    without = np.divide(leave_one_out(shares), others, out=np.full(shares.shape, np.nan), where=others > 0)
    ratio = estimate_jackknife(shares.mean(axis=0) / chance.mean(axis=0), without, POSITIVE)
    p = np.full(shares.shape[1], np.nan)
    if len(shares) >= LEAST_SEQUENCES:
        p[:] = [compare_with_threshold(apart, 0.0, above=True).p for apart in (shares - chance).T]
    return np.stack([ratio.value, ratio.error, ratio.low, ratio.high, p])
