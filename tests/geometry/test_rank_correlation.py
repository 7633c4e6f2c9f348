"""Rank correlations over heads: against SciPy and slow readings, and how often intervals and p are wrong."""

import itertools

import numpy as np
import pytest
from scipy.stats import spearmanr

from geometry.statistics.rank_correlation import _exchange_groups, rank_correlation

RNG = np.random.default_rng(0)
GROUPS = np.repeat(np.arange(12), 4)


def test_it_is_spearmans_with_mean_ranks_for_ties() -> None:
    x, y = RNG.integers(0, 9, (2, 48)).astype(float)
    found = rank_correlation(x, y, GROUPS)
    assert found.correlation == pytest.approx(spearmanr(x, y).statistic, abs=1e-12)
    assert (found.heads, found.groups) == (48, 12)
    assert rank_correlation(x, np.exp(x), GROUPS).correlation == pytest.approx(1)
    assert found.correlation != pytest.approx(np.corrcoef(x, np.exp(y))[0, 1], abs=1e-3)


def test_heads_without_a_number_take_no_part() -> None:
    x, y = RNG.normal(size=(2, 48))
    y[:8], x[11] = np.nan, np.inf
    found = rank_correlation(x, y, GROUPS)
    known = np.setdiff1d(np.arange(8, 48), [11])
    assert found.correlation == pytest.approx(spearmanr(x[known], y[known]).statistic)
    assert (found.heads, found.groups) == (39, 10)


@pytest.mark.parametrize(("x", "y"), [([1, 2], [2, 1]), ([1, 1, 1], [1, 2, 3]), ([np.nan] * 4, [1, 2, 3, 4])])
def test_what_has_no_correlation(x: list[float], y: list[float]) -> None:
    found = rank_correlation(x, y, np.arange(len(x)))
    assert np.isnan([found.correlation, found.low, found.high, found.p]).all()


def test_one_group_has_no_interval() -> None:
    found = rank_correlation([1, 2, 3, 5], [1, 3, 2, 4], [0, 0, 0, 0])
    assert found.correlation == pytest.approx(0.8)
    assert np.isnan([found.low, found.high]).all()
    assert found.p == 1


def test_p_is_the_share_of_all_permutations_of_groups() -> None:
    x, y = RNG.normal(size=(2, 10))
    groups = np.repeat(np.arange(5), 2)
    observed = abs(spearmanr(x, y).statistic)
    all_of_them = [
        abs(spearmanr(x[np.concatenate([[2 * group, 2 * group + 1] for group in order])], y).statistic)
        for order in itertools.permutations(range(5))
    ]
    expected = np.mean([one >= observed - 1e-12 for one in all_of_them])
    assert rank_correlation(x, y, groups, replicates=5000).p == pytest.approx(expected, abs=0.03)


def test_groups_of_one_size_change_places_as_they_are() -> None:
    members = [np.array([0, 1]), np.array([2]), np.array([3, 4]), np.array([5]), np.array([6, 7])]
    seen = set()
    for _ in range(200):
        index = _exchange_groups(members, RNG)
        assert sorted(index) == list(range(8))
        assert {tuple(index[group]) for group in members} == {tuple(group) for group in members}
        seen.add(tuple(index))
    assert len(seen) == 6 * 2


@pytest.mark.slow
def test_heads_that_share_a_group_are_not_independent() -> None:
    """Numbers of groups, repeated for their heads: with groups, p is right; as if heads were independent, it is not."""
    wrong = {True: 0, False: 0}
    for _ in range(200):
        x, y = RNG.normal(size=(2, 12)).repeat(4, axis=1)
        for grouped in wrong:
            labels = GROUPS if grouped else np.arange(48)
            wrong[grouped] += rank_correlation(x, y, labels, replicates=99).p <= 0.05
    assert wrong[True] <= 0.1 * 200
    assert wrong[False] > 0.25 * 200


@pytest.mark.slow
def test_the_interval_holds_what_is_true() -> None:
    inside = 0
    for _ in range(100):
        shared = RNG.normal(size=(40, 1))
        x, y = (shared + RNG.normal(size=(40, 2))).ravel(), (shared + RNG.normal(size=(40, 2))).ravel()
        found = rank_correlation(x, y, np.repeat(np.arange(40), 2), replicates=200)
        inside += found.low <= 6 / np.pi * np.arcsin(0.5 / 2) <= found.high
    assert 85 <= inside <= 100


def test_it_is_the_same_for_a_seed() -> None:
    x, y = RNG.normal(size=(2, 48))
    assert rank_correlation(x, y, GROUPS, seed=3) == rank_correlation(x, y, GROUPS, seed=3)
    assert rank_correlation(x, y, GROUPS, seed=3).low != rank_correlation(x, y, GROUPS, seed=4).low


def test_other_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="the same length"):
        rank_correlation([1, 2, 3], [1, 2], [0, 1, 2])
