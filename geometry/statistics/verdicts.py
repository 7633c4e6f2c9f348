"""Tests of estimates against thresholds, for all claims of a study together.

A claim is supported, or not, if its p value against its threshold is at most 5 % after Holm's correction for all claims
that could be tested; otherwise it is undecided. Reference: Holm, *A simple sequentially rejective multiple test
procedure*, Scandinavian Journal of Statistics 6 (1979).
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from geometry.arrays import F64
from geometry.statistics.intervals import POSITIVE, Estimate, estimate_jackknife, leave_one_out

ERROR_RATE = 0.05
"""Probability that any verdict of a study is wrong, if every measure equals its threshold: the largest p value, after
correction, of a verdict, of a fact and of a difference to the twin."""

POWER = 0.8  # Probability of a verdict with the number of sequences that is said to be needed
LEAST_SEQUENCES = 4  # Sequences that a claim needs

MOST_SEQUENCES = 100_000
"""Largest number of sequences that is said to be needed; beyond it, an estimate practically equals its threshold."""


@dataclass(frozen=True)
class Sides:
    """One-sided p values of a measure against its threshold."""

    supports: float  # Of such support, or more, where the measure is on the other side of the threshold or equal to it
    opposes: float  # Of such opposition, or more, where the measure is on the supporting side or equal to the threshold

    @property
    def p(self) -> float:
        """The two-sided p value."""
        return min(1.0, 2 * min(self.supports, self.opposes))

    @property
    def side(self) -> str:
        """The verdict if p is small enough."""
        return "supported" if self.supports < self.opposes else "not supported"


def compare_with_threshold(
    of_sequences: ArrayLike, threshold: float, *, above: bool, value: float | None = None
) -> Sides:
    """Test a mean over sequences against a threshold, by Student's t.

    ``of_sequences``: the numbers whose mean is tested, or the jackknife's pseudo-values of the statistic ``value``,
    (S,), NaN left out; ``above``: whether values above the threshold support the claim. Numbers that are the same in
    all sequences decide with certainty, unless they equal the threshold.
    """
    from scipy import special  # imported here because it is slow to import

    known = _select_known(of_sequences)
    if len(known) < 2:
        return Sides(1.0, 1.0)
    middle = float(known.mean()) if value is None else value
    distance = (middle - threshold) * (1 if above else -1)
    error = float(known.std(ddof=1)) / math.sqrt(len(known))
    if error <= 1e-12 * max(abs(middle), abs(threshold)):
        return Sides(float(distance <= 0), float(distance >= 0)) if distance else Sides(1.0, 1.0)
    t, degrees = distance / error, len(known) - 1
    return Sides(float(special.stdtr(degrees, -t)), float(special.stdtr(degrees, t)))


def join_parts(parts: Sequence[Sides]) -> Sides:
    """The test of a conjunction: supported if all parts are, not supported if one of them is not."""
    return Sides(max(part.supports for part in parts), min(1.0, len(parts) * min(part.opposes for part in parts)))


def join_alternatives(parts: Sequence[Sides]) -> Sides:
    """The test of a statement that holds if one of its parts does, such as one for some κ."""
    return Sides(min(1.0, len(parts) * min(part.supports for part in parts)), max(part.opposes for part in parts))


def correct_holm(p: Iterable[float]) -> list[float]:
    """Holm's adjusted p values, in the given order."""
    given = np.array(list(p), np.float64)
    order, adjusted = np.argsort(given), np.empty(given.size)
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, np.arange(given.size, 0, -1) * given[order]))
    return adjusted.tolist()


def count_sequences_needed(
    of_sequences: ArrayLike, threshold: float, level: float, *, value: float | None = None
) -> int | None:
    """The number of sequences that would give a one-sided p value of ``level`` with ``POWER``, if estimate and spread
    stayed.

    ``level`` is ``ERROR_RATE`` over twice the number of verdicts that are open: what Holm's correction asks of one of
    them once the others are decided. Where the p value of these sequences is larger, it is more than there are. None if
    more than ``MOST_SEQUENCES`` would be needed, or the spread is unknown.
    """
    known = _select_known(of_sequences)
    spread = float(known.std(ddof=1)) if len(known) > 1 else math.nan
    middle = value if value is not None else float(known.mean()) if len(known) else math.nan
    distance = abs(middle - threshold)
    if not distance > 0 or not spread >= 0:
        return None
    ratio = distance / spread if spread else math.inf
    numbers = range(LEAST_SEQUENCES, MOST_SEQUENCES + 1)
    place = bisect_left(numbers, POWER, key=lambda sequences: _compute_power(ratio, sequences, level))
    return numbers[place] if place < len(numbers) else None


def _compute_power(ratio: float, sequences: int, level: float) -> float:
    """Probability of a verdict on the right side, for a distance of ``ratio`` standard deviations over sequences."""
    from scipy import special  # imported here because it is slow to import

    degrees, centre = sequences - 1, ratio * math.sqrt(sequences)
    reach = float(special.stdtrit(degrees, 1 - level))
    short = float(special.nctdtr(degrees, centre, reach))
    return 1.0 if math.isnan(short) else 1 - short  # not computable if far beyond the reach


def _select_known(values: ArrayLike) -> F64:
    """The values that are not NaN."""
    given = np.asarray(values, np.float64)
    known: F64 = given[~np.isnan(given)]
    return known


@dataclass(frozen=True)
class Lift:
    """Means of shares over those of their chance; float64 arrays of one shape."""

    ratio: Estimate  # Mean share over mean chance, with the jackknife's interval; NaN where the mean chance is 0
    p: F64
    """Two-sided p value of a mean difference of 0, which is a ratio of 1, by Student's t; NaN for fewer than
    ``LEAST_SEQUENCES`` sequences."""
    p_holm: F64  # The same after Holm's correction for all elements


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
