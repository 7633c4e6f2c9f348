"""Associations over heads within layers, against SciPy, sums over all arrangements, and planted models."""

import math
from collections.abc import Callable
from itertools import permutations, product

import numpy as np
import pytest
from scipy import stats

from geometry.statistics import arrangements
from geometry.statistics.arrangements import (
    FIRST_DRAWS,
    Arrangements,
    Association,
    associate,
    correlate_heads,
    rank_within,
)

LAYERS = np.repeat([0, 1, 2], [6, 4, 4])
GROUPS = np.array([0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 7, 7, 8, 8])
"""KV groups of two heads in layers 0 and 2, of one in layer 1."""

WAYS = math.factorial(3) * math.factorial(4) * math.factorial(2)


def draw(strength: float, *, sequences: int = 5, depth: float = 0.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two quantities (sequence, head) with a common part over groups, and one over layers."""
    rng = np.random.default_rng(seed)
    common, noise = rng.standard_normal(GROUPS.max() + 1)[GROUPS], rng.standard_normal((2, sequences, GROUPS.size))
    both = strength * common + noise + depth * LAYERS
    return both[0], both[1]


def centre(values: np.ndarray) -> np.ndarray:
    """One sequence's values minus their layer's mean."""
    return np.concatenate([values[layer == LAYERS] - values[layer == LAYERS].mean() for layer in np.unique(LAYERS)])


def correlate(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.array([stats.pearsonr(centre(one), centre(other)).statistic for one, other in zip(x, y, strict=True)])


def arrange_all(y: np.ndarray) -> list[np.ndarray]:
    """Every arrangement of the values of KV groups within layers, of one size each here."""
    blocks = [sorted(set(GROUPS[layer == LAYERS])) for layer in np.unique(LAYERS)]
    found = []
    for orders in product(*(permutations(block) for block in blocks)):
        source = [group for order in orders for group in order]
        found.append(np.concatenate([y[:, np.flatnonzero(group == GROUPS)] for group in source], axis=1))
    return found


def assert_right(x: np.ndarray, y: np.ndarray) -> None:
    found = associate(x, y, LAYERS, GROUPS)
    np.testing.assert_allclose(found.of_sequences, np.arctanh(correlate(x, y)), rtol=1e-9)
    assert found.heads == GROUPS.size
    arranged = get_arranged(found)
    assert arranged.ways == WAYS
    drawn = np.array([correlate(x, other).sum() for other in arrange_all(y)])
    own = correlate(x, y).sum()
    for above, exact in ((True, (drawn >= own - 1e-9).mean()), (False, (drawn <= own + 1e-9).mean())):
        error = math.sqrt(exact * (1 - exact) / FIRST_DRAWS)
        assert abs(arranged.p(above=above) - exact) < 5 * error + 2 / FIRST_DRAWS


def get_arranged(association: Association) -> Arrangements:
    assert association.arranged is not None
    return association.arranged


def wrong_places(per_head: bool) -> Callable[[np.ndarray, np.ndarray], list[np.ndarray]]:
    """Blocks of single heads, or of all layers together."""

    def find(layer: np.ndarray, group: np.ndarray) -> list[np.ndarray]:
        if per_head:
            return [np.flatnonzero(layer == number)[:, None] for number in np.unique(layer)]
        sizes = {number: np.flatnonzero(group == number) for number in np.unique(group)}
        return [np.stack([heads for heads in sizes.values() if heads.size == size]) for size in (1, 2)]

    return find


class TestAssociate:
    @pytest.mark.parametrize("strength", [0.0, 1.0, 3.0])
    def test_equals_scipy_and_all_arrangements(self, strength: float) -> None:
        assert_right(*draw(strength, depth=2.0))

    @pytest.mark.parametrize("per_head", [True, False])
    def test_wrong_arrangements_would_be_noticed(self, per_head: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(arrangements, "_find_blocks", wrong_places(per_head))
        monkeypatch.setitem(globals(), "WAYS", pytest.approx(WAYS, rel=np.inf))  # only p is looked at
        with pytest.raises(AssertionError):
            assert_right(*draw(1.0, depth=2.0))

    def test_depth_alone_is_no_association(self) -> None:
        """Both rise with depth: over all heads they correlate, within layers not."""
        x, y = draw(0.0, depth=5.0, sequences=40)
        assert correlate_heads(x, y).mean() > 0.9
        assert abs(np.tanh(associate(x, y, LAYERS, GROUPS).of_sequences).mean()) < 0.15

    def test_a_difference_of_two(self) -> None:
        (x, y), (less, _) = draw(2.0), draw(0.0, seed=1)
        found = associate(x, y, LAYERS, GROUPS, less=less)
        z = np.arctanh(correlate(x, y)) - np.arctanh(correlate(less, y))
        np.testing.assert_allclose(found.of_sequences, z, rtol=1e-9)
        swapped = associate(less, y, LAYERS, GROUPS, less=x)
        np.testing.assert_allclose(swapped.of_sequences, -z, rtol=1e-9)
        assert get_arranged(swapped).below == get_arranged(found).above

    def test_heads_without_a_number_are_left_out(self) -> None:
        x, y = draw(1.0)
        x[2, 3] = y[0, 9] = np.nan
        others = np.delete(np.arange(GROUPS.size), [3, 9])
        found = associate(x, y, LAYERS, GROUPS)
        alone = associate(x[:, others], y[:, others], LAYERS[others], GROUPS[others])
        np.testing.assert_array_equal(found.of_sequences, alone.of_sequences)
        # layer 0: two whole groups, and half of one
        assert (found.heads, get_arranged(found).ways) == (
            12,
            2 * 1 * 6 * 2,
        )

    def test_a_quantity_that_does_not_vary_has_no_correlation(self) -> None:
        x, y = draw(1.0)
        x[1] = 0.1 * LAYERS  # equal within layers, up to rounding
        found = associate(x, y, LAYERS, GROUPS)
        np.testing.assert_array_equal(np.isnan(found.of_sequences), [False, True, False, False, False])
        none = associate(np.zeros_like(x), y, LAYERS, GROUPS)
        assert np.isnan([*none.of_sequences, none.p]).all()
        assert none.arranged is None

    def test_shapes_must_agree(self) -> None:
        x, y = draw(1.0)
        with pytest.raises(ValueError, match="one shape"):
            associate(x, y[:-1], LAYERS, GROUPS)
        with pytest.raises(ValueError, match="each of 14 heads"):
            associate(x, y, LAYERS, GROUPS[1:])


class TestRanks:
    def test_are_those_of_scipy_within_layers(self) -> None:
        values = np.round(draw(1.0)[0])  # with ties
        ranks = rank_within(values, LAYERS)
        for sequence, layer in product(range(len(values)), np.unique(LAYERS)):
            own = layer == LAYERS
            np.testing.assert_allclose(ranks[sequence, own], stats.rankdata(values[sequence, own]) / own.sum())

    def test_missing_numbers_have_no_rank(self) -> None:
        ranks = rank_within([[3.0, np.nan, 1.0, 5.0]], [0, 0, 0, 1])
        np.testing.assert_allclose(ranks, [[2 / 3, np.nan, 1 / 3, 1]])


class TestCorrelations:
    def test_equal_scipy_where_both_are_known(self) -> None:
        x, y = draw(1.0)
        x[0, :4] = np.nan
        y[0, 3:6] = np.nan
        found = correlate_heads(x, y)
        for row in range(len(x)):
            known = ~np.isnan(x[row] + y[row])
            assert found[row] == pytest.approx(stats.pearsonr(x[row, known], y[row, known]).statistic)

    def test_of_two_heads_or_equal_numbers_there_is_none(self) -> None:
        assert np.isnan(correlate_heads([1.0, 2.0], [1.0, 2.0]))
        assert np.isnan(correlate_heads([0.1, 0.1 + 1e-17, 0.1], [1.0, 2.0, 4.0]))
        assert correlate_heads([1.0, 2.0, 3.0], [-2.0, -4.0, -6.0]) == pytest.approx(-1)
