"""Random arrangements of heads and layers: p values, associations and changes, against sums over all arrangements."""

import math
from collections.abc import Callable
from itertools import permutations, product

import numpy as np
import pytest
from scipy import stats

from geometry.statistics import arrangements
from geometry.statistics.arrangements import (
    FIRST_DRAWS,
    LUCK,
    MOST_DRAWS,
    Arrangements,
    Association,
    End,
    arrange_layers,
    associate,
    build_shapes,
    correlate_heads,
    measure_change,
    rank_within,
    settle,
)


def make(share: float, seed: int = 0) -> Arrangements:
    """Arrangements of which this share is as high, and none as low."""
    return Arrangements(lambda rng, draws: (int(rng.binomial(draws, share)), 0), "9 KV groups", 1e6, seed)


def test_p_values_count_the_data_as_one_arrangement() -> None:
    drawn = make(0.0)
    assert (drawn.draws, drawn.p(above=True)) == (FIRST_DRAWS, 1 / (FIRST_DRAWS + 1))
    drawn.extend(25_000)
    assert (drawn.draws, drawn.p(above=True)) == (FIRST_DRAWS + 25_000, 1 / (FIRST_DRAWS + 25_001))


@pytest.mark.parametrize("share", [0.0, 0.003, 0.4])
def test_intervals_are_those_of_clopper_and_pearson(share: float) -> None:
    drawn = make(share)
    expected = stats.binomtest(drawn.above, drawn.draws).proportion_ci(1 - LUCK)
    found = [drawn.p(above=True, end=end) for end in ("low", "high")]
    np.testing.assert_allclose(found, [expected.low, expected.high], rtol=1e-6, atol=1e-15)


@pytest.mark.parametrize(("share", "draws"), [(0.03, FIRST_DRAWS), (0.05, MOST_DRAWS)])
def test_they_are_drawn_until_the_verdict_is_stable_or_they_are_most(share: float, draws: int) -> None:
    """At a level of 5 %: a p far from it needs the first, one that equals it never gets enough."""
    drawn = make(share)

    def decide(end: End) -> dict[str, bool]:
        return {"claim": drawn.p(above=True, end=end) <= 0.05}

    settle({"claim": [drawn]}, decide)
    assert drawn.draws == draws


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
    return np.array([np.corrcoef(centre(one), centre(other))[0, 1] for one, other in zip(x, y, strict=True)])


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
    def test_equals_scipy_and_all_arrangements(self) -> None:
        assert_right(*draw(1.0, depth=2.0))

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
        assert (found.heads, get_arranged(found).ways) == (12, 2 * 1 * 6 * 2)  # layer 0: two whole groups, half of one

    def test_a_quantity_that_does_not_vary_has_no_correlation(self) -> None:
        x, y = draw(1.0)
        x[1] = 0.1 * LAYERS  # equal within layers, up to rounding
        found = associate(x, y, LAYERS, GROUPS)
        np.testing.assert_array_equal(np.isnan(found.of_sequences), [False, True, False, False, False])
        none = associate(np.zeros_like(x), y, LAYERS, GROUPS)
        assert np.isnan([*none.of_sequences, none.p]).all()
        assert none.arranged is None


def test_missing_numbers_have_no_rank() -> None:
    ranks = rank_within([[3.0, np.nan, 1.0, 5.0]], [0, 0, 0, 1])
    np.testing.assert_allclose(ranks, [[2 / 3, np.nan, 1 / 3, 1]])


def test_correlations_equal_scipy_where_both_are_known() -> None:
    x, y = draw(1.0)
    x[0, :4] = np.nan
    y[0, 3:6] = np.nan
    found = correlate_heads(x, y)
    for row in range(len(x)):
        known = ~np.isnan(x[row] + y[row])
        assert found[row] == pytest.approx(stats.pearsonr(x[row, known], y[row, known]).statistic)


def test_two_heads_or_equal_numbers_have_no_correlation() -> None:
    assert np.isnan(correlate_heads([1.0, 2.0], [1.0, 2.0]))
    assert np.isnan(correlate_heads([0.1, 0.1 + 1e-17, 0.1], [1.0, 2.0, 4.0]))
    assert correlate_heads([1.0, 2.0, 3.0], [-2.0, -4.0, -6.0]) == pytest.approx(-1)


COUNT = 5


def explain(profile: np.ndarray, shape: np.ndarray) -> float:
    """The correlation of a profile with a shape times the profile's spread: the slope of a line, by NumPy, scaled."""
    return float(np.cov(profile, shape)[0, 1] * np.sqrt(len(shape) - 1) / np.std(shape, ddof=1))


def list_shapes() -> list[np.ndarray]:
    along = np.arange(COUNT)
    return [*((along >= place).astype(float) for place in range(1, COUNT)), along.astype(float)]


def arrange_slowly(profile: np.ndarray, exchanged: tuple[tuple[int, ...], ...]) -> tuple[float, float]:
    """Shares of all orders, of layers among those they are exchanged with, with as large a rise, and a fall."""
    found = [
        [explain(profile[list(order)], shape) for shape in list_shapes()]
        for order in permutations(range(COUNT))
        if all(any({place, layer} <= set(kind) for kind in exchanged) for place, layer in enumerate(order))
    ]
    own = [explain(profile, shape) for shape in list_shapes()]
    high = np.mean([max(one) >= max(own) - 1e-9 for one in found])
    low = np.mean([min(one) <= min(own) + 1e-9 for one in found])
    return float(high), float(low)


@pytest.mark.parametrize("exchanged", [((0, 1, 2, 3, 4),), ((0, 2, 4), (1, 3))], ids=["all", "kinds"])
def test_p_values_are_those_of_all_orders(exchanged: tuple[tuple[int, ...], ...]) -> None:
    rng = np.random.default_rng(0)
    profile = rng.standard_normal(COUNT) + 0.5 * np.arange(COUNT)
    drawn = arrange_layers(profile, build_shapes(COUNT), [np.array(kind) for kind in exchanged])
    for above, exact in zip((True, False), arrange_slowly(profile, exchanged), strict=True):
        error = np.sqrt(exact * (1 - exact) / FIRST_DRAWS)
        assert abs(drawn.p(above=above) - exact) < 5 * error + 2 / FIRST_DRAWS


def test_ways_are_those_that_shapes_tell_apart() -> None:
    halves = np.array([-1, -1, -1, 1, 1, 1])
    assert arrange_layers(np.arange(6.0), halves).ways == 20
    assert arrange_layers(np.arange(6.0), build_shapes(6)).ways == 720
    assert arrange_layers(np.arange(6.0), halves, [np.array([0, 1, 4, 5]), np.array([2, 3])]).ways == 6 * 2


def repeat(profile: np.ndarray, noise: float = 0.01, sequences: int = 8) -> np.ndarray:
    return profile + noise * np.random.default_rng(1).standard_normal((sequences, len(profile)))


ALL_FULL = np.ones(12, np.bool_)


def test_a_step_is_named_where_it_is_and_a_slope_is_none() -> None:
    step = measure_change(repeat(np.where(np.arange(12) < 5, 0.1, 0.6)), ALL_FULL)
    slope = measure_change(repeat(np.linspace(0.1, 0.6, 12)), ALL_FULL)
    assert (step.step, slope.step) == (5, None)
    for change in (step, slope):
        assert change.by_depth.p(above=True) < 0.005
        assert change.by_depth.p(above=False) > 0.5
        assert (change.last_half - change.first_half).min() > 0.1


def test_a_place_that_depends_on_a_sequence_is_not_named() -> None:
    """The sixth layer is as near to one side as to the other."""
    profile = np.where(np.arange(11) < 5, 0.1, 0.6) - np.where(np.arange(11) == 5, 0.25, 0.0)
    assert measure_change(repeat(profile), ALL_FULL[:11]).step is None
    constant = measure_change(np.full((3, 6), 0.5), np.arange(6) < 3)
    assert (constant.step, constant.kinds_explain_more) == (None, False)
    assert constant.by_depth.p(above=True) == constant.by_depth.p(above=False) == 1


def test_kinds_of_layers_are_compared_first() -> None:
    """Three layers of full attention, the last of all among them: no change with depth."""
    full = np.isin(np.arange(18), [5, 11, 17])
    change = measure_change(repeat(np.where(full, 0.45, 0.08)), full)
    assert change.kinds_explain_more
    assert change.by_kind is not None
    assert change.by_kind.p(above=True) < 0.005
    assert change.by_depth.p(above=True) > 0.05
    assert change.full is not None
    assert change.local is not None
    np.testing.assert_allclose([change.full.mean(), change.local.mean()], [0.45, 0.08], atol=0.01)
    rising = measure_change(repeat(np.linspace(0.1, 0.6, 18)), full)
    assert not rising.kinds_explain_more
