"""Power laws: the slope of one quantity against another on logarithmic axes, with standard errors.

Holds the fit of y = e^a x^b, such as a distance against N or against the number of keys.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geometry.arrays import F64

SAME = 1e-10
"""Relative difference below which logarithms of x count as equal, so that they do not determine a slope."""

PowerStatus = Literal["ok", "too_few", "one_x"]
"""Status of a fit. ok: fitted. too_few: fewer than two points. one_x: all points have the same x."""


@dataclass(frozen=True)
class PowerLaw:
    """The least-squares line of ln y over ln x. Numbers that the points do not determine are NaN."""

    status: PowerStatus
    slope: float
    """b of y = e^a x^b."""
    slope_se: float
    intercept: float
    """a, the logarithm of y at x = 1."""
    intercept_se: float
    r2: float
    """Share of the variance of ln y that the line explains; NaN where ln y does not vary."""
    points: int
    """Number of fitted points."""
    left_out: int
    """Number of points left out because x or y is 0, negative or not finite, or the cluster is −1."""
    clusters: int
    """Number of clusters of the fitted points; 0 if points are independent."""

    @property
    def degrees_of_freedom(self) -> int:
        """Degrees of freedom of Student's t for intervals: points minus 2, or clusters minus 1."""
        return self.clusters - 1 if self.clusters else self.points - 2


def fit_log_log(x: ArrayLike, y: ArrayLike, cluster: ArrayLike | None = None) -> PowerLaw:
    """Fit a line to ln y over ln x by least squares, with equal weights for all points.

    Parameters
    ----------
    x, y
        Numbers of one shape, or of shapes that broadcast.
    cluster
        Whole number of the cluster of every point, such as its sequence or its KV group, of the same shape or one that
        broadcasts; −1 leaves a point out. Points of one cluster may depend on each other in any way. By default points
        are independent.

    Returns
    -------
    PowerLaw
        Standard errors without clusters are those of ordinary least squares, for errors of ln y of equal variance.
        With clusters they are those of the jackknife over clusters: (G − 1)/G times the sum of squares of the changes
        when one of G clusters is left out. NaN for two points, for fewer than two clusters, and if leaving out one
        cluster leaves no slope.

    Raises
    ------
    ValueError
        If shapes do not broadcast, or clusters are not whole numbers of at least −1.

    References
    ----------
    J. G. MacKinnon, M. Ø. Nielsen, M. D. Webb, *Cluster-robust inference: A guide to empirical practice*, Journal of
    Econometrics 232, 2023: the jackknife (CV3) keeps its level with few clusters, unlike the usual sandwich.
    """
    xs, ys, labels = _broadcast_points(x, y, cluster)
    known = (xs > 0) & (xs < np.inf) & (ys > 0) & (ys < np.inf) & (labels >= 0)
    log_x, log_y = np.log(xs[known]), np.log(ys[known])
    count, left_out = log_x.size, int(xs.size - known.sum())
    groups = np.unique(labels[known], return_inverse=True)[1]
    clusters = 0 if cluster is None or not count else int(groups.max()) + 1
    if count < 2 or np.ptp(log_x) <= SAME * np.abs(log_x).max():
        return _make_empty_fit("too_few" if count < 2 else "one_x", count, left_out, clusters)
    centre = log_x.mean()
    u = log_x - centre
    line = _fit_line(_sum_groups(u, log_y, np.zeros(count, np.intp))[:, 0])
    residual = log_y - line[0] - line[1] * u
    rss, total = float(residual @ residual), float(((log_y - log_y.mean()) ** 2).sum())
    covariance = _jackknife_covariance(u, log_y, groups, line) if clusters else _estimate_covariance(u, rss)
    at_one = np.array([1.0, -centre])  # the intercept from the level at the centre
    return PowerLaw(
        status="ok",
        slope=float(line[1]),
        slope_se=math.sqrt(covariance[1, 1]),
        intercept=float(at_one @ line),
        intercept_se=math.sqrt(at_one @ covariance @ at_one),
        r2=1.0 - rss / total if total > 0 else math.nan,
        points=count,
        left_out=left_out,
        clusters=clusters,
    )


def _broadcast_points(x: ArrayLike, y: ArrayLike, cluster: ArrayLike | None) -> tuple[F64, F64, NDArray[np.int64]]:
    """Broadcast and flatten x, y and cluster, (points,) each; a ValueError if they are invalid."""
    labels = np.zeros((), np.int64) if cluster is None else np.asarray(cluster)
    if not np.issubdtype(labels.dtype, np.integer) or (labels < -1).any():
        msg = f"cluster must be whole numbers of at least −1, got {labels.dtype} {labels.shape}"
        raise ValueError(msg)
    try:
        xs, ys, groups = np.broadcast_arrays(np.asarray(x, np.float64), np.asarray(y, np.float64), labels)
    except ValueError:
        msg = f"x, y and cluster must broadcast, got {np.shape(x)}, {np.shape(y)} and {labels.shape}"
        raise ValueError(msg) from None
    return xs.ravel(), ys.ravel(), groups.ravel().astype(np.int64)


def _make_empty_fit(status: PowerStatus, points: int, left_out: int, clusters: int) -> PowerLaw:
    """Make the result of points without a line."""
    return PowerLaw(status, math.nan, math.nan, math.nan, math.nan, math.nan, points, left_out, clusters)


def _sum_groups(u: F64, v: F64, groups: NDArray[np.intp]) -> F64:
    """Sums of 1, u, u², v and u v over each group, (5, groups)."""
    return np.array([np.bincount(groups, terms) for terms in (np.ones_like(u), u, u * u, v, u * v)])


def _fit_line(sums: F64) -> F64:
    """Level and slope of the least-squares line from ``_sum_groups``, (5, …) → (2, …); NaN where all u are equal."""
    count, u, u_squares, v, u_v = sums
    spread = count * u_squares - u * u
    there = (count > 1) & (spread > SAME**2 * count * u_squares)
    slope = np.divide(count * u_v - u * v, spread, out=np.full_like(spread, np.nan), where=there)
    with np.errstate(divide="ignore", invalid="ignore"):
        level = (v - slope * u) / count
    return np.stack([level, slope])


def _estimate_covariance(u: F64, rss: float) -> F64:
    """Covariance of level and slope for independent errors of one variance, (2, 2); NaN for two points."""
    freedom = u.size - 2
    variance = rss / freedom if freedom else math.nan
    return np.diag([variance / u.size, variance / float(u @ u)])


def _jackknife_covariance(u: F64, v: F64, groups: NDArray[np.intp], line: F64) -> F64:
    """Covariance of level and slope from leaving out one cluster at a time, (2, 2); NaN if it is not determined."""
    sums = _sum_groups(u, v, groups)
    clusters = sums.shape[1]
    if clusters < 2:
        return np.full((2, 2), np.nan)
    moved = _fit_line(sums.sum(axis=1, keepdims=True) - sums) - line[:, None]
    covariance: F64 = (clusters - 1) / clusters * moved @ moved.T
    return covariance
