"""Differences of two samples of sequences, and onsets, compared with scipy and with the definition."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from geometry.selection.overlap import count_shared
from geometry.statistics.intervals import estimate_difference, find_onset


def test_a_paired_difference_is_student_s_of_the_differences() -> None:
    generator = np.random.default_rng(1)
    shared = generator.normal(size=(8, 1)) * 10
    values, other = shared + generator.normal(size=(8, 5)), shared + generator.normal(size=(8, 5))
    found = estimate_difference(values, other, paired=True)
    expected = stats.ttest_rel(values, other, axis=0).confidence_interval()
    np.testing.assert_allclose([found.low, found.high], [expected.low, expected.high], rtol=1e-9)
    apart = estimate_difference(values, other, paired=False)
    assert (apart.high - apart.low > 2 * (found.high - found.low)).all(), "pairing made no difference"


def test_an_unpaired_difference_is_welch_s() -> None:
    generator = np.random.default_rng(2)
    values, other = generator.normal(size=(9, 4)), 3 * generator.normal(size=(5, 4)) + 1
    values[0, 2] = other[3, 1] = np.nan
    found = estimate_difference(values, other, paired=False)
    for column in range(4):
        one, two = (part[:, column][~np.isnan(part[:, column])] for part in (values, other))
        expected = stats.ttest_ind(one, two, equal_var=False).confidence_interval()
        np.testing.assert_allclose([found.low[column], found.high[column]], [expected.low, expected.high], rtol=1e-9)
        pooled = stats.ttest_ind(one, two).confidence_interval()
        assert not math.isclose(found.low[column], pooled.low, rel_tol=1e-6), "the spreads were pooled"


def test_samples_without_spread_or_with_one_sequence() -> None:
    equal = estimate_difference(np.full((4, 1), 0.5), np.full((4, 1), 0.25), paired=False)
    assert (equal.value[0], equal.low[0], equal.high[0]) == (0.25, 0.25, 0.25)
    alone = estimate_difference(np.array([[1.0]]), np.array([[0.5], [0.6]]), paired=False)
    assert alone.value[0] == pytest.approx(0.45)
    assert np.isnan([alone.low[0], alone.high[0]]).all()


RISING = [0.0, 0.1, 0.2, 0.35, 0.5, 0.7]


@pytest.mark.parametrize(
    ("value", "half", "threshold", "expected"),
    [
        (RISING, 0.05, 0.4, ("appears", 4, 3, 4)),  # the interval of member 3 ends at the threshold
        (RISING, 0.08, 0.4, ("appears", 4, 2, 4)),  # that of member 3 holds it
        (RISING, 0.15, 0.4, ("appears", 4, 2, 5)),  # and that of member 4
        (RISING, 0.35, 0.4, ("undecided", None, None, None)),  # and that of the last one
        (RISING, 0.45, 0.4, ("undecided", None, None, None)),
        (RISING, 0.05, 0.9, ("never", None, None, None)),
        (RISING, 0.25, 0.9, ("undecided", None, None, None)),
        (RISING, 0.05, -0.1, ("always", None, None, None)),
        (RISING, 0.15, -0.1, ("undecided", None, None, None)),
        ([0.0, 0.9, 0.1, 0.8, 0.8], 0.05, 0.4, ("appears", 3, 2, 3)),  # it falls again in between
        ([0.9, 0.9, 0.1], 0.05, 0.4, ("never", None, None, None)),
        ([0.0, math.nan, math.nan, 0.9], 0.05, 0.4, ("appears", 3, 0, 3)),
        ([math.nan, math.nan], 0.05, 0.4, ("undecided", None, None, None)),
        ([0.0, 0.9], math.nan, 0.4, ("undecided", None, None, None)),  # one sequence has no interval
    ],
)
def test_onsets(value: list[float], half: float, threshold: float, expected: tuple[object, ...]) -> None:
    values = np.array(value)
    found = find_onset(values, values - half, values + half, threshold)
    assert (found.state, found.first, found.last_below, found.first_above) == expected


@given(
    values=st.lists(st.floats(0, 1) | st.just(math.nan), min_size=1, max_size=9),
    halves=st.lists(st.floats(0, 0.5), min_size=9, max_size=9),
)
def test_an_onset_lies_between_its_members(values: list[float], halves: list[float]) -> None:
    value, half = np.array(values), np.array(halves[: len(values)])
    low, high = value - half, value + half
    found = find_onset(value, low, high, 0.5)
    rest = value[~np.isnan(value)]
    assert not (found.state in {"appears", "always"} and rest[-1] <= 0.5)
    assert not (found.state == "never" and rest[-1] > 0.5)
    assert (found.first is None) == (found.state != "appears")
    if found.first is not None and found.last_below is not None and found.first_above is not None:
        assert found.last_below < found.first <= found.first_above
        later = value[found.first :]
        assert (later[~np.isnan(later)] > 0.5).all()
        assert high[found.last_below] <= 0.5 < low[found.first_above]


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
    assert (count_shared(ranked, ranked, counts)[0] == counts).all()
    assert count_shared(ranked, ranked, counts)[1, 2].tolist() == [1, 2, 4, 4]
