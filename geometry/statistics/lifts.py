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
    parts = [_compare_one(*pair) for pair in zip(_list_elements(shares), _list_elements(chance), strict=True)]
    value, error, low, high, p = np.array(parts).reshape(-1, 5).T.reshape(5, *shares.shape[1:])
    known, adjusted = ~np.isnan(p), np.full(p.shape, np.nan)
    adjusted[known] = correct_holm(p[known].tolist())
    return Lift(Estimate(value, error, low, high), p, adjusted)


def _list_elements(values: F64) -> F64:
    """The numbers of the sequences by element, (element, S)."""
    return values.reshape(len(values), -1).T


def _compare_one(shares: F64, chance: F64) -> tuple[float, ...]:
    """Ratio, error, ends of the interval and p value of one element, from the sequences that have it."""
    known = ~(np.isnan(shares) | np.isnan(chance))
    given, expected = shares[known], chance[known]
    if not expected.any():
        return (np.nan,) * 5
    whole = np.asarray(given.mean() / expected.mean())
    others = leave_one_out(expected)
    without = np.divide(leave_one_out(given), others, out=np.full(len(given), np.nan), where=others > 0)
    estimate = estimate_jackknife(whole, without, POSITIVE)
    p = np.nan
    if len(given) >= LEAST_SEQUENCES:
        p = compare_with_threshold(given - expected, 0.0, above=True).p
    return *(float(part) for part in (estimate.value, estimate.error, estimate.low, estimate.high)), p
