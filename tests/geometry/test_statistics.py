"""Means, intervals and the jackknife over sequences, against SciPy and the formulas of the textbooks."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from geometry.statistics import intervals
from geometry.statistics.intervals import (
    DIFFERENCE,
    SHARE,
    Estimate,
    Mean,
    Moments,
    average_known,
    compute_pseudo_values,
    estimate_correlation,
    estimate_jackknife,
    estimate_mean,
    leave_one_out,
    make_estimate,
    transform_fisher,
)


def draw(sequences: int, *, offset: float = 0.0, holes: float = 0.0) -> np.ndarray:
    """Quantities (sequences, 3, 5), skewed, some of them missing."""
    rng = np.random.default_rng(sequences)
    values = offset + rng.exponential(size=(sequences, 3, 5))
    return np.where(rng.uniform(size=values.shape) < holes, np.nan, values)


def assert_students(found: Estimate, values: np.ndarray) -> None:
    """Each element has the mean, error and interval that SciPy's t test gives."""
    for place in np.ndindex(values.shape[1:]):
        known = values[(slice(None), *place)]
        known = known[~np.isnan(known)]
        numbers = [getattr(found, name)[place] for name in ("value", "error", "low", "high")]
        if len(known) < 2:
            np.testing.assert_array_equal(numbers, [known[0] if len(known) else np.nan, *[np.nan] * 3])
            continue
        expected = [known.mean(), stats.sem(known), *stats.ttest_1samp(known, 0).confidence_interval(0.95)]
        np.testing.assert_allclose(numbers, expected, rtol=1e-9)


def assert_streamed(cut: tuple[int, ...] = (0, 1, 1, 4, 9), offset: float = 0.0) -> None:
    """Moments and means that were added in blocks are those of SciPy and NumPy."""
    values, summed, mean = draw(9, offset=offset, holes=0.3), Moments(), Mean()
    values[:, 2, 4] = np.nan
    for start, end in itertools.pairwise(cut):
        summed.add(values[start:end])
        mean.add(values[start:end])
    assert_students(summed.estimate(), values)
    np.testing.assert_array_equal(summed.counts, (~np.isnan(values)).sum(axis=0))
    np.testing.assert_allclose(mean.value, average_known(values), rtol=1e-12)


class TestMeans:
    @pytest.mark.parametrize("sequences", [1, 2, 8])
    @pytest.mark.parametrize("holes", [0.0, 0.5])
    def test_intervals_are_those_of_students_t(self, sequences: int, holes: float) -> None:
        values = draw(sequences, holes=holes)
        assert_students(estimate_mean(values), values)

    @pytest.mark.parametrize("cut", [(0, 9), (0, 1, 1, 4, 9), tuple(range(10))])
    def test_blocks_may_be_of_any_size(self, cut: tuple[int, ...]) -> None:
        assert_streamed(cut)

    def test_digits_that_all_share_cost_no_precision(self) -> None:
        """The differences of 2⁴⁰ + e, e uniform multiples of 2⁻¹², are exact, and so is their spread to 1e-9."""
        values = np.round(draw(9) * 2**12) / 2**12
        plain, shifted = estimate_mean(values), estimate_mean(values + 2.0**40)
        np.testing.assert_allclose(shifted.error, plain.error, rtol=1e-9)
        squares = ((values + 2.0**40) ** 2).mean(axis=0) - (values + 2.0**40).mean(axis=0) ** 2
        assert not np.allclose(np.sqrt(np.maximum(squares, 0) / 8), plain.error, rtol=1e-3)  # what it must not do

    @given(st.floats(-1e150, 1e150), st.integers(1, 7))
    def test_equal_numbers_have_no_error(self, number: float, sequences: int) -> None:
        summed = Moments()
        for _ in range(sequences):
            summed.add([number])
        assert summed.mean == number
        if sequences > 1:
            assert summed.estimate().error == 0

    def test_ends_are_clipped_to_the_domain(self) -> None:
        found = estimate_mean(np.array([[0.0, 0.9], [0.02, 1.0]]), SHARE)
        assert (found.low[0], found.high[1]) == (0, 1)
        assert found.high[0] == pytest.approx(0.01 + stats.t.ppf(0.975, 1) * 0.01)

    def test_a_wrong_merge_would_be_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The squares of two blocks added without the distance between their means."""
        right = Moments.merge

        def merge(self: Moments, counts: np.ndarray, mean: np.ndarray, squares: np.ndarray) -> None:
            before = self._squares
            right(self, counts, mean, squares)
            self._squares = before + squares

        monkeypatch.setattr(Moments, "merge", merge)
        with pytest.raises(AssertionError):
            assert_streamed()

    @pytest.mark.parametrize(
        "wrong", [lambda sequences: 1.96 + 0.0 * sequences, lambda sequences: stats.t.ppf(0.975, sequences)]
    )
    def test_a_wrong_quantile_would_be_noticed(self, wrong: object, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("geometry.statistics.intervals.student_quantile", wrong)
        with pytest.raises(AssertionError):
            assert_streamed()


STATISTICS = {
    "ratio": lambda means: means[0, 0] / means[1, 0],
    "correlation": lambda means: np.corrcoef(means[0], means[1])[0, 1],
}
"""Statistics of means over sequences, (4, 6) → a number."""


def assert_jackknifed(name: str) -> None:
    """The error is √((S − 1)/S Σ (θ₍ᵢ₎ − θ̄₍.₎)²), eq. 11.5 of Efron & Tibshirani."""
    values = np.random.default_rng(1).exponential(size=(7, 4, 6))
    compute = STATISTICS[name]
    without = np.array([compute(np.delete(values, left, axis=0).mean(axis=0)) for left in range(7)])
    np.testing.assert_allclose(leave_one_out(values), [np.delete(values, i, 0).mean(0) for i in range(7)], rtol=1e-12)
    error = np.sqrt(6 / 7 * ((without - without.mean(axis=0)) ** 2).sum(axis=0))
    whole = compute(values.mean(axis=0))
    found = estimate_jackknife(whole, without)
    np.testing.assert_allclose(found.error, error, rtol=1e-9)
    np.testing.assert_allclose(found.high, whole + stats.t.ppf(0.975, 6) * error, rtol=1e-9)
    np.testing.assert_allclose(found.low, whole - stats.t.ppf(0.975, 6) * error, rtol=1e-9)


class TestJackknife:
    @pytest.mark.parametrize("name", STATISTICS)
    def test_equals_the_formula_of_efron_and_tibshirani(self, name: str) -> None:
        assert_jackknifed(name)

    def test_of_a_mean_is_students_interval(self) -> None:
        values = draw(8)
        np.testing.assert_allclose(compute_pseudo_values(values.mean(axis=0), leave_one_out(values)), values)
        assert_students(estimate_jackknife(values.mean(axis=0), leave_one_out(values)), values)

    def test_wrong_pseudo_values_would_be_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The spread of the statistics without a sequence, S − 1 times too short."""
        monkeypatch.setattr(intervals, "compute_pseudo_values", lambda _whole, left_out: np.asarray(left_out))
        with pytest.raises(AssertionError):
            assert_jackknifed("ratio")

    def test_missing_numbers_are_left_out_of_means(self) -> None:
        values = draw(6, holes=0.6)
        values[:, 0, 0] = [1, *[np.nan] * 5]
        means = leave_one_out(values)
        for left in range(6):
            others = np.delete(values, left, axis=0)
            known = (~np.isnan(others)).sum(axis=0)
            expected = np.where(known > 0, np.nansum(others, axis=0) / np.maximum(known, 1), np.nan)
            np.testing.assert_allclose(means[left], expected)
        assert np.isnan(means[0, 0, 0])

    def test_without_a_statistic_there_is_no_interval(self) -> None:
        found = estimate_jackknife([2.0, 2.0], [[1.0, 1.0], [3.0, np.nan], [2.0, 2.0]])
        np.testing.assert_array_equal(np.isnan(found.low), [False, True])
        np.testing.assert_array_equal(found.value, 2)
        assert np.isnan(estimate_jackknife(2.0, [3.0]).error)

    def test_correlations_stay_in_their_domain(self) -> None:
        whole, without = 0.99, np.array([0.999, 0.9, 0.98, 0.995])
        found = estimate_correlation(whole, without)
        z = estimate_jackknife(np.arctanh(whole), np.arctanh(without))
        np.testing.assert_allclose([found.low, found.high], np.tanh([z.low, z.high]))
        assert -1 < found.low < found.value == pytest.approx(whole)
        assert found.value < found.high < 1 < estimate_jackknife(whole, without).high
        step = 1e-6  # to first order the error of tanh z
        slope = (np.tanh(z.value + step) - np.tanh(z.value - step)) / (2 * step)
        assert found.error == pytest.approx(z.error * slope, rel=1e-6)
        assert estimate_jackknife(whole, without, DIFFERENCE).high == 1

    def test_fishers_z_is_finite(self) -> None:
        z = transform_fisher([-1, 0.5, 1])
        assert np.isfinite(z).all()
        assert z[1] == pytest.approx(np.log(3) / 2)
        np.testing.assert_allclose(np.tanh(z), [-1, 0.5, 1])


def test_arrays_of_counts_have_each_their_own_t() -> None:
    found = make_estimate(np.zeros(3), np.ones(3), np.array([1, 2, 30]))
    np.testing.assert_allclose(found.high, [np.nan, stats.t.ppf(0.975, 1), stats.t.ppf(0.975, 29)])


def test_a_block_without_sequences_adds_none() -> None:
    summed = Moments()
    summed.add(np.zeros((0, 4)))
    assert summed.counts.shape == ()
    assert np.isnan(summed.mean)


def test_what_is_known_is_averaged_without_a_warning() -> None:
    given = np.array([[1.0, np.nan, np.nan], [3.0, 4.0, np.nan]])
    np.testing.assert_array_equal(average_known(given), [2.0, 4.0, np.nan])
