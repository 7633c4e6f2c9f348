"""The fit of cosines by distance against a search over all rates and floors, and against what was planted."""

import math

import numpy as np
import pytest

import geometry.assumptions.decay
from geometry.assumptions.assumed import AssumedHead, draw_values
from geometry.assumptions.decay import RESOLUTION, DecayFit, effective_points, fit_decay
from tests.geometry.comparison import cosine_by_distance

N = 96


def decay(distance: np.ndarray, beta: float, floor: float = 0.0) -> np.ndarray:
    """c + (1 - c) exp(-beta k) (Assumption 2, with a floor c)."""
    return floor + (1.0 - floor) * np.exp(-beta * distance.astype(np.float64))


def curve(beta: float, floor: float = 0.0, noise: float = 0.0, *, n: int = N, seed: int = 0) -> np.ndarray:
    """Cosines by distance that fall as planted, NaN at n − 1, where there is no pair."""
    k = np.arange(n)
    y = floor + (1 - floor) * np.exp(-beta * k) + noise * np.random.default_rng(seed).standard_normal(n)
    y[0], y[-1] = 1.0, np.nan
    return np.clip(y, -1, 1)


def squares(y: np.ndarray, beta: float, floor: float) -> float:
    """The sum of squares that a fit makes small, one distance after the other."""
    return sum((y[k] - (floor + (1 - floor) * math.exp(-beta * k))) ** 2 for k in range(1, len(y)) if y[k] == y[k])


def searched(y: np.ndarray, *, free: bool) -> float:
    """The least sum of squares over a fine grid of rates, with the best floor for each by linear least squares."""
    k = np.flatnonzero(np.isfinite(y))[1:]
    rates = np.geomspace(1e-6, 20, 20_000)
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


def test_an_exponential_gains_only_where_cosines_decay_to_0() -> None:
    """A constant is fitted better by one, and a floor by one."""
    wave = 0.01 * np.cos(np.arange(N))
    assert fit_decay(curve(0.1, noise=0.01)).gain > 0.01
    assert fit_decay(curve(0.5, 0.2, 0.01)).gain < -0.01
    assert fit_decay(np.where(np.arange(N) > 0, 0.3 + wave, 1.0)).gain < -0.01


@pytest.mark.parametrize("beta", [1e-4, 0.03, 0.7, 6.0])
@pytest.mark.parametrize("floor", [0.0, 0.25, -0.1])
def test_what_was_planted_is_found(beta: float, floor: float) -> None:
    fit = fit_decay(curve(beta, floor))
    assert (fit.beta_floor, fit.floor) == pytest.approx((beta, floor), rel=1e-6, abs=1e-8)
    assert fit.mae_floor < 1e-12
    assert fit.preferred == ("floor" if floor else "exponential")
    assert (fit.beta == pytest.approx(beta, rel=1e-9)) == (floor == 0)
    assert math.isfinite(fit.bic_floor)


def test_parameters_keep_within_three_standard_errors_of_what_was_planted() -> None:
    """Over 40 studies of 20 sequences: errors divided by their standard errors have a mean square near 1."""
    scores = []
    for study in range(40):
        curves = np.array([curve(0.2, 0.15, 0.1, seed=1000 * study + s) for s in range(20)])
        mean = curves.mean(axis=0)
        fit = fit_decay(mean)
        moved = np.nan_to_num(curves - mean) @ np.array([fit.beta_floor_influence, fit.floor_influence]).T
        scores.append((np.array([fit.beta_floor, fit.floor]) - (0.2, 0.15)) / (moved.std(axis=0, ddof=1) / np.sqrt(20)))
    assert (np.abs(np.mean(np.square(scores), axis=0) - 1) < 0.5).all()
    assert np.mean(np.abs(scores) < 3) > 0.95


def differences(y: np.ndarray, name: str, step: float = 1e-6) -> np.ndarray:
    """The derivative of a parameter by every element, from fits of moved curves."""
    moved = np.zeros(len(y))
    for k in np.flatnonzero(np.isfinite(y)):
        up, down = y.copy(), y.copy()
        up[k], down[k] = y[k] + step, y[k] - step
        moved[k] = (getattr(fit_decay(up), name) - getattr(fit_decay(down), name)) / (2 * step)
    return moved


def drawn_heads(floor: float, study: int, heads: int = 16, sequences: int = 8) -> list[DecayFit]:
    """Fits of the mean cosine over sequences of heads drawn from Assumption 2, n = 512, d = 64, β from 0.02 to 0.3.

    Cosines with the sink are held at √floor exactly, which gives those of the others the floor.
    """
    rng, fits = np.random.default_rng([study, int(100 * floor)]), []
    weights = {"p_sink": 0.4, "eta": 0.3, "eta_growth": 0.02, "omega": 0.3, "t_1": 50, "t_2": 350}
    for beta in np.linspace(0.02, 0.3, heads):
        assumed = AssumedHead(lambda_sink=0.2, beta=beta, rho_0=math.sqrt(floor), **weights)
        values = np.array([draw_values(assumed, 512, 64, rng) for _ in range(sequences)])
        fits.append(fit_decay(cosine_by_distance(values).mean(axis=0)))
    return fits


def floors(fits: list[DecayFit]) -> int:
    return sum(fit.preferred == "floor" for fit in fits)


@pytest.mark.one_case
@pytest.mark.parametrize("study", range(4))
def test_a_floor_is_found_where_there_is_one_and_nowhere_else(study: int) -> None:
    without, found = drawn_heads(0.0, study), drawn_heads(0.1, study)
    assert floors(without) <= 2
    assert floors(found) >= 14
    assert all(fit.floor == pytest.approx(0.1, abs=0.05) for fit in found)
    assert max(fit.effective_points for fit in without) < 511 / 4


def test_residuals_taken_as_independent_show_a_floor_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation control of the test above."""
    monkeypatch.setattr(geometry.assumptions.decay, "effective_points", lambda _, known: float(known.sum()))
    assert floors(drawn_heads(0.0, 0)) > 4
    assert floors(drawn_heads(0.1, 0)) == 16


@pytest.mark.one_case
@pytest.mark.parametrize("name", ["floor", "two rates", "gaps", "four"])
@pytest.mark.parametrize("parameter", ["beta", "beta_floor", "floor", "mae", "gain"])
def test_influence_is_the_derivative(name: str, parameter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(geometry.assumptions.decay, "effective_points", lambda *_: 10.0)
    y = np.where(np.arange(len(CURVES[name])) < 25, CURVES[name], np.nan)
    y[0] = 0.99  # not fitted, whatever it is
    influence = getattr(fit_decay(y), f"{parameter}_influence")
    wanted = differences(y, parameter)
    np.testing.assert_allclose(influence, wanted, atol=1e-5 * np.abs(wanted).max())
    assert influence[0] == 0
    assert (influence[np.isnan(y)] == 0).all()
    assert np.abs(wanted).max() > 1e-3


def test_first_derivatives_alone_are_no_influence() -> None:
    """Mutation control: J⁺ without the second derivatives of the curve."""
    y = CURVES["two rates"][:25]
    fit, k = fit_decay(y), np.arange(1, 25)
    slope = -k * np.exp(-fit.beta * k)
    assert np.abs(slope / (slope @ slope) - fit.beta_influence[1:]).max() > 0.1 * np.abs(fit.beta_influence).max()


def unknown(fit: DecayFit, *names: str) -> bool:
    """Whether these parameters are NaN, each with its influence."""
    return all(math.isnan(getattr(fit, n)) and np.isnan(getattr(fit, f"{n}_influence")).all() for n in names)


def test_a_curve_at_its_floor_from_the_first_distance_on_leaves_the_rate_open() -> None:
    y = np.where(np.arange(N) == 0, 1.0, 0.3)
    fit = fit_decay(y)
    assert (fit.status, fit.status_floor, fit.preferred) == ("ok", "unbounded", "floor")
    assert fit.floor == pytest.approx(0.3)
    assert unknown(fit, "beta_floor")
    np.testing.assert_allclose(fit.floor_influence[1:], 1 / (N - 1))
    assert fit.mae_floor < 1e-12


@pytest.mark.parametrize("level", [0.0, -0.1, RESOLUTION / 10])
def test_a_curve_that_is_nowhere_positive_has_no_rate(level: float) -> None:
    fit = fit_decay(np.where(np.arange(N) == 0, 1.0, level))
    assert (fit.status, fit.status_floor) == ("unbounded", "unbounded")
    assert unknown(fit, "beta", "beta_floor")
    assert fit.mae == pytest.approx(abs(level))
    assert math.isfinite(fit.bic)
    assert math.isfinite(fit.bic_floor)


def test_cosines_of_1_have_the_rate_0_and_no_floor() -> None:
    fit = fit_decay(np.ones(N))
    assert (fit.status, fit.status_floor, fit.preferred) == ("constant", "constant", "exponential")
    assert (fit.beta, fit.mae) == (0, 0)
    assert np.isnan(fit.beta_influence).any()
    assert unknown(fit, "beta_floor", "floor")
    assert math.isfinite(fit.bic)


def test_a_floor_beyond_the_end_of_the_distances_is_not_given() -> None:
    fit = fit_decay(1 - np.arange(N) / (N / 1.5))
    assert (fit.status, fit.status_floor, fit.preferred) == ("ok", "out_of_domain", "exponential")
    assert unknown(fit, "beta_floor", "floor")
    assert fit.bic_floor < fit.bic


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


@pytest.mark.parametrize("y", [np.ones((2, 9)), np.array([1.0, 1.1, 0.5]), np.array([1.0, -np.inf, 0.5])])
def test_what_is_no_curve_of_cosines_is_refused(y: np.ndarray) -> None:
    with pytest.raises(ValueError, match="cosine must be cosines by distance"):
        fit_decay(y)
