"""Grids of N, and weights and quantiles over ln N."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geometry.grids import (
    BANDS,
    average_over_ln_n,
    compute_band_weights,
    compute_log_weights,
    fit_over_ln_n,
    half_octave_grid,
    quantile_over_ln_n,
)


def test_half_octaves_are_powers_of_root_two() -> None:
    assert half_octave_grid(24).tolist() == [1, 2, 3, 4, 6, 8, 11, 16, 23]
    assert half_octave_grid(2).tolist() == [1]
    assert half_octave_grid(512).size == 18


def test_weights_are_the_shares_of_ln_n_that_are_nearest() -> None:
    """By a fine division of ln N from 1.5 to 40.5."""
    grid = np.array([1, 2, 3, 7, 11, 30, 50])
    x = np.linspace(math.log(1.5), math.log(40.5), 400_001)
    inside = np.log([2, 3, 7, 11, 30])
    nearest = np.bincount(np.abs(x[:, None] - inside).argmin(axis=1)) / x.size
    weights = compute_log_weights(grid, 2, 40)
    np.testing.assert_allclose(weights, [0, *nearest, 0], atol=1e-5)
    assert weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("n_keys", [5, 6, 24, 512])
def test_thirds_hold_their_n_and_begin_at_two(n_keys: int) -> None:
    weights = compute_band_weights(n_keys)
    n = np.arange(1, n_keys)
    assert weights.shape == (n_keys - 1, len(BANDS))
    assert not np.nan_to_num(weights[0]).any()
    assert (weights[1:, 0] > 0).all()
    edges = [2 * ((n_keys - 1) / 2) ** (third / 3) for third in range(4)]
    for third in range(3):
        own = weights[:, 1 + third]
        inside = (n >= edges[third] * (1 - 1e-9)) & (n <= edges[third + 1] * (1 + 1e-9))
        if inside.any():
            np.testing.assert_array_equal(own > 0, inside)
            assert own.sum() == pytest.approx(1)
        else:
            assert np.isnan(own).all()


@pytest.mark.parametrize("n_keys", [2, 3, 4])
def test_few_keys_have_no_thirds(n_keys: int) -> None:
    weights = compute_band_weights(n_keys)
    assert np.isnan(weights[:, 1:]).all()
    assert np.isnan(weights[:, 0]).all() == (n_keys == 2)


def test_means_begin_at_2_and_weigh_by_ln_n() -> None:
    assert average_over_ln_n(np.array([[9.0, 0.5]]), np.array([1, 2])).tolist() == [0.5]
    wanted = (np.log(np.sqrt(8) / 1.5) * 1 + np.log(4.5 / np.sqrt(8)) * 3) / np.log(4.5 / 1.5)
    found = average_over_ln_n(np.array([9.0, 1.0, 3.0], np.float32), np.array([1, 2, 4]))
    assert found == pytest.approx(wanted)
    assert found != pytest.approx(2, abs=0.01)  # control: a mean over the numbers
    assert np.isnan(average_over_ln_n(np.full((2, 1), 0.5), np.array([1]))).all()


def fit_slowly(curve: np.ndarray, weights: str = "1/N") -> tuple[float, float]:
    """Level and change over ln N of a curve by N, by least squares of those that are known."""
    known = ~np.isnan(curve)
    n, values = np.flatnonzero(known) + 1.0, curve[known].astype(float)
    if not values.size:
        return np.nan, np.nan
    weight = 1 / n if weights == "1/N" else np.ones(n.size)
    slope = np.polyfit(np.log(n), values, 1, w=np.sqrt(weight))[0] if n.size > 1 else 0.0
    return float(np.average(values, weights=weight)), float(slope * np.log(curve.size))


def test_lines_are_by_least_squares() -> None:
    curves = np.random.default_rng(0).uniform(-1, 1, (4, 3, 40))
    curves[0, 0, ::3], curves[0, 1, 1:], curves[0, 2] = np.nan, np.nan, np.nan
    found = np.array(fit_over_ln_n(curves))
    for at in np.ndindex(4, 3):
        np.testing.assert_allclose(found[:, *at], fit_slowly(curves[at]), rtol=1e-9)
    assert np.isnan(found[:, 0, 2]).all()
    assert found[1, 0, 1] == 0
    assert fit_over_ln_n(np.array([0.25])) == (0.25, 0)
    assert not np.allclose(found[:, 1, 1], fit_slowly(curves[1, 1], "all alike"), rtol=1e-2)  # mutation control


def quantile_by_sets(curve: list[float], probability: Fraction) -> float:
    """The largest element c for which the N with elements ≥ c hold 1 − probability of Σ 1/N, in exact arithmetic."""
    shares = [Fraction(1, n) for n in range(1, len(curve) + 1)]
    wanted = (1 - probability) * sum(shares)
    return max(
        c for c in curve if sum(share for share, other in zip(shares, curve, strict=True) if other >= c) >= wanted
    )


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=12), st.sampled_from([0, 1, 5, 50, 95, 100]))
def test_quantiles_equal_the_definition(curve: list[int], percent: int) -> None:
    numbers = [float(value) for value in curve]
    found = quantile_over_ln_n(np.array([numbers]), percent / 100)
    assert found.tolist() == [quantile_by_sets(numbers, Fraction(percent, 100))]


def test_what_is_not_known_is_below_every_number() -> None:
    curve = np.array([np.nan, 1.0, 2.0, 3.0])  # 1, 1/2, 1/3, 1/4: nearly half is not known
    assert np.isnan(quantile_over_ln_n(curve, 0.4))
    assert quantile_over_ln_n(curve, 0.5) == 1
    assert np.isnan(quantile_over_ln_n(np.zeros((2, 0)), 0.5)).tolist() == [True, True]
