"""Attention weight by position: the fit of the four phases of Assumption 3, in four variants.

Holds the curve, its least-squares fits on the log scale, the choice between them and the influence of the data on a
fit. What does not belong here: means and standard errors over sequences.

With T_1, T_2 and ω given, log weight is nearly linear in log p_base, in the amplitude of a cosine and in the rate of
growth, so the sum of squares follows from sums over positions. Those of z cos(ωx) over blocks of positions give, for
every frequency of a fine grid, the best pair of block edges; each local minimum of the sum of squares over ω is a
starting point. From each starting point, two steps alternate until nothing changes: the best T_1 and T_2 of all pairs
for the current η and ω, and the best η, ω, p_base and rate of growth for the current T_1 and T_2 (Newton's method with
exact derivatives).

Letters: z is log weight minus its mean, x a position, u = x − T_2 that of the growth; m is the number of
positions from the first fitted one; an *edge* k stands for the T with k of the m positions up to it.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geometry.arrays import F64
from geometry.assumptions.decay import effective_points
from geometry.assumptions.phase_kernels import LEAST_OSCILLATION, cosine_sums, follow_starts, least_squares_by_frequency

RESOLUTION = 2.0**-24  # Relative rounding error of a float32 weight: residuals of log weight below it count as 0
LEAST_POSITIONS = 8  # Least number of positions with weight of a fit, more than any variant has parameters
FREQUENCIES = 4  # Grid points of ω per position: at the last position the phases of adjacent grid points differ by π/4
BLOCKS = 32  # Number of blocks of positions whose edges are tried as T_1 and T_2 in the first search
STARTS = 8  # Number of local minima of the first search that are used as starting points

PhaseStatus = Literal["ok", "too_short", "no_weight", "undefined"]
"""Status of a fit.

ok: a variant was fitted. too_short: fewer than eight positions in addition to the sink. no_weight: enough positions,
but fewer than eight have a weight above 0. undefined: a weight is NaN or infinite.
"""

PhaseVariant = Literal["plateau", "growth", "tied", "untied"]
"""plateau: p_base alone. growth: T_1 = T_2, no oscillation. tied: all phases with one η as printed or, if T_2 is the
last position, without growth. untied: all phases, one η for the oscillation and one for the growth.
"""
PHASE_VARIANTS: tuple[PhaseVariant, ...] = get_args(PhaseVariant)

PENALTIES: dict[PhaseVariant, int] = {"plateau": 1, "growth": 4, "tied": 9, "untied": 10}
"""p of the BIC: 1 for the level, each η and rate, 2 for T_1 and T_2, 3 for ω; p_sink is taken from the data, not
fitted.

p ln m approximates the logarithm of the information on the parameters, which is of order m for the first, but m² for a
change point and m³ for a frequency (P. M. Djurić, A model selection rule for sinusoids in white Gaussian noise, IEEE
Transactions on Signal Processing 44, 1996). With 1 for each, white noise beyond a planted growth is taken for an
oscillation in half of the heads, because of the large number of candidate T_1, T_2 and ω.
"""

Theta = tuple[float, float, float, float]  # log p_base minus the mean of log weight, η, rate of growth, ω

Edges = tuple[int, int]

DESIGNS: dict[PhaseVariant, F64] = {
    "plateau": np.eye(4)[:, :1],
    "growth": np.eye(4)[:, [0, 2]],
    "tied": np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    "untied": np.eye(4),
}
"""Theta as a linear function of the free parameters, (4, free)."""


@dataclass(frozen=True, kw_only=True)
class PhaseFit:
    """The variant of Assumption 3 with the smallest BIC, and the BIC of all variants.

    Positions are absolute; weights are shares of 1. Parameters that the curve lacks are NaN: ``eta`` and ``omega``
    without an oscillation, ``eta_growth`` without growth (on a plateau, and in the variant tied if T_2 is the last
    position). Without a fit, T_1 and T_2 are None and all other parameters except ``p_sink`` are NaN.
    """

    status: PhaseStatus
    variant: PhaseVariant | None = None
    positions: int = 0
    """Number of fitted positions, m."""
    effective_points: float = math.nan
    """Effective number of independent positions, m_e ≤ m, from the autocorrelation of the closest fit's residuals."""
    zero_positions: int
    """Number of positions except the sink with weight 0 (underflow), which are left out because they have no log."""
    p_sink: float
    """Weight of position 0; NaN if a window hides it."""
    p_base: float = math.nan
    """Level of the plateau: a geometric mean, because log weight is fitted."""
    eta: float = math.nan
    """η of the oscillation, within (−1, 1)."""
    eta_growth: float = math.nan
    """η of the growth, per position; equal to ``eta`` if tied, where there is growth."""
    omega: float = math.nan
    """ω, radians per position, within (0, π], with at least one period in the oscillation."""
    t_1: int | None = None
    """Last position of the plateau; 0 if there is no plateau."""
    t_2: int | None = None
    """Last position before the growth; the last position if there is no growth."""
    bic_plateau: float = math.nan
    bic_growth: float = math.nan
    bic_tied: float = math.nan
    """m_e ln(RSS/m) + p ln m; NaN where the variant has no minimum within its domain."""
    bic_untied: float = math.nan
    r2_log: float = math.nan
    """Share of the variance of log weight that the fit explains; NaN where weights do not vary."""
    mae_log: float = math.nan
    """Mean absolute residual of log weight (natural logarithm)."""
    influence: F64
    """Derivatives of log p_base, η, η of the growth and ω by every log weight with T_1 and T_2 fixed, (4, n).

    0 for positions not fitted. NaN for parameters that are NaN, for ω at π, the end of its domain, and for all four
    where the matrix of second derivatives of the sum of squares is not positive definite. With the weights of S
    sequences and their mean w, the standard error of a parameter is the standard deviation (divisor S − 1) of
    influence · (w_s − w)/w over s, divided by √S.
    """


@dataclass(frozen=True)
class _Search:
    """The fitted data: z and whether a position has weight, (m,), and sums over positions."""

    z: F64  # 0 where there is no weight
    mean: float  # Mean of log weight
    known: F64  # 1 or 0
    position: F64  # x, (m,)
    sums: F64
    """Sums over the positions behind every edge: of 1, u, u², z and u z, (5, m + 1), with u = 1 directly behind it."""
    square: float  # Σ z²
    least_edge: int  # The edge of the smallest T_1: 0 if there is a sink, otherwise 1

    @property
    def count(self) -> float:
        """Number of positions with weight."""
        return float(self.sums[0, 0])

    @cached_property
    def reduced(self) -> F64:
        """The sum of squares with a free rate of growth, as a function of the added oscillation, (3, m + 1).

        With h the oscillation on the log scale, and the best level and rate of growth, for every edge of T_2:
        RSS = base − Σ (2 z − h) h − (slack − Σ h)² / count; base is ∞ where the rate is not determined.
        """
        total, u, u_squares, _, u_z = self.sums
        grows = u_squares > 0
        squares = np.where(grows, u_squares, 1.0)
        count = total[0] - u**2 / squares
        grows &= count > math.sqrt(np.finfo(np.float64).eps) * total[0]
        base = np.where(grows, self.square - u_z**2 / squares, np.inf)
        return np.stack([base, -u * u_z / squares, np.where(grows, count, 1.0)])


class _Fit(NamedTuple):
    """One fitted variant: its edges, its sum of squares and its parameters, 0 for those that it lacks."""

    variant: PhaseVariant
    edges: Edges
    rss: float
    theta: Theta

    def bic(self, count: float, effective: float) -> float:
        """The BIC over ``count`` positions that are worth ``effective`` independent positions.

        The sum of squares is at least that of the resolution of weights, so that an exact fit has a BIC as well.
        """
        rss = max(self.rss, count * RESOLUTION**2)
        return effective * math.log(rss / count) + PENALTIES[self.variant] * math.log(count)


def fit_phases(weight: ArrayLike, *, first: int = 0) -> PhaseFit:
    """Fit every variant to log weight by least squares, and select the one with the smallest BIC.

    Parameters
    ----------
    weight
        Mean attention weight of the last query over sequences, by position, (n,): positions first to first + n − 1.
    first
        The first position that the query may attend to; if above 0, a window hides the sink.

    Returns
    -------
    PhaseFit
        All positions with weight have equal weights in the fit. An oscillation lasts at least one period and eight
        positions. The fit is deterministic.

    Raises
    ------
    ValueError
        If ``weight`` does not have exactly one axis, or a weight or ``first`` is negative.

    Notes
    -----
    Time O(n (first + n)).

    Weights of neighbouring positions have correlated residuals, which would be taken for an oscillation if every
    position counted as independent. The BIC therefore uses the logarithm of the likelihood for the effective number of
    points of the residuals of the closest fit (``geometry.assumptions.decay``); the penalty is that of all
    positions.

    Influences are the exact derivatives of the minimum (implicit function theorem), with the second derivatives of the
    curve: residuals of a curve that does not fit are not small.

    References
    ----------
    *Geometric Analysis of Token Selection in Multi-Head Attention*, arXiv 2602.01893, Assumption 3, Figure 4.
    """
    given = np.asarray(weight, np.float64)
    if given.ndim != 1 or (given < 0).any() or first < 0:
        raise ValueError(
            f"weight must be non-negative weights (n,) and first ≥ 0, got shape {given.shape} and first = {first}"
        )
    sinks = 1 if first == 0 else 0
    content = given[sinks:]
    known = content > 0
    count = int(known.sum())
    if count < LEAST_POSITIONS or not np.isfinite(given).all():
        return _make_empty_fit(given, content, sinks)
    search = _prepare_search(content, known, first + sinks, least_edge=1 - sinks)
    return _describe_fit(search, _fit_variants(search), given, first)


def _describe_fit(search: _Search, fits: dict[PhaseVariant, _Fit], given: F64, first: int) -> PhaseFit:
    """The row of the fit with the smallest BIC."""
    count = search.count
    closest = min(fits.values(), key=lambda fit: fit.rss)
    effective = effective_points(_residual(search, closest), search.known > 0)
    bics = {name: fits[name].bic(count, effective) if name in fits else math.nan for name in PHASE_VARIANTS}
    best = min(fits.values(), key=lambda fit: fit.bic(count, effective))
    residual = _residual(search, best)
    sinks = given.size - search.z.size
    influence = np.zeros((4, given.size))
    influence[:, sinks:] = _influence(search, best, residual)
    present = _find_present(search, best)
    influence[~present | np.isnan(influence).any(axis=1)] = np.nan
    level, eta, rate, omega = np.where(present, best.theta, np.nan)
    before = first + sinks - 1
    varies = search.square > count * RESOLUTION**2
    return PhaseFit(
        status="ok",
        variant=best.variant,
        positions=int(count),
        effective_points=effective,
        zero_positions=search.z.size - int(count),
        p_sink=float(given[0]) if sinks else math.nan,
        p_base=math.exp(search.mean + level),
        eta=float(eta),
        eta_growth=float(rate),
        omega=float(omega),
        t_1=before + best.edges[0],
        t_2=before + best.edges[1],
        bic_plateau=bics["plateau"],
        bic_growth=bics["growth"],
        bic_tied=bics["tied"],
        bic_untied=bics["untied"],
        r2_log=1.0 - float(residual @ residual) / search.square if varies else math.nan,
        mae_log=float(np.abs(residual).sum() / count),
        influence=influence,
    )


def _residual(search: _Search, fit: _Fit) -> F64:
    """Residuals of z, (m,)."""
    left: F64 = search.z - _log_curve(search, fit.edges, fit.theta)
    return left


def _find_present(search: _Search, fit: _Fit) -> NDArray[np.bool_]:
    """Which of theta the curve has, (4,): those of the variant, without the rate if T_2 is the last position."""
    grows = fit.edges[1] < search.z.size
    present: NDArray[np.bool_] = DESIGNS[fit.variant].any(axis=1) & np.array([True, True, grows, True])
    return present


def _make_empty_fit(given: F64, content: F64, sinks: int) -> PhaseFit:
    """Make the row of a head that cannot be fitted."""
    finite = bool(np.isfinite(given).all())
    status: PhaseStatus = "undefined"
    if finite:
        status = "too_short" if content.size < LEAST_POSITIONS else "no_weight"
    return PhaseFit(
        status=status,
        zero_positions=int((content == 0).sum()),
        p_sink=float(given[0]) if finite and sinks and given.size else math.nan,
        influence=np.full((4, given.size), np.nan),
    )


def _prepare_search(content: F64, known: NDArray[np.bool_], start: int, *, least_edge: int) -> _Search:
    """Prepare the search for the phases from the weights of positions from ``start``."""
    mask = known.astype(np.float64)
    z = np.log(content, out=np.zeros_like(content), where=known)
    mean = float(z.sum() / mask.sum())
    z[known] -= mean
    position = np.arange(start, start + z.size, dtype=np.float64)
    return _Search(z, mean, mask, position, _sum_growth(z, mask), float(z @ z), least_edge)


def _sum_growth(z: F64, known: F64) -> F64:
    """Compute ``_Search.sums``: those of u from those of the positions behind the next edge, where u is 1 less."""

    def behind(terms: F64) -> F64:
        sums: F64 = np.append(np.cumsum(terms[::-1])[::-1], 0.0)
        return sums

    count, total = behind(known), behind(z)
    u = behind(count[:-1])
    return np.stack([count, u, behind(2 * u[1:] + count[:-1]), total, behind(total[:-1])])


@dataclass(frozen=True)
class _Grid:
    """Frequencies and block edges of the first search, and their sums over positions."""

    omegas: F64  # Ascending, the last π, (ω,)
    edges: NDArray[np.int64]  # Ascending, (edges,)
    first: NDArray[np.int64]
    """Index of the least ω that has a period between the edges of T_2 and T_1, (edges, edges); none if too short."""
    prefix: F64  # `cosine_sums`, (3, edges, ω)


def _make_grid(search: _Search, growth: _Fit | None) -> _Grid | None:
    """The grid of a head; None if it has too few positions for an oscillation."""
    size = search.z.size
    if size < LEAST_OSCILLATION:
        return None
    points = math.ceil(FREQUENCIES * search.position[-1])
    omegas = np.pi * np.arange(1, points + 1) / points
    blocks = np.linspace(search.least_edge, size, BLOCKS + 1).round().astype(np.int64)
    edges = np.unique(np.append(blocks, growth.edges[1] if growth else size))
    length = edges[:, None] - edges
    first = np.searchsorted(omegas, 2 * math.pi / np.maximum(length, 1))
    first[length < LEAST_OSCILLATION] = points
    prefix = np.empty((3, edges.size, omegas.size))
    cosine_sums(search.z, search.known, search.position[0], edges, prefix)
    return _Grid(omegas, edges, first, prefix)


def _fit_variants(search: _Search) -> dict[PhaseVariant, _Fit]:
    """The best curve of every variant that has one."""
    size = search.z.size
    growth = _fit_growth(search)
    plateau = _Fit("plateau", (size, size), search.square, (0.0, 0.0, 0.0, 0.0))
    grid = _make_grid(search, growth)
    tied = _fit_oscillation(search, "tied", _find_starts(search, "tied", grid))
    # untied contains tied, except without growth: if its own starts miss the minimum, it must not end above tied
    nested = () if tied is None else ((tied.theta[1], tied.theta[3]),)
    untied = _fit_oscillation(search, "untied", chain(_find_starts(search, "untied", grid), nested))
    fits = (plateau, growth, tied, untied)
    return {fit.variant: fit for fit in fits if fit is not None}


def _fit_growth(search: _Search) -> _Fit | None:
    """The best fit of the variant growth over all T_1 = T_2."""
    base, slack, count = search.reduced
    rss = base - slack**2 / count
    rss[: search.least_edge] = np.inf
    edge = int(np.argmin(rss))
    if np.isinf(rss[edge]):
        return None
    level = float(slack[edge] / count[edge])
    _, u, u_squares, _, u_z = search.sums[:, edge]
    return _Fit("growth", (edge, edge), float(rss[edge]), (level, 0.0, float((u_z - level * u) / u_squares), 0.0))


def _fit_oscillation(search: _Search, variant: PhaseVariant, starts: Iterable[tuple[float, float]]) -> _Fit | None:
    """The best curve with an oscillation over all starts, each η and ω."""
    given = search.z, search.known, search.position[0], search.sums, search.square, search.reduced, search.least_edge
    observed, places = (*given, variant == "tied"), np.array([*starts]).reshape(-1, 2)
    rss, *edges, level, eta, rate, omega = follow_starts(observed, places)
    return _Fit(variant, (edges[0], edges[1]), rss, (level, eta, rate, omega)) if rss < math.inf else None


def _find_starts(search: _Search, variant: PhaseVariant, grid: _Grid | None) -> Iterator[tuple[float, float]]:
    """η and ω at the deepest minima over ω of the sum of squares, with a cosine for the oscillation of log weight."""
    if grid is None:
        return
    columns = _make_columns(search, variant)[:, grid.edges]
    rss, amplitudes = least_squares_by_frequency(grid.prefix, grid.first, columns)
    padded = np.full(rss.size + 2, np.inf)
    padded[1:-1] = rss
    dips = np.flatnonzero((rss < np.inf) & (rss <= padded[:-2]) & (rss < padded[2:]))
    dips = dips[np.argsort(rss[dips], kind="stable")[:STARTS]]
    for amplitude, omega in zip(amplitudes[dips].tolist(), grid.omegas[dips].tolist(), strict=True):
        yield _estimate_eta(amplitude), omega


def _make_columns(search: _Search, variant: PhaseVariant) -> F64:
    """The ``columns`` of ``least_squares_by_frequency``, which describe the growth, for every edge, (6, m + 1)."""
    none = np.zeros(search.z.size + 1)
    if variant == "tied":
        _, u, u_squares, _, u_z = search.sums
        return np.stack([none + search.square, u_z, u, u_squares, none, none + search.count])
    base, slack, count = search.reduced
    return np.stack([base - slack**2 / count, none, none, none, slack / count, count])


def _estimate_eta(amplitude: float) -> float:
    """η of the oscillation whose logarithm has a fundamental of this amplitude.

    With η = 2r/(1 + r²), log(1 + η cos θ) = 2r cos θ − r² cos 2θ + … − log(1 + r²).
    """
    r = min(max(amplitude / 2, -0.7), 0.7)
    return 2 * r / (1 + r**2)


def _log_curve(search: _Search, edges: Edges, theta: Theta) -> F64:
    """Log weight minus its mean according to theta, (m,), 0 where there is no weight."""
    level, eta, rate, omega = theta
    low, high = edges
    curve = np.full(search.z.size, level)
    curve[low:high] += np.log1p(eta * np.cos(omega * search.position[low:high]))
    curve[high:] += rate * np.arange(1, curve.size - high + 1)
    return curve * search.known


def _jacobian(search: _Search, edges: Edges, theta: Theta) -> F64:
    """Derivatives of ``_log_curve`` by theta, (4, m); exactly 0 by ω at π, about which the cosine is symmetric."""
    _, eta, _, omega = theta
    low, high = edges
    x = search.position[low:high]
    cosine = np.cos(omega * x)
    rows = np.zeros((4, search.z.size))
    rows[0] = 1.0
    rows[1, low:high] = cosine / (1.0 + eta * cosine)
    rows[2, high:] = np.arange(1, search.z.size - high + 1)
    rows[3, low:high] = -eta * x * (np.sin(omega * x) if omega != math.pi else 0.0) / (1.0 + eta * cosine)
    return rows * search.known


def _influence(search: _Search, fit: _Fit, residual: F64) -> F64:
    """Derivatives of theta by z with fixed edges, (4, m); NaN for parameters that the variant lacks and for ω at π."""
    design = DESIGNS[fit.variant]
    if fit.theta[3] == math.pi:
        design = design[:, :-1]
    rows = design.T @ _jacobian(search, fit.edges, fit.theta)
    hessian = rows @ rows.T - design.T @ _sum_curvature(search, fit, residual) @ design
    if np.linalg.eigvalsh(hessian)[0] <= 0:
        return np.full((4, search.z.size), np.nan)
    influence: F64 = design @ np.linalg.solve(hessian, rows)
    influence[~design.any(axis=1)] = np.nan
    return influence


def _sum_curvature(search: _Search, fit: _Fit, residual: F64) -> F64:
    """Second derivatives of ``_log_curve`` by theta, summed with the residuals as weights, (4, 4)."""
    _, eta, _, omega = fit.theta
    low, high = fit.edges
    x, r = search.position[low:high], residual[low:high]
    cosine, sine = np.cos(omega * x), np.sin(omega * x)
    r = r / (1.0 + eta * cosine) ** 2
    bend = np.zeros((4, 4))
    bend[1, 1] = -(r @ cosine**2)
    bend[1, 3] = bend[3, 1] = -(r @ (x * sine))
    bend[3, 3] = -eta * (r @ (x**2 * (cosine + eta)))
    return bend
