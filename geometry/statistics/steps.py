"""Steps: where along an ordered axis, such as depth, a mean changes most, and by how much in sequences not used to say.

The place of a step is chosen from the data, so its height in the same data is too large. Each sequence is therefore
measured at the place that the others choose.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from geometry.arrays import F64
from geometry.statistics.jackknife import leave_one_out


@dataclass(frozen=True)
class Step:
    """A step of the profiles of some sequences."""

    place: int
    """Index of the first element after the step of the mean profile, from 1 on."""
    agrees: F64
    """Whether a sequence's own profile has its step where the others have theirs, 0 or 1, (S,)."""
    before: F64
    """Mean before the step that the other sequences choose, (S,)."""
    after: F64
    """Mean after it, (S,)."""
    over_slope: F64
    """R² of the step that the others predict minus that of the straight line that they predict, (S,); NaN for a
    profile that is constant."""


def find_step(profile: ArrayLike) -> int:
    """Find the index of the first element after the split with the least squares about the means of both sides.

    Parameters
    ----------
    profile
        Values in order, (L,), L ≥ 2. Of equal splits the first is taken.
    """
    values = np.asarray(profile, np.float64)
    before = np.arange(1, len(values))
    sums, after = np.cumsum(values)[:-1], len(values) - before
    apart = sums / before - (values.sum() - sums) / after
    return int(np.argmax(before * after * np.square(apart))) + 1


def measure_step(profiles: ArrayLike) -> Step:
    """Measure the step of profiles, (S, L) with S ≥ 2 and L ≥ 2, without NaN; each at the place of the others' step."""
    values = np.asarray(profiles, np.float64)
    others = leave_one_out(values)
    places = np.array([find_step(one) for one in others])
    ends = np.array([_average_sides(one, place) for one, place in zip(values, places, strict=True)])
    return Step(
        find_step(values.mean(axis=0)),
        np.array([find_step(one) == place for one, place in zip(values, places, strict=True)], np.float64),
        ends[:, 0],
        ends[:, 1],
        np.array([_compare_with_slope(*both) for both in zip(values, others, places, strict=True)]),
    )


def _average_sides(profile: F64, place: int) -> tuple[float, float]:
    """Means before and after a place."""
    return float(profile[:place].mean()), float(profile[place:].mean())


def _compare_with_slope(profile: F64, others: F64, place: int) -> float:
    """R² of the others' step minus that of their straight line, in one profile."""
    total = float(np.square(profile - profile.mean()).sum())
    if total <= 0:
        return float("nan")
    along = np.arange(len(profile))
    step = np.where(along < place, *_average_sides(others, place))
    line = np.polyval(np.polyfit(along, others, 1), along)
    return float(np.square(profile - line).sum() - np.square(profile - step).sum()) / total
