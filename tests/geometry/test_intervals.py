"""Means, intervals, the jackknife, differences and planes of curves, against SciPy and formulas of the textbooks."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dagster_project.analysis.claims.plane import fit_plane
from dagster_project.analysis.families import count_shared
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
    estimate_difference,
    estimate_jackknife,
    estimate_mean,
    leave_one_out,
    make_estimate,
    transform_fisher,
)


def draw(sequences: int, *, holes: float = 0.0) -> np.ndarray:
    """Quantities (sequences, 3, 5), skewed, some of them missing."""
    rng = np.random.default_rng(sequences)
    values = rng.exponential(size=(sequences, 3, 5))
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


def assert_streamed(cut: tuple[int, ...] = (0, 1, 1, 4, 9)) -> None:
    """Moments and means that were added in blocks, also in none, are those of SciPy and NumPy."""
    values, summed, mean = draw(9, holes=0.3), Moments(), Mean()
    values[:, 2, 4] = np.nan
    for start, end in itertools.pairwise(cut):
        summed.add(values[start:end])
        mean.add(values[start:end])
    assert_students(summed.estimate(), values)
    np.testing.assert_array_equal(summed.counts, (~np.isnan(values)).sum(axis=0))
    counts = summed.counts.astype(float)
    wanted = np.nansum(values, axis=0) / np.where(counts > 0, counts, np.nan)
    np.testing.assert_allclose([mean.value, average_known(values)], [wanted, wanted], rtol=1e-12)


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

    def test_ends_are_clipped_to_the_domain_and_each_count_has_its_own_t(self) -> None:
        found = estimate_mean(np.array([[0.0, 0.9], [0.02, 1.0]]), SHARE)
        assert (found.low[0], found.high[1]) == (0, 1)
        assert found.high[0] == pytest.approx(0.01 + stats.t.ppf(0.975, 1) * 0.01)
        ends = make_estimate(np.zeros(3), np.ones(3), np.array([1, 2, 30])).high
        np.testing.assert_allclose(ends, [np.nan, stats.t.ppf(0.975, 1), stats.t.ppf(0.975, 29)])

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


def assert_jackknifed(compute: Callable[[np.ndarray], float]) -> None:
    """The error is √((S − 1)/S Σ (θ₍ᵢ₎ − θ̄₍.₎)²), eq. 11.5 of Efron & Tibshirani."""
    values = np.random.default_rng(1).exponential(size=(7, 4, 6))
    without = np.array([compute(np.delete(values, left, axis=0).mean(axis=0)) for left in range(7)])
    error = np.sqrt(6 / 7 * ((without - without.mean(axis=0)) ** 2).sum(axis=0))
    whole = compute(values.mean(axis=0))
    found = estimate_jackknife(whole, without)
    reach = stats.t.ppf(0.975, 6) * error
    np.testing.assert_allclose([found.error, found.low, found.high], [error, whole - reach, whole + reach], rtol=1e-9)


class TestJackknife:
    def test_equals_the_formula_of_efron_and_tibshirani(self) -> None:
        assert_jackknifed(lambda means: means[0, 0] / means[1, 0])
        assert_jackknifed(lambda means: np.corrcoef(means[0], means[1])[0, 1])
        values = draw(8)
        np.testing.assert_allclose(compute_pseudo_values(values.mean(axis=0), leave_one_out(values)), values)

    def test_wrong_pseudo_values_would_be_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The spread of the statistics without a sequence, S − 1 times too short."""
        monkeypatch.setattr(intervals, "compute_pseudo_values", lambda _whole, left_out: np.asarray(left_out))
        with pytest.raises(AssertionError):
            assert_jackknifed(lambda means: means[0, 0] / means[1, 0])

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
        assert np.isfinite(transform_fisher([-1, 0.5, 1])).all()


class TestDifferences:
    def test_a_paired_difference_is_student_s_of_the_differences(self) -> None:
        generator = np.random.default_rng(1)
        shared = generator.normal(size=(8, 1)) * 10
        values, other = shared + generator.normal(size=(8, 5)), shared + generator.normal(size=(8, 5))
        found = estimate_difference(values, other, paired=True)
        expected = stats.ttest_rel(values, other, axis=0).confidence_interval()
        np.testing.assert_allclose([found.low, found.high], [expected.low, expected.high], rtol=1e-9)
        apart = estimate_difference(values, other, paired=False)
        assert (apart.high - apart.low > 2 * (found.high - found.low)).all(), "pairing made no difference"

    def test_an_unpaired_difference_is_welch_s(self) -> None:
        generator = np.random.default_rng(2)
        values, other = generator.normal(size=(9, 4)), 3 * generator.normal(size=(5, 4)) + 1
        values[0, 2] = other[3, 1] = np.nan
        found = estimate_difference(values, other, paired=False)
        for column in range(4):
            one, two = (part[:, column][~np.isnan(part[:, column])] for part in (values, other))
            ends = stats.ttest_ind(one, two, equal_var=False).confidence_interval()
            np.testing.assert_allclose([found.low[column], found.high[column]], [ends.low, ends.high], rtol=1e-9)
            pooled = stats.ttest_ind(one, two).confidence_interval()
            assert not math.isclose(found.low[column], pooled.low, rel_tol=1e-6), "the spreads were pooled"

    def test_samples_without_spread_or_with_one_sequence(self) -> None:
        equal = estimate_difference(np.full((4, 1), 0.5), np.full((4, 1), 0.25), paired=False)
        assert (equal.value[0], equal.low[0], equal.high[0]) == (0.25, 0.25, 0.25)
        alone = estimate_difference(np.array([[1.0]]), np.array([[0.5], [0.6]]), paired=False)
        assert alone.value[0] == pytest.approx(0.45)
        assert np.isnan([alone.low[0], alone.high[0]]).all()


def test_shared_keys_are_counted_exactly() -> None:
    generator = np.random.default_rng(3)
    ranked, other = (generator.permuted(np.tile(np.arange(20), (2, 3, 1)), axis=-1)[..., :9] for _ in range(2))
    ranked[1, 2, 4:] = other[1, 2, 5:] = -1
    counts = np.array([1, 2, 7, 9])
    found = count_shared(ranked, other, counts)
    for place in np.ndindex(2, 3):
        for index, count in enumerate(counts):
            chosen = [{key for key in row[place][:count].tolist() if key >= 0} for row in (ranked, other)]
            assert found[place][index] == len(chosen[0] & chosen[1])
    assert len(np.unique(found)) > 3
    assert count_shared(ranked, ranked, counts)[1, 2].tolist() == [1, 2, 4, 4]


def decompose(curves: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Axes, points and share from the singular values of the centred curves."""
    centred = curves - curves.mean(axis=0)
    _, lengths, directions = np.linalg.svd(centred)
    axes = directions[:2] * np.where(directions[:2].sum(axis=1) < 0, -1, 1)[:, None]
    return axes, centred @ axes.T, float((lengths[:2] ** 2).sum() / (lengths**2).sum())


@pytest.mark.parametrize("shape", [(30, 5), (4, 12), (3, 2), (2, 7)])
def test_axes_points_and_share_are_those_of_the_singular_values(shape: tuple[int, int]) -> None:
    curves = np.random.default_rng(1).normal(size=shape) * np.arange(1, shape[1] + 1)
    found, (axes, points, share) = fit_plane(curves), decompose(curves)
    if shape[0] == 2:
        axes[1], points[:, 1] = 0, 0  # two curves differ in one direction
    np.testing.assert_allclose(found.axes, axes, atol=1e-9)
    np.testing.assert_allclose(found.points, points, atol=1e-9)
    assert found.share == pytest.approx(share)
    wrong, _, _ = decompose(curves + 3 * np.arange(shape[0])[:, None])
    assert not np.allclose(found.axes, wrong, atol=1e-3), "other curves have other axes"


def test_a_number_that_is_not_known_counts_as_the_mean_of_the_others() -> None:
    curves = np.random.default_rng(2).normal(size=(9, 4))
    filled = curves.copy()
    filled[3, 1] = np.delete(curves[:, 1], 3).mean()
    curves[3, 1] = np.nan
    np.testing.assert_allclose(fit_plane(curves).points, fit_plane(filled).points)
    lacking = np.column_stack([curves, np.full(9, np.nan)])
    np.testing.assert_allclose(fit_plane(lacking).points, fit_plane(curves).points, atol=1e-12)


@pytest.mark.parametrize("curves", [np.ones((5, 3)), np.ones((1, 3)), np.full((4, 3), np.nan)])
def test_curves_that_are_equal_have_no_plane(curves: np.ndarray) -> None:
    found = fit_plane(curves)
    assert np.isnan(found.share)
    assert not found.points.any()
    assert not found.axes.any()
