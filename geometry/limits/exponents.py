"""The power with which one quantity grows with another: a line on two logarithmic axes, fitted to a mean curve."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from geometry.arrays import F64
from geometry.statistics.jackknife import average_known, estimate_jackknife, leave_one_out


@dataclass(frozen=True)
class Exponent:
    """The least-squares line of ln y over ln x; NaN where the points do not determine it."""

    exponent: float
    """b of y = e^a x^b."""
    low: float
    """Lower end of its interval over sequences; NaN for one sequence."""
    high: float
    """Upper end of that interval."""
    level: float
    """e^a, y at x = 1."""
    r2: float
    """Share of the variance of ln y that the line explains; NaN where ln y does not vary."""
    points: int
    """Number of points with x > 0 and y > 0."""


def fit_exponents(x: ArrayLike, y: ArrayLike) -> Exponent:
    """Fit a line to ln ȳ over ln x, ȳ the mean of curves over sequences; the interval is the jackknife's.

    Parameters
    ----------
    x
        (points,); those that are not above 0 are left out.
    y
        The curves of the sequences, (S, points); points whose mean is not above 0 are left out.
    """
    given, curves = np.asarray(x, np.float64), np.asarray(y, np.float64)
    means = np.concatenate([average_known(curves)[None], leave_one_out(curves)])
    used = (given > 0) & (np.nan_to_num(means) > 0).all(axis=0) if len(curves) > 1 else (given > 0) & (means[0] > 0)
    lines = _fit_lines(np.log(given[used]), np.log(means[:, used]))
    estimate = estimate_jackknife(lines[0, 0], lines[1:, 0])
    exponent, intercept, r2 = lines[0].tolist()
    return Exponent(exponent, float(estimate.low), float(estimate.high), float(np.exp(intercept)), r2, int(used.sum()))


def _fit_lines(x: F64, y: F64) -> F64:
    """Slope, intercept and R² of each curve (curves, points), (curves, 3); NaN for fewer than two different x."""
    if x.size < 2 or np.ptp(x) == 0:
        return np.full((len(y), 3), np.nan)
    apart, middle = x - x.mean(), y.mean(axis=1)
    slope = (y - middle[:, None]) @ apart / (apart @ apart)
    total = ((y - middle[:, None]) ** 2).sum(axis=1)
    explained = np.divide(slope**2 * (apart @ apart), total, out=np.full(len(y), np.nan), where=total > 0)
    return np.stack([slope, middle - slope * x.mean(), explained], axis=1)
