"""Running means and deviations beside those of NumPy over all arrays at once."""

import numpy as np
import pytest
from geometry.statistics.running import Mean, Spread, average_arrays, standard_error, variation


def parts() -> np.ndarray:
    """Arrays far from 0, where a difference of squares would lose every digit; one column is never known."""
    given = np.random.default_rng(0).standard_normal((9, 4)) + 1e8
    given[2:5, 0], given[1:, 1], given[:, 2] = np.nan, np.nan, np.nan
    return given


def test_a_running_mean_is_that_of_what_is_known() -> None:
    given, mean = parts(), Mean()
    for part in given:
        mean.add(part)
    wanted = [column[~np.isnan(column)].mean() if (~np.isnan(column)).any() else np.nan for column in given.T]
    np.testing.assert_allclose(mean.value(), wanted, rtol=1e-12)
    np.testing.assert_array_equal(average_arrays(iter(given)), mean.value())
    np.testing.assert_allclose(mean.mean_over_heads(), [np.nanmean(given)], rtol=1e-12)


def test_a_running_deviation_is_that_of_what_is_known() -> None:
    given, spread = parts(), Spread()
    for part in given:
        spread.add(part)
    columns = [column[~np.isnan(column)] for column in given.T]
    wanted = [(column.mean(), column.std()) if column.size else (np.nan, np.nan) for column in columns]
    found = np.array([spread.value(), spread.deviation()]).T
    np.testing.assert_allclose(found, wanted, rtol=1e-7)
    assert np.isnan(found[2]).all()


def test_a_difference_of_squares_would_have_been_noticed() -> None:
    given = parts()[:, 3]
    careless = np.sqrt(abs((given.astype(np.float64) ** 2).mean() - given.mean() ** 2))
    assert abs(careless / given.std() - 1) > 1e-2


def test_one_sequence_has_no_standard_error() -> None:
    assert np.isnan(standard_error(np.ones((1, 3)))).all()
    assert standard_error(np.array([[1.0], [3.0]])) == pytest.approx([1.0])


def test_variation_is_that_of_two_or_more_numbers_that_are_not_all_0() -> None:
    found = variation(np.array([[1.0, 3.0], [2.0, 2.0], [0.0, 0.0]]))
    np.testing.assert_allclose(found, [0.5, 0.0, np.nan])
    assert np.isnan(variation(np.ones((2, 1)))).all()
