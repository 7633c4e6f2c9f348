"""Drawn heads: what was asked for is what the draws show, and wrong draws that must show."""

import math
from dataclasses import replace

import numpy as np
import pytest

from geometry.assumptions import assumed as module
from geometry.assumptions.assumed import AssumedHead, draw_values, draw_weights, stretch_phases, weight_profile
from geometry.bounds import monte_carlo

BASE = AssumedHead(
    value_scale=2.5, lambda_sink=0.2, beta=0.3, rho_0=0.4, p_sink=0.6, eta=0.5, eta_growth=0.1, omega=0.7, t_1=6, t_2=25
)
N, D, DRAWS = 40, 64, 400


def mean_cosines(assumed: AssumedHead) -> np.ndarray:
    """Mean Gram matrix of the directions over draws, (n, n)."""
    rng, total = np.random.default_rng(0), np.zeros((N, N))
    for _ in range(DRAWS):
        values = draw_values(assumed, N, D, rng)
        unit = values / np.linalg.norm(values, axis=1, keepdims=True)
        total += unit @ unit.T
    return total / DRAWS


def by_distance(cosines: np.ndarray) -> np.ndarray:
    """Means over pairs without the sink, for distances 1, …, 10."""
    return np.array([np.diagonal(cosines[1:, 1:], distance).mean() for distance in range(1, 11)])


class TestValues:
    @pytest.mark.parametrize(("beta", "rho_0"), [(0.05, 0.0), (0.3, 0.4), (2.0, -0.2)])
    def test_cosines_decay_to_a_floor(self, beta: float, rho_0: float) -> None:
        assumed = replace(BASE, beta=beta, rho_0=rho_0)
        found = by_distance(mean_cosines(assumed))
        expected = rho_0**2 + (1 - rho_0**2) * np.exp(-beta * np.arange(1, 11))
        assumed_cosines = monte_carlo.mean_cosines(assumed, N)
        np.testing.assert_allclose(by_distance(assumed_cosines), expected)
        assert (assumed_cosines[0, 1:] == rho_0).all()
        assert (assumed_cosines[1:, 0] == rho_0).all()
        np.testing.assert_allclose(found, expected, atol=0.01 + 1 / D)

    @pytest.mark.parametrize("d", [2, 64])
    def test_norms_and_cosines_with_the_sink_are_exact(self, d: int) -> None:
        values = draw_values(BASE, N, d, np.random.default_rng(1))
        norms = np.linalg.norm(values, axis=1)
        np.testing.assert_allclose(norms, [0.5, *[2.5] * (N - 1)], rtol=1e-12)
        np.testing.assert_allclose(values[1:] @ values[0] / (norms[1:] * norms[0]), 0.4, rtol=1e-12)

    def test_a_sink_without_similarity_is_as_independent_as_any(self) -> None:
        """Its cosines are no constants: their variance is 1/d."""
        values = draw_values(replace(BASE, rho_0=0.0, beta=math.inf), 4000, 16, np.random.default_rng(1))
        unit = values / np.linalg.norm(values, axis=1, keepdims=True)
        assert np.var(unit[1:] @ unit[0]) == pytest.approx(1 / 16, rel=0.1)

    def test_without_end_or_without_beginning(self) -> None:
        independent = by_distance(mean_cosines(replace(BASE, beta=math.inf, rho_0=0.0)))
        np.testing.assert_allclose(independent, 0, atol=0.006)
        alike = draw_values(replace(BASE, beta=0.0), N, D, np.random.default_rng(1))
        np.testing.assert_allclose(alike[1:], np.tile(alike[1], (N - 1, 1)), atol=1e-12)
        aligned = draw_values(replace(BASE, rho_0=-1.0), N, D, np.random.default_rng(1))
        np.testing.assert_allclose(aligned[1:], np.tile(-5 * aligned[0], (N - 1, 1)), atol=1e-12)

    @pytest.mark.parametrize("mutation", ["no step", "no renormalisation", "not turned"])
    def test_a_wrong_draw_shows(self, mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def walk(directions: np.ndarray, r: float) -> None:
            step = 1.0 if mutation == "no step" else math.sqrt(1 - r * r)
            for i in range(1, len(directions)):
                directions[i] = r * directions[i - 1] + step * directions[i]
                if mutation != "no renormalisation":
                    directions[i] /= np.linalg.norm(directions[i])

        monkeypatch.setattr(module, "walk", walk)
        if mutation == "not turned":
            monkeypatch.setattr(module, "_reflect_rows", lambda vectors, _direction: vectors)
        with pytest.raises(AssertionError):
            self.check_one()

    def check_one(self) -> None:
        """The tests above of one head."""
        self.test_norms_and_cosines_with_the_sink_are_exact(64)
        self.test_cosines_decay_to_a_floor(0.3, 0.4)


def read_phases(known: AssumedHead, keys: int) -> np.ndarray:
    """Assumption 3 as the paper prints it, one position after the other."""
    shape = []
    for i in range(1, keys):
        if i <= known.t_1:
            shape.append(1.0)
        elif i <= known.t_2:
            shape.append(1 + known.eta * math.cos(known.omega * i))
        else:
            shape.append(math.exp(known.eta_growth * (i - known.t_2)))
    return np.array([known.p_sink, *((1 - known.p_sink) * np.array(shape) / sum(shape))])


class TestWeights:
    def test_equal_the_assumption(self) -> None:
        np.testing.assert_allclose(weight_profile(BASE, N), read_phases(BASE, N), rtol=1e-12)

    @pytest.mark.parametrize(("n", "growth"), [(2, 0.1), (20, -3.0), (5000, 3.0)])
    def test_sum_to_1_also_where_growth_overflows_or_phases_are_missing(self, n: int, growth: float) -> None:
        assumed = replace(BASE, eta_growth=growth)
        found = weight_profile(assumed, n)
        assert found.shape == (n,)
        assert found.sum() == pytest.approx(1, rel=1e-12)
        assert found[1] == pytest.approx(assumed.p_base(n), rel=1e-9)

    def test_noise_is_lognormal_and_the_sum_stays(self) -> None:
        rng = np.random.default_rng(3)
        drawn = np.array([draw_weights(BASE, N, rng, noise=0.1) for _ in range(DRAWS)])
        np.testing.assert_allclose(drawn.sum(axis=1), 1, rtol=1e-12)
        ratio = np.log(drawn[:, 1:] / drawn[:, 1:2])[:, 1:]
        expected = np.log(weight_profile(BASE, N)[2:] / weight_profile(BASE, N)[1])
        np.testing.assert_allclose(ratio.mean(axis=0), expected, atol=5 * 0.1 * math.sqrt(2 / DRAWS))
        np.testing.assert_allclose(ratio.std(axis=0), 0.1 * math.sqrt(2), rtol=0.2)
        np.testing.assert_allclose(draw_weights(BASE, N, rng), weight_profile(BASE, N), rtol=1e-12)


def test_stretched_weights_keep_shares_periods_and_growth() -> None:
    given = AssumedHead(lambda_sink=1, beta=1, rho_0=0, p_sink=0.3, eta=0.4, eta_growth=0.05, omega=0.3, t_1=40, t_2=80)
    longer = stretch_phases(given, 100, 200)
    assert (longer.t_1, longer.t_2, longer.omega, longer.eta_growth) == (80, 160, 0.15, 0.025)
    assert longer == replace(given, t_1=80, t_2=160, omega=0.15, eta_growth=0.025)
    assert stretch_phases(given, 100, 100) == given
    assert stretch_phases(given, 100, 5).omega == np.pi  # no frequency is higher
    short, long = weight_profile(given, 100), weight_profile(longer, 200)
    np.testing.assert_allclose(long[2::2] / long[2], short[1:] / short[1], rtol=1e-9)
