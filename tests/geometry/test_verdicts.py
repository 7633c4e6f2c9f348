"""Tests against thresholds and chance, their correction for many claims, and how many sequences decide."""

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from geometry.statistics.verdicts import (
    ERROR_RATE,
    LEAST_SEQUENCES,
    Sides,
    compare_with_chance,
    compare_with_threshold,
    correct_holm,
    count_sequences_needed,
    join_alternatives,
    join_parts,
)

VALUES = np.array([0.4, 0.9, 0.1, 0.7, 0.6])


class TestComparisons:
    @pytest.mark.parametrize("threshold", [-0.3, 0.3, 0.55, 2.0])
    @pytest.mark.parametrize("above", [True, False])
    def test_p_values_are_those_of_the_t_test(self, threshold: float, above: bool) -> None:
        found = compare_with_threshold([*VALUES, np.nan], threshold, above=above)
        sides = ("greater", "less") if above else ("less", "greater")
        expected = [stats.ttest_1samp(VALUES, threshold, alternative=side).pvalue for side in sides]
        np.testing.assert_allclose([found.supports, found.opposes], expected, rtol=1e-9)
        assert found.p == pytest.approx(stats.ttest_1samp(VALUES, threshold).pvalue)
        assert found.side == ("supported" if (threshold < VALUES.mean()) == above else "not supported")

    def test_another_statistic_than_the_mean(self) -> None:
        """The interval of the rule, 0.3 ± t · sd/√S, ends where the two-sided p value is 0.05."""
        reach = stats.t.ppf(0.975, 4) * stats.sem(VALUES)
        assert compare_with_threshold(VALUES, 0.3 - reach, above=True, value=0.3).p == pytest.approx(0.05)

    def test_numbers_without_spread_decide(self) -> None:
        same = np.full(4, 0.1) * 3  # 0.30000000000000004, not the threshold's double
        assert compare_with_threshold(same, 0.2, above=True) == Sides(0, 1)
        assert compare_with_threshold(same, 0.2, above=False) == Sides(1, 0)
        assert compare_with_threshold(np.zeros(4), 0.0, above=True) == Sides(1, 1)

    def test_one_sequence_decides_nothing(self) -> None:
        assert compare_with_threshold([5.0, np.nan], 0.0, above=True) == Sides(1, 1)


PARTS = (Sides(0.001, 0.999), Sides(0.02, 0.98), Sides(0.9, 0.1))


def test_a_conjunction_needs_all_parts_and_of_alternatives_one_is_enough() -> None:
    assert join_parts(PARTS) == Sides(0.9, pytest.approx(0.3))  # type: ignore[arg-type]
    assert join_parts(PARTS[:2]) == Sides(0.02, 1)
    assert join_alternatives(PARTS) == Sides(0.003, 0.999)
    assert join_alternatives(PARTS[:1]) == PARTS[0]


def adjust_by_closure(p: list[float]) -> list[float]:
    """Adjusted p values of the closed test: the largest Bonferroni p of any set of hypotheses with that one."""
    every = [chosen for size in range(1, len(p) + 1) for chosen in combinations(range(len(p)), size)]
    return [max(min(1.0, len(s) * min(p[i] for i in s)) for s in every if index in s) for index in range(len(p))]


@given(st.lists(st.floats(0, 1), max_size=7))
def test_holm_equals_the_closed_test(p: list[float]) -> None:
    np.testing.assert_allclose(correct_holm(p), adjust_by_closure(p))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda p: [min(1.0, len(p) * one) for one in p],  # Bonferroni
        lambda p: list(stats.false_discovery_control(p)),
        lambda p: [min(1.0, (len(p) - sorted(p).index(one)) * one) for one in p],  # not monotone
    ],
)
def test_other_corrections_would_be_noticed(wrong: Callable[[list[float]], list[float]]) -> None:
    p = [0.04, 0.01, 0.012, 0.03]
    assert not np.allclose(wrong(p), adjust_by_closure(p))


def needed(distance: float, claims: int = 29) -> int | None:
    """The number for a mean at a distance from the threshold, in standard deviations over sequences."""
    values = np.array([-1.0, 1.0, -1.0, 1.0, 0.0])
    return count_sequences_needed(values / values.std(ddof=1) - distance, 0.0, ERROR_RATE / 2 / claims)


class TestSequencesNeeded:
    @pytest.mark.parametrize(("distance", "claims"), [(5.0, 1), (1.3, 29), (0.15, 29)])
    def test_is_the_first_with_enough_power(self, distance: float, claims: int) -> None:
        def power(sequences: int) -> float:
            reach = stats.t.ppf(1 - 0.05 / claims / 2, sequences - 1)
            return float(stats.nct.sf(reach, sequences - 1, distance * np.sqrt(sequences)))

        expected = next(count for count in range(4, 2000) if power(count) >= 0.8)
        assert needed(distance, claims) == expected

    def test_the_published_distances_over_29_claims(self) -> None:
        for sequences, distance in ((8, 2.16), (16, 1.19), (24, 0.91), (32, 0.76), (64, 0.52)):
            assert (needed(distance + 0.005) or 0) <= sequences < (needed(distance - 0.005) or 0)

    def test_an_estimate_at_its_threshold_needs_no_number(self) -> None:
        assert needed(0.0) is None
        assert needed(1e-4) is None
        assert needed(0.02) is not None
        assert count_sequences_needed([1.0], 0.0, 0.005) is None
        assert count_sequences_needed([np.nan, np.nan], 0.0, 0.005) is None
        assert count_sequences_needed([0.5] * 6, 0.0, 0.001) == LEAST_SEQUENCES


def draw(ratio: float, sequences: int, elements: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Shares and chance (sequence, element) whose expected ratio is given."""
    rng = np.random.default_rng(seed)
    chance = rng.uniform(0.05, 0.1, (sequences, elements))
    return chance * ratio + rng.normal(0, 0.01, chance.shape), chance


def compare_by_hand(shares: np.ndarray, chance: np.ndarray) -> tuple[float, float, float]:
    """Ratio of means and the ends of its jackknife interval."""
    count, whole = len(shares), shares.mean() / chance.mean()
    without = [np.delete(shares, s).mean() / np.delete(chance, s).mean() for s in range(count)]
    error = np.sqrt((count - 1) / count * np.sum((np.array(without) - np.mean(without)) ** 2))
    reach = stats.t.ppf(0.975, count - 1) * error
    return whole, whole - reach, whole + reach


def test_it_is_the_ratio_of_means_with_the_jackknife_s_interval() -> None:
    shares, chance = draw(3, 8, 5)
    found = compare_with_chance(shares, chance).ratio
    expected = np.array([compare_by_hand(*pair) for pair in zip(shares.T, chance.T, strict=True)]).T
    np.testing.assert_allclose((found.value, found.low, found.high), expected, rtol=1e-10)
    of_ratios = (shares / chance).mean(axis=0)
    assert np.abs(of_ratios - expected[0]).min() > 1e-4  # the mean of ratios is another number


def test_a_lift_is_found_where_there_is_one_and_rarely_where_there_is_none() -> None:
    assert (compare_with_chance(*draw(2, 8, 20)).p_holm < 0.05).mean() > 0.9
    wrong = [compare_with_chance(*draw(1, 8, 20, seed)) for seed in range(40)]
    assert sum((lift.p_holm < 0.05).any() for lift in wrong) <= 6  # 2 are expected, more than 6 in 1 of 300 trials
    assert 0.02 < np.mean([lift.p < 0.05 for lift in wrong]) < 0.1


def test_too_few_sequences_have_no_test_and_no_chance_no_lift() -> None:
    for sequences in (1, 3):
        found = compare_with_chance(*draw(2, sequences, 2))
        assert np.isnan([found.p, found.p_holm]).all()
        assert np.isnan(found.ratio.low).all() == (sequences == 1)
    shares, chance = draw(2, 8, 2)
    chance[:, 0] = 0
    found = compare_with_chance(shares, chance)
    assert np.isnan(found.ratio.value).tolist() == np.isnan(found.p).tolist() == [True, False]


def test_elements_that_lack_other_sequences_or_all_are_compared_each_by_itself() -> None:
    shares, chance = draw(2, 8, 4)
    shares[2, 0] = chance[5, 1] = np.nan
    shares[:, 2] = np.nan
    found = compare_with_chance(shares, chance)
    assert np.isnan(found.ratio.value).tolist() == np.isnan(found.p).tolist() == [False, False, True, False]
    for element, left_out in ((0, 2), (1, 5), (3, [])):
        kept = np.delete(shares[:, element], left_out), np.delete(chance[:, element], left_out)
        assert (found.ratio.value[element], found.ratio.low[element]) == pytest.approx(compare_by_hand(*kept)[:2])
        assert found.p[element] == pytest.approx(stats.ttest_rel(*kept).pvalue)
