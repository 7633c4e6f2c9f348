"""How many times chance: the ratio of means, its jackknife written out, and how often one is found where none is."""

import numpy as np
import pytest
from scipy import stats

from geometry.statistics.verdicts import compare_with_chance


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


def test_sequences_that_lack_an_element_are_left_out_of_it_alone() -> None:
    shares, chance = draw(3, 8, 2)
    shares[2, 0] = chance[2, 0] = np.nan
    found = compare_with_chance(shares, chance).ratio
    kept = np.delete(shares[:, 0], 2), np.delete(chance[:, 0], 2)
    assert (found.value[0], found.low[0], found.high[0]) == pytest.approx(compare_by_hand(*kept))
    assert (found.value[1], found.low[1], found.high[1]) == pytest.approx(compare_by_hand(shares[:, 1], chance[:, 1]))


def test_a_lift_is_found_where_there_is_one_and_rarely_where_there_is_none() -> None:
    assert (compare_with_chance(*draw(2, 8, 20)).p_holm < 0.05).mean() > 0.9
    wrong = [compare_with_chance(*draw(1, 8, 20, seed)) for seed in range(40)]
    assert sum((lift.p_holm < 0.05).any() for lift in wrong) <= 6  # 2 are expected, more than 6 in 1 of 300 trials
    assert 0.02 < np.mean([lift.p < 0.05 for lift in wrong]) < 0.1


@pytest.mark.parametrize("sequences", [1, 3])
def test_too_few_sequences_have_no_test(sequences: int) -> None:
    found = compare_with_chance(*draw(2, sequences, 2))
    assert np.isnan(found.p).all()
    assert np.isnan(found.p_holm).all()
    assert np.isnan(found.ratio.low).all() == (sequences == 1)


def test_no_chance_has_no_lift() -> None:
    shares, chance = draw(2, 8, 2)
    chance[:, 0] = 0
    found = compare_with_chance(shares, chance)
    assert np.isnan(found.ratio.value).tolist() == [True, False]
    assert np.isnan(found.p).tolist() == [True, False]


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
