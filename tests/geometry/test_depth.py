"""Changes over layers, compared with loops over all orders of few layers, and planted in many."""

from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from geometry.statistics.arrangements import FIRST_DRAWS, arrange_layers, build_shapes, measure_change

LAYERS = 5


def explain(profile: np.ndarray, shape: np.ndarray) -> float:
    """The signed correlation of a profile with a shape, by SciPy, times the profile's spread."""
    return float(stats.pearsonr(profile, shape).statistic * np.linalg.norm(profile - profile.mean()))


def list_shapes() -> list[np.ndarray]:
    along = np.arange(LAYERS)
    return [*((along >= place).astype(float) for place in range(1, LAYERS)), along.astype(float)]


def arrange_slowly(profile: np.ndarray, exchanged: tuple[tuple[int, ...], ...]) -> tuple[float, float]:
    """Shares of all orders, of layers among those they are exchanged with, with as large a rise, and a fall."""
    found = [
        [explain(profile[list(order)], shape) for shape in list_shapes()]
        for order in permutations(range(LAYERS))
        if all(any({place, layer} <= set(kind) for kind in exchanged) for place, layer in enumerate(order))
    ]
    own = [explain(profile, shape) for shape in list_shapes()]
    high = np.mean([max(one) >= max(own) - 1e-9 for one in found])
    low = np.mean([min(one) <= min(own) + 1e-9 for one in found])
    return float(high), float(low)


@pytest.mark.parametrize("exchanged", [((0, 1, 2, 3, 4),), ((0, 2, 4), (1, 3))])
def test_p_values_are_those_of_all_orders(exchanged: tuple[tuple[int, ...], ...]) -> None:
    rng = np.random.default_rng(0)
    for _ in range(3):
        profile = rng.standard_normal(LAYERS) + 0.5 * np.arange(LAYERS)
        kinds = [np.array(kind) for kind in exchanged]
        drawn = arrange_layers(profile, build_shapes(LAYERS), kinds)
        for above, exact in zip((True, False), arrange_slowly(profile, exchanged), strict=True):
            error = np.sqrt(exact * (1 - exact) / FIRST_DRAWS)
            assert abs(drawn.p(above=above) - exact) < 5 * error + 2 / FIRST_DRAWS


def test_ways_are_those_that_shapes_tell_apart() -> None:
    halves = np.array([-1, -1, -1, 1, 1, 1])
    assert arrange_layers(np.arange(6.0), halves).ways == 20
    assert arrange_layers(np.arange(6.0), build_shapes(6)).ways == 720
    assert arrange_layers(np.arange(6.0), halves, [np.array([0, 1, 4, 5]), np.array([2, 3])]).ways == 6 * 2


def draw(profile: np.ndarray, noise: float = 0.01, sequences: int = 8) -> np.ndarray:
    return profile + noise * np.random.default_rng(1).standard_normal((sequences, len(profile)))


ALL_FULL = np.ones(12, np.bool_)


def test_a_step_is_named_where_it_is_and_a_slope_is_none() -> None:
    step = measure_change(draw(np.where(np.arange(12) < 5, 0.1, 0.6)), ALL_FULL)
    slope = measure_change(draw(np.linspace(0.1, 0.6, 12)), ALL_FULL)
    assert (step.step, slope.step) == (5, None)
    for change in (step, slope):
        assert change.by_depth.p(above=True) < 0.005
        assert change.by_depth.p(above=False) > 0.5
        assert (change.last_half - change.first_half).min() > 0.1


def test_a_place_that_depends_on_a_sequence_is_not_named() -> None:
    """The sixth layer is as near to one side as to the other."""
    profile = np.where(np.arange(11) < 5, 0.1, 0.6) - np.where(np.arange(11) == 5, 0.25, 0.0)
    assert measure_change(draw(profile), ALL_FULL[:11]).step is None
    assert measure_change(np.full((3, 4), 0.5), ALL_FULL[:4]).step is None


def test_kinds_of_layers_are_compared_first() -> None:
    """Three layers of full attention, the last of all among them: no change with depth."""
    full = np.isin(np.arange(18), [5, 11, 17])
    change = measure_change(draw(np.where(full, 0.45, 0.08)), full)
    assert change.kinds_explain_more
    assert change.by_kind is not None
    assert change.by_kind.p(above=True) < 0.005
    assert change.by_depth.p(above=True) > 0.05
    assert change.full is not None
    assert change.local is not None
    np.testing.assert_allclose([change.full.mean(), change.local.mean()], [0.45, 0.08], atol=0.01)
    rising = measure_change(draw(np.linspace(0.1, 0.6, 18)), full)
    assert not rising.kinds_explain_more


def test_constant_profiles_differ_nowhere() -> None:
    change = measure_change(np.full((3, 6), 0.5), np.arange(6) < 3)
    assert change.by_depth.p(above=True) == change.by_depth.p(above=False) == 1
    assert not change.kinds_explain_more
