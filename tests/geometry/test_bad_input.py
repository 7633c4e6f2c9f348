"""What no function of geometry takes is named: the argument, what was found and what is wanted."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from geometry import selection_counts, selection_profile, top_keys
from geometry.assumptions.assumed import draw_values, weight_profile
from geometry.assumptions.decay import fit_decay
from geometry.assumptions.phases import fit_phases
from geometry.assumptions.regimes import find_regime_starts, find_regimes
from geometry.assumptions.values import DirectionMoments
from geometry.bounds.monte_carlo import compare_bounds
from geometry.bounds.scale_free import scale_free_lower_bounds
from geometry.grids import compute_log_weights, log_grid
from geometry.limits import sensitivity, temper
from geometry.selection.concentration import concentration
from geometry.selection.outputs import output_parts
from geometry.separation.chance import separability, separation_curve
from geometry.statistics.arrangements import associate
from tests.geometry.draws import random_head
from tests.geometry.measured_studies import measure_study
from tests.geometry.test_assumed import BASE

FAIR = np.full(3, 0.3), np.ones((3, 2))

NO_HEADS = [
    ((np.ones(1), np.ones((1, 2))), ("weights", "(1,)", "(…, n)", "n ≥ 2")),
    ((np.float64(1), np.ones((1, 2))), ("weights", "()", "(…, n)")),
    ((FAIR[0], np.ones((4, 2))), ("values", "(4, 2)", "(…, 3, d)", "weights (3,)")),
    ((FAIR[0], np.ones(3)), ("values", "(3,)", "(…, 3, d)")),
    ((np.full((2, 3), 0.3), np.ones((5, 3, 2))), ("values", "(5, 3, 2)", "weights (2, 3)")),
    ((np.array([0.5, -0.1, 0.1]), FAIR[1]), ("weights", "(3,)", "not negative")),
    ((np.full((2, 3), [[0.3], [0.337]]), FAIR[1]), ("weights", "(2, 3)", "sum")),
    ((np.full((2, 3), [[0.3], [0.0]]), FAIR[1]), ("weights", "(2, 3)", "0")),
    ((np.array([1, 0, 0]), FAIR[1]), ("weights", "floating-point", "int64")),
    ((FAIR[0], np.ones((3, 2), complex)), ("values", "floating-point", "complex128")),
    ((FAIR[0], np.array([[np.inf], [1], [1]])), ("values", "(3, 1)", "finite")),
    ((np.ma.array(FAIR[0], mask=[0, 0, 1]), FAIR[1]), ("weights", "masked", "(3,)", "leave out")),
]
"""No head: weights and values, the argument that is named, and what was found and is wanted."""


def told(*parts: str) -> str:
    """An expression of what begins with the first part and has the others."""
    return "^" + re.escape(parts[0]) + "".join(f"(?=.*{re.escape(part)})" for part in parts[1:])


def profile(**settings: Any) -> None:
    selection_profile(*FAIR, **settings)


def separate(**settings: Any) -> None:
    weights, values = random_head(9, 2, 0)
    separability(**{"weights": weights, "values": values, "draws": 1, "seed": 0} | settings)


def find_top(**settings: Any) -> None:
    top_keys(*random_head(20, 4, 1), **settings)


def compare(**settings: Any) -> None:
    compare_bounds(replace(BASE, t_1=4, t_2=10), 16, 8, **{"draws": 2, "seed": 0, "sizes": (2,)} | settings)


def measure(queries: tuple[int, ...], heads: int = 8, keys: int = 9) -> None:
    """Queries at 1, 5 and 8 of a layer of 8 heads and 9 keys."""
    weights = np.tril(np.full((9, 9), 0.1, np.float32))[[1, 5, 8]][None, :, None, None, :keys]
    values, first_key = np.ones((1, 1, 4, 9, 2), np.float32), np.zeros((1, 3, 1), np.int32)
    measure_study(weights.repeat(heads, axis=3), values, first_key, queries)


def temper_rows(weights: Any, t: float, *sink: Any) -> None:
    sensitivity(weights, [t], *sink)


def draw_states(n: int, d: int) -> None:
    draw_values(BASE, n, d, np.random.default_rng(0))


PARAMETERS = (
    *(("value_scale", 0.0), ("value_scale", math.inf), ("lambda_sink", -0.1), ("beta", -1.0), ("beta", math.nan)),
    *(("rho_0", 1.1), ("p_sink", 1.0), ("p_sink", -0.1), ("eta", 1.0), ("eta_growth", math.inf)),
    *(("omega", 0.0), ("omega", 4.0), ("t_1", -1), ("t_2", 5)),
)
NO_GRID, NO_SEED = "n must be ascending whole numbers from 1 to 8 for 9 keys", "seed must be whole numbers ≥ 0"
GRIDS = ([0], [9], [3, 3], [], [1.0], [[1]], np.array([5, 2], np.uint8))
OF_LIMITS: tuple[tuple[tuple[Any, ...], dict[str, Any], str], ...] = (
    (([0.5, 0.5], 0.0), {}, "temperature must be a positive number"),
    (([0.5, 0.5], math.nan), {}, "temperature must be a positive number"),
    (([0.5, math.nan], 2.0), {}, "weights must be finite and not negative"),
    (([0.5, 0.4], 2.0, -0.1), {}, "learned_sink must be finite and not negative"),
    (([0.5, 0.4], 2.0, [0.1]), {}, "must match"),
    (([[0.5, 0.5], [0.0, 0.0]], 2.0), {}, "all weights of a row are 0"),
)
TWO, FOUR = np.ones((2, 3)), np.ones((2, 4))

CASES: list[tuple[Callable[..., object], tuple[Any, ...], dict[str, Any], str]] = [
    *((function, head, {}, told(*of)) for function in (selection_profile, selection_counts) for head, of in NO_HEADS),
    *((profile, (), {"kappas": kappas}, "kappas must be") for kappas in ((0,), (0.5, -1), (np.nan,), (np.inf,))),
    *((profile, (), {"scale": scale}, "scale must be") for scale in ("log", None)),
    (profile, (), {"device": "tpu"}, "device must be"),
    *((separate, (), {"n": n}, NO_GRID) for n in GRIDS),
    *((separate, (), {"seed": seed}, NO_SEED) for seed in (-1, 1.5, [])),
    (separate, (), {"seed": np.ones((3, 2), int)}, r"seed must have the shape .* broadcast to \(\), got \(3, 2\)"),
    (separate, (), {"draws": -1}, "draws must be at least 0, got -1"),
    (separate, (), {"weights": np.full(9, -0.1)}, r"weights of shape .* must be rows"),
    (separation_curve, (FAIR[0][None], FAIR[1], 2), {}, r"separation_curve takes one head, .* got \(1, 3\) and"),
    (separation_curve, (*FAIR, 3), {}, "n must be ascending whole numbers from 1 to 2"),
    *((log_grid, grid, {}, "a grid needs n_keys ≥ 2 and points ≥ 2") for grid in ((1, 48), (10, 1))),
    (compute_log_weights, ([1, 20], 5, 9), {}, "from 5 to 9, but all of its 2 numbers are outside"),
    *((find_top, (), settings, "from 1 to 20") for settings in ({"n": 0}, {"n": 21}, {"n": 3, "count": 0})),
    (concentration, (np.ones(0), np.ones((0, 2))), {}, "n ≥ 1 keys"),
    (concentration, (np.ones(1), np.ones((2, 2))), {}, "to match weights"),
    (concentration, (np.ma.array([0.5, 0.5], mask=[0, 1]), np.ones((2, 2))), {}, "weights must not be a masked array"),
    (output_parts, (np.ones(5), np.ones((4, 2))), {}, "same n ≥ 1 keys"),
    (output_parts, (np.ones(3), np.ones((3, 0))), {}, "same n ≥ 1 keys"),
    (output_parts, (TWO, np.ones((4, 3, 1))), {}, "broadcast"),
    *((function, *of) for function in (temper, temper_rows) for of in OF_LIMITS),
    (scale_free_lower_bounds, ([1.0], [1.0], 8), {}, "n ≥ 2"),
    (scale_free_lower_bounds, ([0.5, 0.5], [1.0, 1.0, 1.0], 8), {}, "same n"),
    (scale_free_lower_bounds, ([0.5, 0.5], [1.0, -1.0], 8), {}, "negative"),
    (scale_free_lower_bounds, ([0.5, 0.5], [1.0, 1.0], 0), {}, "head_dim"),
    *((fit_decay, (y,), {}, "cosine must be cosines") for y in (TWO, [1.0, 1.1, 0.5], [1.0, -np.inf, 0.5])),
    *((fit_phases, (row,), {}, "weight must be non-negative weights") for row in (TWO, -np.ones(9))),
    (fit_phases, (np.ones(9),), {"first": -1}, "weight must be non-negative weights"),
    *((replace, (BASE,), {name: value}, f"{name} = ") for name, value in PARAMETERS),
    (weight_profile, (BASE, 1), {}, "n must be"),
    *((draw_states, sizes, {}, "got {} and {}".format(*sizes)) for sizes in ((1, 8), (8, 1))),
    (compare, (), {"draws": 1}, "draws"),
    (compare, (), {"sizes": (16,)}, "1 to 15"),
    (compare, (), {"sizes": ()}, "one or more"),
    (find_regime_starts, (TWO, FOUR), {}, "the same shape"),
    (find_regimes, (TWO, TWO, TWO), {}, "margins must have the shape"),
    (associate, (TWO, TWO[:1], np.zeros(3), np.zeros(3)), {}, "one shape"),
    (associate, (TWO, TWO, np.zeros(3), np.zeros(2)), {}, "each of 3 heads"),
    *((DirectionMoments(2).add, (np.array(v),), {}, "finite numbers") for v in ([[1.0, np.nan]], [[np.inf, 0.0]], TWO)),
    (measure, ((1, 5, 8),), {"keys": 8}, r"values \(4, 9, 2\) do not match weights \(8, 8\)"),
    (measure, ((1, 5, 8),), {"heads": 7}, "do not match weights"),
    (measure, ((1, 5),), {}, "the 3 first keys do not match the 2 queries"),
    (measure, ((1, 5, 9),), {}, "positions from 1 to 8, got"),
]


@pytest.mark.parametrize(("function", "arguments", "settings", "match"), CASES)
def test_it_is_named(
    function: Callable[..., object], arguments: tuple[Any, ...], settings: dict[str, Any], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        function(*arguments, **settings)
