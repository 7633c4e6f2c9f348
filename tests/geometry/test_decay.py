"""The fit of cosines by distance against a search over all rates and floors, and what residuals are worth."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import geometry.assumptions.decay
from geometry.assumptions.assumed import AssumedHead, draw_values
from geometry.assumptions.decay import RESOLUTION, DecayFit, effective_points, fit_decay
from tests.geometry.comparison import cosine_by_distance
from tests.geometry.draws import correlated_noise

N = 96


def decay(distance: np.ndarray | int, beta: float, floor: float = 0.0) -> Any:
    """c + (1 - c) exp(-beta k) (Assumption 2, with a floor c)."""
    return floor + (1.0 - floor) * np.exp(-beta * distance)


def curve(beta: float, floor: float = 0.0, noise: float = 0.0, *, n: int = N, seed: int = 0) -> np.ndarray:
    """Cosines by distance that fall as planted, NaN at n − 1, where there is no pair."""
    y = decay(np.arange(n), beta, floor) + noise * np.random.default_rng(seed).standard_normal(n)
    y[0], y[-1] = 1.0, np.nan
    return np.clip(y, -1, 1)


def squares(y: np.ndarray, beta: float, floor: float) -> float:
    """The sum of squares that a fit makes small, one distance after the other."""
    return sum((y[k] - decay(k, beta, floor)) ** 2 for k in range(1, len(y)) if y[k] == y[k])


def searched(y: np.ndarray, *, free: bool) -> float:
    """The least sum of squares over a fine grid of rates, with the best floor for each by linear least squares."""
    k = np.flatnonzero(np.isfinite(y))[1:]
    rates = np.geomspace(1e-3, 20, 12_000)
    falls = np.exp(-rates[:, None] * k)
    fitted = 1 - falls
    scale = (fitted * (1 - y[k])).sum(1) / (fitted**2).sum(1) if free else np.ones(len(rates))
    rss = ((1 - y[k] - np.clip(scale, 0, 2)[:, None] * fitted) ** 2).sum(1)
    return float(rss.min())


CURVES = {
    "slow": curve(0.01, noise=0.02),
    "fast": curve(1.5, noise=0.01),
    "floor": curve(0.6, 0.2, 0.03),
    "negative floor": curve(0.05, -0.2, 0.02),
    "two rates": 0.5 * (curve(2.0) + curve(0.02)),
    "wave": curve(0.05) * np.cos(0.2 * np.arange(N)),
    "gaps": np.where(np.arange(N) % 5 == 2, np.nan, curve(0.1, 0.1, 0.02)),
    "four": curve(0.4, noise=0.01, n=5),
}


@pytest.mark.parametrize("name", CURVES)
def test_no_rate_and_no_floor_does_better(name: str) -> None:
    y = CURVES[name]
    fit = fit_decay(y)
    assert fit.status == "ok"
    assert fit.distances == np.isfinite(y).sum() - 1
    assert squares(y, fit.beta, 0) <= searched(y, free=False) * (1 + 1e-12)
    assert squares(y, fit.beta, 0) == pytest.approx(searched(y, free=False), rel=1e-2)
    assert fit.status_floor == "ok"
    assert squares(y, fit.beta_floor, fit.floor) <= searched(y, free=True) * (1 + 1e-12)
    assert squares(y, fit.beta_floor, fit.floor) == pytest.approx(searched(y, free=True), rel=1e-2)


def test_a_search_that_misses_does_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation control: a slope of the sum of squares that forgets what is fitted."""
    monkeypatch.setattr(geometry.assumptions.decay, "_slope", lambda log_beta, _curve, _free: log_beta + 1.0)
    for y in (CURVES["slow"], CURVES["floor"]):
        fit = fit_decay(y)
        assert squares(y, fit.beta, 0) > searched(y, free=False) * 1.01
        assert squares(y, fit.beta_floor, fit.floor) > searched(y, free=True) * 1.01


@pytest.mark.parametrize("name", CURVES)
def test_errors_and_bic_follow_from_the_parameters(name: str) -> None:
    y, fit = CURVES[name], fit_decay(CURVES[name])
    k = np.flatnonzero(np.isfinite(y))[1:]
    m, series = len(k), np.zeros(len(y) - 1)
    series[k - 1] = y[k] - decay(k, fit.beta_floor, fit.floor)
    assert fit.effective_points == pytest.approx(effective_points(series, np.isfinite(y[1:])), rel=1e-6)
    for beta, floor, mae, bic, p in (
        (fit.beta, 0.0, fit.mae, fit.bic, 1),
        (fit.beta_floor, fit.floor, fit.mae_floor, fit.bic_floor, 2),
    ):
        assert mae == pytest.approx(np.abs(y[k] - decay(k, beta, floor)).mean(), rel=1e-9)
        likelihood = fit.effective_points * math.log(squares(y, beta, floor) / m)
        assert bic == pytest.approx(likelihood + p * math.log(m), rel=1e-9)
    assert fit.preferred == ("floor" if fit.bic_floor < fit.bic else "exponential")
    constant = fit.effective_points * math.log(y[k].var()) + math.log(m)
    assert fit.gain == pytest.approx((min(fit.bic_floor, constant) - fit.bic) / fit.effective_points, rel=1e-9)


@pytest.mark.parametrize(("beta", "floor"), [(1e-4, 0.0), (6.0, 0.0), (0.03, 0.25), (0.7, -0.1)])
def test_what_was_planted_is_found(beta: float, floor: float) -> None:
    fit = fit_decay(curve(beta, floor))
    assert (fit.beta_floor, fit.floor) == pytest.approx((beta, floor), rel=1e-6, abs=1e-8)
    assert fit.mae_floor < 1e-12
    assert fit.preferred == ("floor" if floor else "exponential")
    assert (fit.beta == pytest.approx(beta, rel=1e-9)) == (floor == 0)
    assert math.isfinite(fit.bic_floor)


def fit_drawn(floor: float, heads: int = 16, sequences: int = 8) -> tuple[list[DecayFit], int]:
    """Fits of mean cosines over sequences, and how many prefer a floor; n = 512, d = 64, β from 0.02 to 0.3.

    Heads are drawn from Assumption 2. Cosines with the sink are held at √floor exactly, which gives those of the others
    the floor.
    """
    rng, fits = np.random.default_rng([0, int(100 * floor)]), []
    weights = {"p_sink": 0.4, "eta": 0.3, "eta_growth": 0.02, "omega": 0.3, "t_1": 50, "t_2": 350}
    for beta in np.linspace(0.02, 0.3, heads):
        assumed = AssumedHead(lambda_sink=0.2, beta=beta, rho_0=math.sqrt(floor), **weights)
        values = np.array([draw_values(assumed, 512, 64, rng) for _ in range(sequences)])
        fits.append(fit_decay(cosine_by_distance(values).mean(axis=0)))
    return fits, sum(fit.preferred == "floor" for fit in fits)


def test_a_floor_is_found_where_there_is_one_and_nowhere_else() -> None:
    (without, none), (found, some) = fit_drawn(0.0), fit_drawn(0.1)
    assert none <= 2
    assert some >= 14
    assert all(fit.floor == pytest.approx(0.1, abs=0.05) for fit in found)
    assert max(fit.effective_points for fit in without) < 511 / 4


def test_residuals_taken_as_independent_show_a_floor_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation control of the test above."""
    monkeypatch.setattr(geometry.assumptions.decay, "effective_points", lambda _, known: float(known.sum()))
    assert fit_drawn(0.0)[1] > 4


PARAMETERS = ("beta", "beta_floor", "floor", "mae", "gain")


@pytest.mark.one_case
@pytest.mark.parametrize("name", ["two rates", "floor", "gaps", "four"])
def test_influence_is_the_derivative(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From fits of moved curves."""
    monkeypatch.setattr(geometry.assumptions.decay, "effective_points", lambda *_: 10.0)
    y = np.where(np.arange(len(CURVES[name])) < 25, CURVES[name], np.nan)
    y[0] = 0.99  # not fitted, whatever it is
    fit, wanted = fit_decay(y), np.zeros((len(PARAMETERS), len(y)))
    for k in np.flatnonzero(np.isfinite(y)):
        up, down = (fit_decay(np.where(np.arange(len(y)) == k, y + step, y)) for step in (1e-6, -1e-6))
        wanted[:, k] = [(getattr(up, of) - getattr(down, of)) / 2e-6 for of in PARAMETERS]
    for parameter, expected in zip(PARAMETERS, wanted, strict=True):
        influence = getattr(fit, f"{parameter}_influence")
        np.testing.assert_allclose(influence, expected, atol=1e-5 * np.abs(expected).max())
        assert influence[0] == 0
        assert (influence[np.isnan(y)] == 0).all()
        assert np.abs(expected).max() > 1e-3


def unknown(fit: DecayFit, *names: str) -> bool:
    """Whether these parameters are NaN, each with its influence."""
    return all(math.isnan(getattr(fit, n)) and np.isnan(getattr(fit, f"{n}_influence")).all() for n in names)


FALL = 1 - np.arange(N) / (N / 1.5)


@pytest.mark.parametrize(
    ("level", "statuses", "preferred", "missing"),
    [
        (0.3, ("ok", "unbounded"), "floor", ("beta_floor",)),  # at its floor from the first distance on
        (0.0, ("unbounded", "unbounded"), "exponential", ("beta", "beta_floor")),
        (-0.1, ("unbounded", "unbounded"), "floor", ("beta", "beta_floor")),
        (RESOLUTION / 10, ("unbounded", "unbounded"), "exponential", ("beta", "beta_floor")),
        (1.0, ("constant", "constant"), "exponential", ("beta_floor", "floor")),
        (FALL, ("ok", "out_of_domain"), "exponential", ("beta_floor", "floor")),  # a floor beyond the last distance
    ],
)
def test_what_a_curve_leaves_open_is_not_given(
    level: float | np.ndarray, statuses: tuple[str, str], preferred: str, missing: tuple[str, ...]
) -> None:
    y = np.where(np.arange(N) == 0, 1.0, level)
    fit = fit_decay(y)
    assert (fit.status, fit.status_floor, fit.preferred) == (*statuses, preferred)
    assert unknown(fit, *missing)
    assert np.isfinite([fit.bic, fit.bic_floor]).all()
    if isinstance(level, float):
        if "floor" not in missing:
            assert fit.floor == pytest.approx(level)
            np.testing.assert_allclose(fit.floor_influence[1:], 1 / (N - 1))
        assert fit.mae_floor < 1e-9
        assert fit.mae == pytest.approx(abs(level) if "beta" in missing else 0.0) or level == 0.3


@pytest.mark.parametrize(
    ("y", "status", "distances"),
    [
        (np.full(8, np.nan), "undefined", 0),
        (np.array([1.0, np.nan]), "undefined", 0),
        (np.empty(0), "undefined", 0),
        (np.array([1.0, 0.5, 0.2, np.nan]), "too_short", 2),
    ],
)
def test_a_curve_of_too_few_cosines_is_a_row_with_its_status(y: np.ndarray, status: str, distances: int) -> None:
    fit = fit_decay(y)
    assert (fit.status, fit.status_floor, fit.distances, fit.preferred) == (status, status, distances, None)
    assert unknown(fit, "beta", "beta_floor", "floor")
    assert all(math.isnan(x) for x in (fit.mae, fit.bic, fit.mae_floor, fit.bic_floor, fit.effective_points))


class TestEffectivePoints:
    """The effective sample size against sums over pairs, and against noise whose autocorrelation time is known."""

    @staticmethod
    def literal(residual: np.ndarray, known: np.ndarray, *, geyer: bool = True) -> float:
        """m/τ pair by pair, over the lags before the first two neighbours whose sum is not positive."""
        n, m = len(residual), int(known.sum())

        def covariance(lag: int) -> float:
            pairs = [(i, i + lag) for i in range(n - lag) if known[i] and known[i + lag]]
            mean = sum(residual[i] * residual[j] for i, j in pairs) / len(pairs) if pairs else 0.0
            return mean * (1 - lag / n)

        tau = 1.0
        r = [covariance(lag) / covariance(0) for lag in range(n)]
        for k in range(0, n - 1, 2):
            if geyer and r[k] + r[k + 1] <= 0:
                break
            tau += 2 * (r[k] + r[k + 1]) - 2 * (k == 0)
        return m / min(max(tau, 1.0), m)

    @pytest.mark.parametrize("n", [3, 8, 61, 200])
    @pytest.mark.parametrize("time", [0.0, 2.0, 30.0])
    @pytest.mark.parametrize("mask", [lambda n, _: np.ones(n, bool), lambda n, rng: rng.random(n) < 0.7])
    def test_they_are_the_sum_over_pairs(self, n: int, time: float, mask: Callable[..., np.ndarray]) -> None:
        rng = np.random.default_rng(n)
        residual, known = correlated_noise(n, time, rng), mask(n, rng)
        found = effective_points(residual, known)
        assert found == pytest.approx(self.literal(residual, known), rel=1e-9)
        assert effective_points(1e-12 * residual, known) == pytest.approx(found)
        assert effective_points(np.where(known, residual, 1e6), known) == found  # what is unknown may be any number
        assert effective_points(residual) == effective_points(residual, np.ones(n, bool))

    def test_all_lags_would_be_another_number(self) -> None:
        """Mutation control: the sum of all correlations is noise."""
        residual, known = correlated_noise(200, 5.0, np.random.default_rng(0)), np.ones(200, bool)
        assert self.literal(residual, known, geyer=False) != pytest.approx(effective_points(residual), rel=0.2)

    def test_at_the_ends(self) -> None:
        """All 0; all equal, which counts as little more than one; opposite neighbours are no more than they are."""
        ends = {9.0: np.zeros(9), 1.0: np.ones(50), 50.0: (-1.0) ** np.arange(50)}
        for points, residual in ends.items():
            assert effective_points(residual) == pytest.approx(points, rel=0.05)
        assert effective_points(np.ones(5), np.zeros(5, bool)) == 0.0
