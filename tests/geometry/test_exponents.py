"""The exponent of a mean curve, against NumPy's line and a jackknife one sequence at a time."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from geometry import limits
from geometry.limits import Exponent, fit_exponents

X = np.array([1.0, 2, 3, 5, 8, 13, 21])


def draw(sequences: int, noise: float = 0.3) -> np.ndarray:
    """Curves 2 x^{-0.7} with noise, (sequence, point)."""
    drawn = np.random.default_rng(sequences).standard_normal((sequences, X.size))
    return 2 * X**-0.7 * np.exp(noise * drawn)


def fit_line(curves: np.ndarray, x: np.ndarray = X) -> tuple[float, float]:
    """Slope and intercept of the mean curve."""
    slope, intercept = np.polyfit(np.log(x), np.log(curves.mean(axis=0)), 1)
    return float(slope), float(intercept)


def assert_right(curves: np.ndarray) -> None:
    found, count = fit_exponents(X, curves), len(curves)
    slope, intercept = fit_line(curves)
    without = np.array([fit_line(np.delete(curves, left, axis=0))[0] for left in range(count)])
    reach = stats.t.ppf(0.975, count - 1) * np.sqrt((count - 1) * without.var())
    r2 = stats.pearsonr(np.log(X), np.log(curves.mean(axis=0))).statistic ** 2
    expected = Exponent(slope, slope - reach, slope + reach, float(np.exp(intercept)), r2, X.size)
    assert vars(found) == pytest.approx(vars(expected), rel=1e-9)


@pytest.mark.parametrize("sequences", [2, 5, 12])
def test_equals_a_line_through_the_means(sequences: int) -> None:
    assert_right(draw(sequences))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("leave_one_out", lambda curves: curves),  # the fits of single sequences
        ("_fit_lines", lambda x, y, right=limits._fit_lines: right(np.exp(x), y)),  # a semi-logarithmic line
    ],
)
def test_wrong_fits_would_be_noticed(name: str, wrong: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, name, wrong)
    with pytest.raises(AssertionError):
        assert_right(draw(5))


def test_an_exact_power_has_no_error() -> None:
    found = fit_exponents(X, draw(4, noise=0))
    numbers = (found.exponent, found.low, found.high, found.level, found.r2)
    assert numbers == pytest.approx((-0.7, -0.7, -0.7, 2, 1), rel=1e-9)


def test_points_without_a_logarithm_are_left_out() -> None:
    """x = 0, a mean of 0, and a point that is not known in any sequence."""
    curves = draw(5)
    more = np.hstack([np.ones((5, 1)), curves, np.zeros((5, 1)), np.full((5, 1), 1.0)])
    x = np.array([0, *X, 34, -1])
    assert fit_exponents(x, more) == fit_exponents(X, curves)
    holed = curves.copy()
    holed[0, 2] = np.nan  # known in the others
    filled = holed.copy()
    filled[0, 2] = curves[1:, 2].mean()
    assert fit_exponents(X, holed).exponent == pytest.approx(fit_exponents(X, filled).exponent)


def test_a_line_needs_two_points_and_an_interval_two_sequences() -> None:
    alone = fit_exponents(X, draw(1))
    assert alone.exponent == pytest.approx(fit_line(draw(1))[0])
    assert np.isnan([alone.low, alone.high]).all()
    for x, points in ((X[:1], 1), (np.full(3, 4.0), 3)):
        found = fit_exponents(x, draw(5)[:, :points])
        assert np.isnan([found.exponent, found.low, found.level, found.r2]).all()
        assert found.points == points
