"""Limits of the softmax against models whose logits are divided, all subsets, and exact rational arithmetic."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from geometry import limits
from geometry.grids import log_grid
from geometry.limits import (
    MEASURES,
    TEMPERATURES,
    Exponent,
    fit_exponents,
    jacobian_norm,
    random_subset_distance,
    selection_by_temperature,
    sensitivity,
    temper,
)
from geometry.separation import chance
from geometry.separation.chance import separability
from tests.geometry import draws
from tests.geometry.draws import softmax_rows

Vectors = list[list[int]]


class TestRandomSubsets:
    """The distance of random selections against all subsets in rational arithmetic."""

    @staticmethod
    def squares(y: Vectors, size: int) -> list[int]:
        """‖Σ_{i∉S} y_i − Σ_{i∈S} y_i‖² for every set S of that size, in whole numbers."""
        found = []
        for chosen in combinations(range(len(y)), size):
            sign = [-1 if key in chosen else 1 for key in range(len(y))]
            total = [sum(sign[key] * y[key][k] for key in range(len(y))) for k in range(len(y[0]))]
            found.append(sum(component**2 for component in total))
        return found

    @staticmethod
    def distance(y: Vectors, size: int) -> float:
        """From ‖s_n‖ and √Σ‖y_i‖²."""
        whole, parts = np.linalg.norm(np.sum(y, axis=0)), np.linalg.norm(y)
        return float(random_subset_distance(whole, parts, size=size, n_keys=len(y)))

    @given(
        st.integers(2, 10).flatmap(
            lambda n: st.lists(st.lists(st.integers(-4, 4), min_size=2, max_size=2), min_size=n, max_size=n)
        )
    )
    def test_the_closed_form_is_the_mean_over_all_subsets(self, y: Vectors) -> None:
        """Also where keys are equal, opposite or 0."""
        for size in range(1, len(y)):
            found = self.squares(y, size)
            sums = np.linalg.norm(np.sum(y, axis=0)) ** 2 + np.linalg.norm(y) ** 2
            rounded = math.sqrt(2.0**-49 * sums)  # the root of 16 roundings of what is subtracted
            assert self.distance(y, size) == pytest.approx(math.sqrt(sum(found) / len(found)), rel=1e-7, abs=rounded)

    def test_a_mean_of_distances_would_be_noticed(self) -> None:
        y = np.random.default_rng(1).integers(-6, 9, (9, 3)).tolist()
        assert np.mean(np.sqrt(self.squares(y, 4))) < 0.99 * self.distance(y, 4)

    def test_there_is_none_without_selected_keys_or_without_others(self) -> None:
        found = random_subset_distance(np.ones((2, 1)), 1.0, size=np.arange(6), n_keys=[[5], [1]])
        np.testing.assert_array_equal(np.isnan(found), [[True, False, False, False, False, True], [True] * 6])
        assert np.isfinite(random_subset_distance(1e38, 1e38, size=3, n_keys=7))


X = np.array([1.0, 2, 3, 5, 8, 13, 21])


class TestExponents:
    """The exponent of a mean curve, against NumPy's line and a jackknife one sequence at a time."""

    @staticmethod
    def draw(sequences: int) -> np.ndarray:
        """Curves 2 x^{-0.7} with noise, (sequence, point)."""
        return 2 * X**-0.7 * np.exp(0.3 * np.random.default_rng(sequences).standard_normal((sequences, X.size)))

    def assert_right(self, curves: np.ndarray) -> None:
        count = len(curves)
        samples = [curves, *(np.delete(curves, left, axis=0) for left in range(count))]
        lines = [np.polyfit(np.log(X), np.log(sample.mean(axis=0)), 1) for sample in samples if len(sample)]
        slopes, (_, intercept) = np.array(lines)[:, 0], lines[0]
        reach = stats.t.ppf(0.975, count - 1) * np.sqrt((count - 1) * slopes[1:].var())
        r2 = stats.pearsonr(np.log(X), np.log(curves.mean(axis=0))).statistic ** 2
        expected = Exponent(slopes[0], slopes[0] - reach, slopes[0] + reach, float(np.exp(intercept)), r2, X.size)
        assert vars(fit_exponents(X, curves)) == pytest.approx(vars(expected), rel=1e-9)

    @pytest.mark.parametrize("sequences", [2, 12])
    def test_equals_a_line_through_the_means(self, sequences: int) -> None:
        self.assert_right(self.draw(sequences))

    @pytest.mark.parametrize(
        ("name", "wrong"),
        [
            ("leave_one_out", lambda curves: curves),  # the fits of single sequences
            ("_fit_lines", lambda x, y, right=limits._fit_lines: right(np.exp(x), y)),  # a semi-logarithmic line
        ],
    )
    def test_wrong_fits_would_be_noticed(
        self, name: str, wrong: Callable[..., object], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, name, wrong)
        with pytest.raises(AssertionError):
            self.assert_right(self.draw(5))

    def test_points_without_a_logarithm_are_left_out(self) -> None:
        """x = 0, a mean of 0, and a point that is not known in one sequence."""
        curves = self.draw(5)
        more = np.hstack([np.ones((5, 1)), curves, np.zeros((5, 1)), np.full((5, 1), 1.0)])
        assert fit_exponents(np.array([0, *X, 34, -1]), more) == fit_exponents(X, curves)
        holed, filled = curves.copy(), curves.copy()
        holed[0, 2], filled[0, 2] = np.nan, curves[1:, 2].mean()
        assert fit_exponents(X, holed).exponent == pytest.approx(fit_exponents(X, filled).exponent)

    def test_a_line_needs_two_points_and_an_interval_two_sequences(self) -> None:
        alone = fit_exponents(X, self.draw(1))
        assert np.isnan([alone.exponent, alone.low, alone.high]).tolist() == [False, True, True]
        for x, points in ((X[:1], 1), (np.full(3, 4.0), 3)):
            found = fit_exponents(x, self.draw(5)[:, :points])
            assert np.isnan([found.exponent, found.low, found.level, found.r2]).all()
            assert found.points == points


LOGITS = np.random.default_rng(0).standard_normal((3, 2, 40)) * 4
SINKS = LOGITS.max(axis=-1) + np.random.default_rng(1).standard_normal((3, 2))
"""Logits of a model's size, and of a learned sink in each row."""


def with_sink(t: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights of the keys and the share of the sink, whose logit comes last."""
    rows = softmax_rows(np.concatenate([LOGITS, SINKS[..., None]], axis=-1) / t)
    return rows[..., :-1], rows[..., -1]


class TestTemper:
    @pytest.mark.parametrize("t", [*TEMPERATURES, 0.01, 1000.0])
    def test_it_is_the_softmax_of_logits_divided(self, t: float) -> None:
        """Also where a learned sink takes its share, which has a logit as well."""
        found = temper(softmax_rows(LOGITS), t)
        np.testing.assert_allclose(found, softmax_rows(LOGITS / t), rtol=1e-12 / min(t, 1))
        assert found.dtype == temper(softmax_rows(LOGITS).astype(np.float32), t).dtype == np.float64
        (weights, share), (wanted, left) = with_sink(1.0), with_sink(t)
        found = temper(weights, t, share)
        np.testing.assert_allclose(found, wanted, rtol=1e-11 / min(t, 1), atol=1e-300)
        np.testing.assert_allclose(1 - found.sum(axis=-1), left, rtol=1e-11 / min(t, 1), atol=1e-15)
        if t in {0.25, 4.0}:  # mutation control: a sink whose share stays, and one that is left out
            assert np.abs(softmax_rows(LOGITS / t) * (1 - share[..., None]) / wanted - 1).max() > 0.1
            assert np.abs(temper(weights, t) / wanted - 1).max() > 0.1

    def test_weights_of_every_size_neither_overflow_nor_lose_their_sum(self) -> None:
        """A weight of 0, whose logit is not known, stays 0; at 1 the weights are a copy of those given."""
        weights = np.array([1.0, 1e-30, 1e-45, 0.0], np.float32)
        for t in (1e-6, 1e-3, 0.1, 10.0, 1e6):
            found = temper(weights, t)
            assert np.isfinite(found).all()
            assert found.sum() == pytest.approx(1.0)
        np.testing.assert_allclose(temper(weights, 1e9), [1 / 3, 1 / 3, 1 / 3, 0], rtol=1e-6)
        tiny = np.full(3, 1e-45, np.float32)
        np.testing.assert_allclose(temper(tiny, 0.01), [1 / 3] * 3)
        np.testing.assert_allclose(temper(tiny, 0.5, 1.0), np.zeros(3), atol=1e-80)
        np.testing.assert_array_equal(same := temper(weights, 1.0), weights)
        assert not np.shares_memory(same, temper(same, 1.0))


def dense(alpha: np.ndarray, temperature: float = 1.0) -> float:
    """Largest absolute eigenvalue of all of (diag α − α αᵀ) / T."""
    jacobian = (np.diag(alpha) - np.outer(alpha, alpha)) / temperature
    return float(np.abs(np.linalg.eigvalsh(jacobian)).max())


def descends(alpha: list[Fraction], at: Fraction) -> bool:
    """Whether an eigenvalue of diag α − α αᵀ lies above ``at``, exactly.

    By Sylvester's law of inertia for at I − diag α + α αᵀ: the number of α above ``at``, less one where the rank-one
    part lifts one of them over it, 1 + Σ α²/(at − α) < 0.
    """
    if any(a == at for a in alpha):
        raise ZeroDivisionError
    return sum(a > at for a in alpha) - (1 + sum(a * a / (at - a) for a in alpha) < 0) > 0


def certified(alpha: np.ndarray, share: float, found: float, *, ulps: int = 16) -> bool:
    """Whether the largest eigenvalue is ``found`` within a few units in the last place, in rational arithmetic."""
    weights = [Fraction(float(a)) for a in alpha]
    total = sum(weights) + Fraction(share)
    p = [w / total for w in weights if w > 0]
    largest, again = max(p), sorted(p)[-2:-1]
    if again == [largest]:
        return abs(Fraction(found) - largest) <= largest * Fraction(ulps, 2**53)
    width = Fraction(found) * Fraction(ulps, 2**53)
    return descends(p, Fraction(found) - width) and not descends(p, Fraction(found) + width)


def rows(n: int, spread: float, seed: int) -> np.ndarray:
    return softmax_rows(spread * np.random.default_rng([n, seed]).standard_normal(n))


class TestSensitivity:
    @pytest.mark.parametrize(
        "alpha",
        [
            *(rows(n, spread, 0).tolist() for n in (2, 3, 25) for spread in (0.0, 1e-9, 0.01, 1.0, 30.0)),
            [1.0, 1e-38, 1e-39],  # saturated: 1 − α₁ has no digits left
            [1.0, 1.0 - 2**-53, 0.5],
            [0.5, 0.5 - 2**-54],
            [1e-30, 3e-31, 1e-300],
            [0.4, 0.3, 0.3, 0.3, 0.0, 0.0],
            [1.0, *[2.0**-30] * 20],
            [1.0, 0.999999, 0.999998, 1e-3],
            [0.9, *[0.1 * 0.5**i for i in range(20)]],
        ],
    )
    def test_it_is_exact_to_the_last_digits(self, alpha: list[float]) -> None:
        for share in (0.0, 1e-12, 0.25, 50.0):
            for kind in (np.float32, np.float64):
                given = np.array(alpha, kind)
                assert certified(given, share, float(jacobian_norm(given, share)))

    def test_the_certificate_tells_a_wrong_norm(self) -> None:
        """Mutation control of the test above."""
        alpha = rows(8, 1.0, 0)
        found = float(jacobian_norm(alpha))
        assert certified(alpha, 0.0, found)
        assert not certified(alpha, 0.0, found * (1 + 1e-13))
        assert not certified(alpha, 0.0, found * (1 - 1e-13))
        assert not certified(alpha, 1e-12, found)

    def test_one_key_moves_nothing_but_against_a_learned_sink_and_two_reach_the_bound(self) -> None:
        assert jacobian_norm([1.0]) == jacobian_norm([0.7, 0.0, 0.0]) == 0
        assert jacobian_norm([0.75], 0.25) == jacobian_norm([0.75, 0.0], 0.25) == 0.75 * 0.25
        for t in TEMPERATURES:
            assert sensitivity(np.array([0.5, 0.5, 0.0]), [t])[0] == 1 / (2 * t)
            assert sensitivity(np.full(2, 0.3, np.float32), [t])[0] == 1 / (2 * t)

    @pytest.mark.parametrize("t", TEMPERATURES)
    def test_temperatures_are_those_of_the_weights_and_of_the_derivative(self, t: float) -> None:
        alpha = np.stack([rows(40, spread, 0) for spread in (0.1, 2.0, 10.0)])
        wanted = [dense(row, t) for row in temper(alpha, t)]
        np.testing.assert_allclose(sensitivity(alpha, [t])[:, 0], wanted, rtol=1e-9, atol=1e-14)
        if t != 1:  # mutation control: either alone
            assert np.abs(sensitivity(alpha, [1.0])[:, 0] / t / wanted - 1).max() > 0.1
            assert np.abs([dense(row) for row in temper(alpha, t)] / np.array(wanted) - 1).max() > 0.1

    @pytest.mark.parametrize("t", TEMPERATURES)
    def test_with_a_learned_sink_it_is_that_of_the_keys(self, t: float) -> None:
        (weights, share), (at_t, _) = with_sink(1.0), with_sink(t)
        wanted = np.reshape([dense(row, t) for row in at_t.reshape(-1, 40)], share.shape)
        np.testing.assert_allclose(sensitivity(weights, [t], share)[..., 0], wanted, rtol=1e-10)
        without = sensitivity(weights, [t])[..., 0]  # mutation control: the sink left out
        assert np.abs(without / wanted - 1).max() > 0.01

    def test_rows_are_taken_one_by_one(self) -> None:
        weights, _ = draws.grouped(draws.random_head, 2, 3, 20, 4)
        found, norms = sensitivity(weights), jacobian_norm(weights)
        assert (found.shape, norms.shape) == ((2, 3, len(TEMPERATURES)), (2, 3))
        assert jacobian_norm(np.empty((0, 5))).shape == (0,)
        for head in np.ndindex(2, 3):
            np.testing.assert_array_equal(found[head], sensitivity(weights[head]))
            assert norms[head] == jacobian_norm(weights[head])


N, SOME = 24, (0.25, 1.0, 3.0)
OF_HEADS = np.random.default_rng(0).standard_normal((2, 3, N)) * 3
VALUES = np.random.default_rng(1).standard_normal((2, 1, N, 5))
"""Logits of two KV heads of three heads each, and value states."""


class TestSelections:
    """Selections at several temperatures against literal readings, and against models whose logits are divided."""

    @staticmethod
    def distances(alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """‖Σ_{i∉I_N} y_i − s_N‖ for the N of the log grid, and of random subsets, (…, grid) each."""
        order = np.argsort(-alpha, axis=-1, kind="stable")
        y = np.take_along_axis(alpha[..., None] * VALUES, order[..., None], axis=-2)
        s = y.cumsum(axis=-2)
        whole, parts = np.linalg.norm(s[..., -1, :], axis=-1), np.sqrt((y**2).sum(axis=(-1, -2)))
        random = random_subset_distance(whole[..., None], parts[..., None], size=log_grid(N), n_keys=N)
        return np.linalg.norm(s[..., -1:, :] - 2 * s[..., log_grid(N) - 1, :], axis=-1), random

    def test_it_is_a_model_whose_logits_are_divided(self) -> None:
        found = selection_by_temperature(softmax_rows(OF_HEADS), VALUES, SOME)
        np.testing.assert_array_equal(found.n, log_grid(N))
        for index, t in enumerate(SOME):
            alpha = softmax_rows(OF_HEADS / t)
            counted = separability(alpha, VALUES, draws=0, seed=0)
            wanted = counted.observed[..., [chance.MEASURES.index(name) for name in MEASURES], :]
            np.testing.assert_allclose(found.measures[:, :, index], wanted, rtol=1e-12)
            distance, random = self.distances(alpha)
            np.testing.assert_allclose(found.distance[:, :, index], distance, rtol=1e-10)
            np.testing.assert_allclose(found.random_distance[:, :, index], random, rtol=1e-10)
        wrong, _ = self.distances(softmax_rows(OF_HEADS * 3))  # mutation control: multiplied
        assert np.abs(found.distance[:, :, 2] / wrong - 1).max() > 0.1

    @pytest.mark.parametrize("t", SOME)
    def test_a_learned_sink_shrinks_distances_alone(self, t: float) -> None:
        with_last = np.concatenate([OF_HEADS, np.random.default_rng(2).standard_normal((2, 3, 1)) * 3], axis=-1)
        whole = softmax_rows(with_last)
        found = selection_by_temperature(whole[..., :-1], VALUES, (t,), learned_sink=whole[..., -1])
        without = selection_by_temperature(softmax_rows(OF_HEADS), VALUES, (t,))
        np.testing.assert_array_equal(found.measures, without.measures)
        distance, random = self.distances(softmax_rows(with_last / t)[..., :-1])
        np.testing.assert_allclose(found.distance[:, :, 0], distance, rtol=1e-9)
        np.testing.assert_allclose(found.random_distance[:, :, 0], random, rtol=1e-9)
        assert (found.distance < without.distance).all()  # mutation control: the sink is not left out

    def test_one_key_has_no_selection(self) -> None:
        found = selection_by_temperature(np.ones((2, 1)), np.ones((2, 1, 3)), SOME)
        assert found.measures.shape == (2, 3, len(MEASURES), 0)
        assert found.distance.shape == found.random_distance.shape == (2, 3, 0)
