"""Decay of the similarity of value states with distance: the fit of Assumption 2, with and without a floor.

Holds the two curves, their least-squares fits and the influence of the data on a fit. What does not belong here: the
cosines (``geometry.assumptions.values``), and means or standard errors over sequences.

Both curves have the form 1 − y = s (1 − e^{−βk}): the exponential with s = 1, the one with floor c with s = 1 − c. For
a given β the best s is known, so either fit is a search over β alone, and all minima are found between the points of a
grid.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from geometry.arrays import F64
from geometry.assumptions.values import autocorrelation


def effective_points(residual: F64, known: NDArray[np.bool_] | None = None) -> float:
    """Effective sample size m/τ of m residuals of a fit at equal steps, (n,), τ their integrated autocorrelation time.

    Between 1 and m; m if all residuals are 0. Those that are not ``known`` (all are by default) may be any finite
    number. τ = 1 + 2 Σ_l r_l with r_l the autocorrelation at lag l, an average over the pairs that are known, times 1 −
    l/n. The sum ends before the first pair r_2k + r_2k+1 that is not positive: beyond it the terms are mostly noise.
    The variance of the residuals' mean is that of m/τ independent ones. Reference: C. J. Geyer, *Practical Markov Chain
    Monte Carlo*, Statistical Science 7, 1992 (initial positive sequence).
    """
    n = residual.size
    there = np.ones(n) if known is None else known.astype(np.float64)
    count = float(there.sum())
    products, pairs = autocorrelation((residual * there)[None]), np.rint(autocorrelation(there[None]))
    if not products[:1].sum() > 0:
        return count
    average = np.divide(products, pairs, out=np.zeros(n), where=pairs > 0)
    correlation = average / average[0] * (1.0 - np.arange(n) / n)
    sums = correlation[: n - n % 2].reshape(-1, 2).sum(axis=1)
    positive = sums[: np.argmax(sums <= 0) if (sums <= 0).any() else sums.size]
    return count / min(max(2.0 * float(positive.sum()) - 1.0, 1.0), count)


RESOLUTION = 1e-9
"""Smallest difference of cosines that float32 value states resolve; it limits rates and residuals as well."""

SLACK = 1e-6  # Means of cosines may exceed 1 by this much: they may have been stored as float32
LEAST_DISTANCES = 3  # Least number of distances of a fit: one more than the larger form has parameters
STEPS = 4  # Points of the grid per factor e in β, over which the shape of a curve changes noticeably
LARGEST_DROP = 2.0  # The s of a floor of −1, the least possible cosine

DecayStatus = Literal["ok", "too_short", "undefined", "constant", "unbounded", "out_of_domain"]
"""Status of a fit.

ok: all its parameters are known. too_short: fewer than three distances have a cosine. undefined: no distance has one.
constant: all cosines are 1, so β = 0 and the floor is not determined. unbounded: the curve is at its floor (0 for the
exponential) from the first distance on, so β has no upper end and is NaN. out_of_domain: the best floor is −1 or less,
because the distances end before the curve approaches its floor; the floor and its β are NaN.
"""

DecayForm = Literal["exponential", "floor"]

INFLUENCES = tuple(f"{name}_influence" for name in ("beta", "floor", "beta_floor", "mae", "gain"))


@dataclass(frozen=True, kw_only=True)
class DecayFit:
    """Fits of e^{−βk} and of c + (1 − c) e^{−βk} to mean cosines by distance k.

    A parameter that the data do not determine is NaN; the status gives the reason. ``mae`` and ``bic`` are those of the
    best curve of a form, even if that is the limit of an unbounded β; NaN without a fit.

    An influence contains the derivative of a parameter by every element of the curve, (n,): 0 for elements not fitted,
    NaN where the parameter is NaN or at its end. With the curves of S sequences, the standard error of a parameter is
    the standard deviation (divisor S − 1) of influence · curve_s over s, divided by √S.
    """

    status: DecayStatus
    """Of the exponential."""
    status_floor: DecayStatus
    """Of the form with a floor."""
    distances: int
    """Number of fitted distances, m."""
    effective_points: float = math.nan
    """Effective number of independent distances, m_e ≤ m, from the autocorrelation of the residuals with a floor."""
    beta: float = math.nan
    """β of e^{−βk}, per token, ≥ 0."""
    mae: float = math.nan
    """Mean absolute error of e^{−βk}, in units of cosine."""
    bic: float = math.nan
    """m_e ln(RSS/m) + ln m of e^{−βk}."""
    floor: float = math.nan
    """c, within (−1, 1)."""
    beta_floor: float = math.nan
    """β of the form with a floor, per token."""
    mae_floor: float = math.nan
    """Mean absolute error of the form with a floor."""
    bic_floor: float = math.nan
    """m_e ln(RSS/m) + 2 ln m of the form with a floor."""
    preferred: DecayForm | None = None
    """The form with the smaller BIC; None without a fit."""
    gain: float = math.nan
    """By how much the BIC of e^{−βk} is below those of the form with a floor and of a constant, for each effective
    point; above 0 only if the cosines decay, and to 0."""
    beta_influence: F64
    floor_influence: F64
    beta_floor_influence: F64
    mae_influence: F64
    gain_influence: F64
    """With the effective number of points fixed."""


@dataclass(frozen=True)
class _Curve:
    """The fitted data: distances k, (m,), and 1 − y, (m,)."""

    distance: F64
    drop: F64

    def shape(self, beta: float) -> F64:
        """1 − e^{−βk}; 1 for β = ∞."""
        values: F64 = -np.expm1(-beta * self.distance)
        return values

    def slope(self, beta: float) -> F64:
        """The derivative of ``shape`` by β."""
        values: F64 = self.distance * np.exp(-beta * self.distance)
        return values


@dataclass(frozen=True)
class _Form:
    """A best curve: β (∞ if unbounded), s, the residuals of 1 − y, (m,), and whether s was free."""

    beta: float
    scale: float
    residual: F64
    free: bool

    @property
    def rss(self) -> float:
        """Sum of squares, at least that of the resolution of the data, so that an exact fit has a BIC as well."""
        return max(float(self.residual @ self.residual), self.residual.size * RESOLUTION**2)

    @property
    def mae(self) -> float:
        return float(np.abs(self.residual).mean())

    def bic(self, effective: float) -> float:
        """The BIC if the residuals are worth ``effective`` independent residuals."""
        m = self.residual.size
        return effective * math.log(self.rss / m) + (2 if self.free else 1) * math.log(m)


def fit_decay(cosine: ArrayLike) -> DecayFit:
    """Fit both forms by least squares, with equal weights for all distances k ≥ 1 that have a cosine.

    Parameters
    ----------
    cosine
        Mean cosine by distance, (n,), averaged over sequences; element 0 and NaN are not fitted.

    Returns
    -------
    DecayFit
        β is the global minimum within [0, −ln ``RESOLUTION``]; the cosines do not resolve larger β.

    Raises
    ------
    ValueError
        If ``cosine`` does not have exactly one axis, or a cosine is outside [−1, 1].

    Notes
    -----
    Mean cosines at neighbouring distances have similar errors, because they are of the same tokens: of some hundred
    distances, ten may be independent. The BIC therefore uses the logarithm of the likelihood for the effective number
    of points of the residuals with a floor (``residuals``). The penalty uses ln m: with ln m_e, one in eight
    of the heads drawn without a floor would be assigned one, because a small effective number is estimated imprecisely.

    Influences are the exact derivatives of the minimum (implicit function theorem), with the second derivatives of the
    curve: residuals of a curve that does not fit are not small.

    References
    ----------
    *Geometric Analysis of Token Selection in Multi-Head Attention*, arXiv 2602.01893, Assumption 2, Figure 3.
    """
    given = np.asarray(cosine, np.float64)
    if given.ndim != 1 or (np.abs(given) > 1 + SLACK).any():
        raise ValueError(f"cosine must be cosines by distance, (n,) within [−1, 1], got the shape {given.shape}")
    fitted = np.isfinite(given)
    fitted[:1] = False
    distances = int(fitted.sum())
    if distances < LEAST_DISTANCES:
        status: DecayStatus = "too_short" if distances else "undefined"
        unknown: dict[str, Any] = dict.fromkeys(INFLUENCES, np.full(given.size, np.nan))
        return DecayFit(status=status, status_floor=status, distances=distances, **unknown)
    curve = _Curve(np.flatnonzero(fitted).astype(np.float64), 1.0 - given[fitted])
    plain, floored = _fit_form(curve, free=False), _fit_form(curve, free=True)
    constant = _Form(math.inf, 1.0, curve.drop - curve.drop.mean(), free=False)
    residual = np.zeros(given.size)
    residual[fitted] = floored.residual
    effective = effective_points(residual[1:], fitted[1:])
    bic, bic_floor = plain.bic(effective), floored.bic(effective)
    other = min(floored, constant, key=lambda form: form.bic(effective))
    status, status_floor = _classify_fit(plain), _classify_fit(floored)
    influence = _influence(curve, plain, status, fitted)
    influence_floor = _influence(curve, floored, status_floor, fitted)
    return DecayFit(
        status=status,
        status_floor=status_floor,
        distances=distances,
        effective_points=effective,
        beta=plain.beta if math.isfinite(plain.beta) else math.nan,
        mae=plain.mae,
        bic=bic,
        floor=1.0 - floored.scale if status_floor in {"ok", "unbounded"} else math.nan,
        beta_floor=floored.beta if status_floor == "ok" else math.nan,
        mae_floor=floored.mae,
        bic_floor=bic_floor,
        preferred="floor" if bic_floor < bic and status_floor in {"ok", "unbounded"} else "exponential",
        beta_influence=influence[0],
        floor_influence=-influence_floor[1],
        beta_floor_influence=influence_floor[0],
        mae_influence=_compute_mae_influence(curve, plain, influence[0], fitted),
        gain=(other.bic(effective) - bic) / effective,
        gain_influence=_compute_log_influence(other, fitted) - _compute_log_influence(plain, fitted),
    )


def _classify_fit(form: _Form) -> DecayStatus:
    """Status of a fit to enough distances."""
    if form.beta == 0:
        return "constant"
    if math.isinf(form.beta):
        return "unbounded"
    return "out_of_domain" if form.free and form.scale >= LARGEST_DROP else "ok"


def _fit_form(curve: _Curve, *, free: bool) -> _Form:
    """Find the best curve of a form; β = ∞ unless a finite β has a smaller ``rss``.

    As no cosine exceeds 1, the sum of squares falls from β = 0 on, unless all are 1.
    """
    if (curve.drop <= RESOLUTION).all():
        return _Form(0.0, 1.0, curve.drop, free)
    least, most = math.log(RESOLUTION / curve.distance[-1]), math.log(-math.log(RESOLUTION))
    grid = np.linspace(least, most, math.ceil(STEPS * (most - least)) + 1)
    slopes = np.array([_slope(log_beta, curve, free) for log_beta in grid])
    best = _fit_scale(curve, math.inf, free=free)
    for index in np.flatnonzero((slopes[:-1] < 0) & (slopes[1:] >= 0)):
        root = brentq(_slope, grid[index], grid[index + 1], args=(curve, free), xtol=1e-14)
        form = _fit_scale(curve, math.exp(root), free=free)
        best = form if form.rss < best.rss else best
    return best


def _fit_scale(curve: _Curve, beta: float, *, free: bool) -> _Form:
    """The best curve of a form for a given β."""
    shape = curve.shape(beta)
    scale = min(max(float(shape @ curve.drop / (shape @ shape)), 0.0), LARGEST_DROP) if free else 1.0
    return _Form(beta, scale, curve.drop - scale * shape, free)


def _slope(log_beta: float, curve: _Curve, free: bool) -> float:
    """The derivative of the sum of squares by ln β with the best s, up to a positive factor."""
    beta = math.exp(log_beta)
    form = _fit_scale(curve, beta, free=free)
    return -form.scale * float(form.residual @ curve.slope(beta))


def _compute_mae_influence(curve: _Curve, form: _Form, of_beta: F64, fitted: NDArray[np.bool_]) -> F64:
    """Derivatives of the mean absolute error of e^{−βk} by every cosine, (n,); β moves with the cosines."""
    sides = np.sign(curve.shape(form.beta) - curve.drop)
    influence = np.zeros(fitted.size)
    influence[fitted] = sides
    moved = float(sides @ curve.slope(form.beta)) if math.isfinite(form.beta) else 0.0
    derivative: F64 = (influence + moved * np.nan_to_num(of_beta)) / curve.distance.size
    return derivative


def _compute_log_influence(form: _Form, fitted: NDArray[np.bool_]) -> F64:
    """Derivatives of ln RSS by every cosine, (n,); at a minimum those of the parameters do not count."""
    influence = np.zeros(fitted.size)
    influence[fitted] = -2 * form.residual / form.rss
    return influence


def _influence(curve: _Curve, form: _Form, status: DecayStatus, fitted: NDArray[np.bool_]) -> F64:
    """Derivatives of β and s by every cosine, (2, n)."""
    influence = np.where(fitted, np.nan, 0.0) * np.ones((2, 1))
    if status == "unbounded" and form.free:
        influence[1, fitted] = -1.0 / curve.distance.size  # s is the mean of 1 − y
    if status == "ok":
        shape, slope = curve.shape(form.beta), curve.slope(form.beta)
        jacobian = np.stack([form.scale * slope, shape])[: 2 if form.free else 1]
        bend = np.array([[-form.scale * (curve.distance * slope), slope], [slope, np.zeros_like(slope)]])
        hessian = jacobian @ jacobian.T - (bend @ form.residual)[: len(jacobian), : len(jacobian)]
        influence[: len(jacobian), fitted] = -np.linalg.solve(hessian, jacobian)
    influence[np.isnan(influence).any(axis=1)] = np.nan
    return influence
