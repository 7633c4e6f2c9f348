"""The effective sample size against sums over pairs, and against noise whose autocorrelation time is known."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from geometry.assumptions.decay import effective_points
from tests.geometry.draws import correlated_noise


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


def gaps(n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.random(n) < 0.7


@pytest.mark.parametrize("n", [3, 8, 61, 200])
@pytest.mark.parametrize("time", [0.0, 2.0, 30.0])
@pytest.mark.parametrize("mask", [lambda n, _: np.ones(n, bool), gaps])
def test_it_is_the_sum_over_pairs(n: int, time: float, mask: Callable[..., np.ndarray]) -> None:
    rng = np.random.default_rng(n)
    residual, known = correlated_noise(n, time, rng), mask(n, rng)
    assert effective_points(residual, known) == pytest.approx(literal(residual, known), rel=1e-9)
    assert effective_points(residual) == effective_points(residual, np.ones(n, bool))
    assert effective_points(1e-12 * residual, known) == pytest.approx(effective_points(residual, known))


def test_all_lags_would_be_another_number() -> None:
    """Mutation control: the sum of all correlations is noise."""
    residual = correlated_noise(200, 5.0, np.random.default_rng(0))
    assert literal(residual, np.ones(200, bool), geyer=False) != pytest.approx(effective_points(residual), rel=0.2)


@pytest.mark.parametrize("time", [0.0, 3.0, 10.0])
def test_noise_of_a_known_autocorrelation_time(time: float) -> None:
    """r_l = e^(−l/time), so τ = coth(1/(2 time)), and 1 without any."""
    tau = 1 / math.tanh(1 / (2 * time)) if time else 1.0
    found = [effective_points(correlated_noise(4000, time, np.random.default_rng(seed))) for seed in range(20)]
    assert np.median(found) == pytest.approx(4000 / tau, rel=0.15)


def test_what_is_unknown_may_hold_any_number() -> None:
    rng = np.random.default_rng(1)
    residual, known = correlated_noise(80, 4.0, rng), gaps(80, rng)
    assert effective_points(np.where(known, residual, 1e6), known) == effective_points(residual, known)


@pytest.mark.parametrize(
    ("residual", "points"),
    [(np.zeros(9), 9.0), (np.ones(50), 1.0), ((-1.0) ** np.arange(50), 50.0), (np.array([2.0]), 1.0)],
)
def test_residuals_at_the_ends(residual: np.ndarray, points: float) -> None:
    """None at all; all equal, which counts as little more than one; opposite neighbours are no more than they are."""
    assert effective_points(residual) == pytest.approx(points, rel=0.05)


def test_nothing_known_is_worth_nothing() -> None:
    assert effective_points(np.ones(5), np.zeros(5, bool)) == 0.0
