"""Variation of norms over positions, against SciPy and a sum over pairs of sequences."""

from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from geometry.assumptions.values import estimate_variation, variation

NORMS = np.random.default_rng(0).gamma(9, size=(5, 7))


def literally(norms: np.ndarray) -> float:
    """√(mean over pairs of different sequences of the covariance over positions) / mean."""
    pairs = [np.mean((a - a.mean()) * (b - b.mean())) for a, b in permutations(norms, 2)]
    return float(np.sqrt(max(np.mean(pairs), 0)) / norms.mean())


def test_variation_is_that_of_scipy() -> None:
    np.testing.assert_allclose(variation(NORMS), stats.variation(NORMS, axis=1))
    np.testing.assert_array_equal(variation([[0, 0], [2, 2]]), [np.nan, 0])
    assert np.isnan(variation([3.0]))


def test_the_expected_norm_varies_as_products_of_different_sequences() -> None:
    norms = NORMS + np.arange(7)
    whole, left_out = estimate_variation(norms)
    assert whole == pytest.approx(literally(norms))
    np.testing.assert_allclose(left_out, [literally(np.delete(norms, left, axis=0)) for left in range(5)])


def test_noise_within_sequences_does_not_count() -> None:
    """However few the sequences: the squared variation is unbiased, that of the mean norm is not."""
    rng, expected = np.random.default_rng(1), 1 + 0.2 * np.cos(np.arange(400))
    squares, biased = [], []
    for _ in range(50):
        norms = expected + 0.5 * rng.standard_normal((4, 400))
        squares.append(float(estimate_variation(norms)[0]) ** 2)
        biased.append(float(variation(norms.mean(axis=0))) ** 2)
    truth = float(variation(expected)) ** 2
    error = np.std(squares) / np.sqrt(50)
    assert abs(np.mean(squares) - truth) < 5 * error
    assert np.mean(biased) - truth > 50 * error  # the control: 0.5²/4 too large


def test_norms_that_vary_only_by_chance_have_no_variation() -> None:
    """A variance below 0 is 0."""
    norms = 1 + np.array([[0.1, -0.1, 0], [-0.1, 0.1, 0]])
    assert estimate_variation(norms)[0] == 0


@pytest.mark.parametrize("norms", [NORMS[:1], NORMS[:, :1], np.zeros((4, 3))])
def test_without_sequences_positions_or_norms_there_is_none(norms: np.ndarray) -> None:
    whole, left_out = estimate_variation(norms)
    assert np.isnan([whole, *left_out]).all()
    assert left_out.shape == (len(norms),)


def test_of_two_sequences_none_is_known_without_one() -> None:
    whole, left_out = estimate_variation(NORMS[:2] + np.arange(7))
    assert whole > 0
    assert np.isnan(left_out).all()
