"""The Monte Carlo against a literal one, what it must report, and Table 1."""

import math
from dataclasses import replace
from decimal import Context, Decimal, localcontext
from functools import cache
from itertools import product
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from scipy import special

from geometry.assumptions.assumed import AssumedHead, draw_values, weight_profile
from geometry.bounds import lower
from geometry.bounds import monte_carlo as module
from geometry.bounds.lower import INGREDIENTS
from geometry.bounds.monte_carlo import (
    PAPER_EFFECTS,
    RATES,
    compare_bounds,
    draw,
    find_premise_point,
    measure_parameter_effects,
)
from tests.geometry import oracle
from tests.geometry.printed_bounds import bound_selection
from tests.geometry.scale_free_note import literal

INDEPENDENT = AssumedHead(
    lambda_sink=0.2, beta=math.inf, rho_0=0.0, p_sink=0.4, eta=0.3, eta_growth=0.3, omega=0.3, t_1=4, t_2=10
)
SIZES = (1, 2, 4, 9)


@cache
def point(assumed: AssumedHead, n: int = 16, d: int = 16, draws: int = 60) -> tuple[dict[str, Any], ...]:
    return tuple(compare_bounds(assumed, n, d, draws=draws, seed=3, sizes=SIZES, kappas=(0.5, 20.0)))


def pick(rows: tuple[dict[str, Any], ...], **wanted: Any) -> dict[str, Any]:
    (found,) = [row for row in rows if all(row[name] == value for name, value in wanted.items())]
    return found


# A literal one.


def literal_point(assumed: AssumedHead, size: int, kappa: float, scale: str) -> dict[str, float]:
    """Means by the definitions, one draw after the other."""
    found: dict[str, list[float]] = {}
    rng, weights = np.random.default_rng(module._make_seed(assumed, 16, 16, 3)), weight_profile(assumed, 16)
    for _ in range(60):  # the very heads that the Monte Carlo draws
        values = draw_values(assumed, 16, 16, rng)
        k_in, k_out = oracle.counts(weights, (weights[:, None] * values).tolist(), size)
        upper = oracle.row(weights, values, size, kappas=(kappa,), scale=scale)
        unit = oracle.value_scale(values, sink=True) if scale == "unit" else 1.0
        below = bound_selection(upper, unit, n=size, keys=16, d=16, kappa=kappa)
        one = {
            "precision": size / (size + k_out),
            "recall": k_in / size,
            "precision_lower": below["precision_lower"],
            "recall_lower": below["recall_lower"],
            "precision_upper": upper["precision_upper"][0],
            "recall_upper": upper["recall_upper"][0],
            "premise_share": below["premise_share"],
        }
        one["precision_lower_share"] = one["precision"] >= one["precision_lower"]
        one["recall_upper_share"] = one["recall"] <= one["recall_upper"]
        for name, value in one.items():
            found.setdefault(name, []).append(value)
    means = {name: float(np.mean(values)) for name, values in found.items()}
    return means | {"recall_se": float(np.std(found["recall"], ddof=1) / math.sqrt(60))}


@pytest.mark.parametrize("assumed", [INDEPENDENT, replace(INDEPENDENT, beta=0.5, rho_0=0.3, value_scale=3.0)])
@pytest.mark.parametrize(("kappa", "scale"), [(0.5, "unit"), (20.0, "raw")])
def test_equals_a_literal_one(assumed: AssumedHead, kappa: float, scale: str) -> None:
    for size in SIZES[1:]:
        row = pick(point(assumed), n=size, family="printed", kappa=kappa, scale=scale)
        expected = literal_point(assumed, size, kappa, scale)
        assert {name: row[name] for name in expected} == pytest.approx(expected, abs=1e-5)
        assert row["recall_gap"] == pytest.approx(expected["recall"] - expected["recall_lower"], abs=1e-5)
        assert row["recall_upper_gap"] == pytest.approx(expected["recall_upper"] - expected["recall"], abs=1e-5)


def test_the_scale_free_bound_is_that_of_the_note() -> None:
    lengths = np.array([0.2, *[1.0] * 15])
    for size in SIZES[1:]:
        row = pick(point(INDEPENDENT), n=size, family="scale_free")
        expected = literal(weight_profile(INDEPENDENT, 16), lengths, size, 16)
        assert (row["precision_lower"], row["recall_lower"]) == pytest.approx(expected, abs=2e-3)


# Verdicts.


def test_the_scale_free_bound_holds_where_its_assumptions_do() -> None:
    for row in point(INDEPENDENT, 40, 32, draws=100):
        if row["family"] == "scale_free":
            assert (row["meets_assumptions"], row["precision_holds"], row["recall_holds"]) == (True, True, True)


def test_who_meets_the_assumptions() -> None:
    correlated, attracted = replace(INDEPENDENT, beta=1.0), replace(INDEPENDENT, rho_0=0.2)
    for assumed in (correlated, attracted):
        assert not pick(point(assumed), n=2, family="scale_free")["meets_assumptions"]
    printed = [row for row in point(replace(INDEPENDENT, p_sink=0.01), 16, 128) if row["family"] == "printed"]
    assert {row["meets_assumptions"] for row in printed} == {True, False}
    assert all(row["meets_assumptions"] == (row["premise_share"] == 1) for row in printed)


def test_a_printed_bound_that_fails_is_reported() -> None:
    """In the raw scale long value states make the lower bounds 1, whatever Precision and Recall are."""
    large = replace(INDEPENDENT, value_scale=1e4, p_sink=0.01, eta_growth=2.5)
    row = pick(point(large, 16, 64), n=2, family="printed", kappa=0.5, scale="raw")
    assert row["premise_share"] > 0.9
    assert row["precision_lower"] > 0.9 > row["precision"]
    assert row["precision_gap"] == pytest.approx(row["precision"] - row["precision_lower"])
    assert row["precision_holds"] is False
    assert row["recall_holds"] is False
    unit = pick(point(large, 16, 64), n=2, family="printed", kappa=0.5, scale="unit")
    assert unit["precision_holds"] is True


# The bound for correlated directions.


@pytest.mark.parametrize(("d", "size"), [(2, 5), (24, 2)])
def test_a_union_over_pairs_of_gaussian_keys_is_exact_for_each_pair(d: int, size: int) -> None:
    """Against simulated Gaussian keys with the same covariance."""
    assumed = replace(INDEPENDENT, beta=0.4, rho_0=0.3)
    n, rng, draws = 9, np.random.default_rng(0), 10_000
    a = weight_profile(assumed, n) * module.norms(assumed, n)
    order = np.argsort(-a)
    products = (a[:, None] * module.mean_cosines(assumed, n) * a)[np.ix_(order, order)]
    root = np.linalg.cholesky(products)
    y = root @ rng.standard_normal((draws, n, d)) / math.sqrt(d)
    distance = ((y - y[:, :size].sum(axis=1, keepdims=True)) ** 2).sum(axis=2)
    passed = (distance[:, None, size:] <= distance[:, :size, None]).mean(axis=0)
    precision, recall = module.bound_by_pair_union(products, size, d)
    expected = np.minimum(passed.sum(axis=0), 1).sum()
    assert recall == pytest.approx(1 - np.minimum(passed.sum(axis=1), 1).mean(), abs=0.02)
    assert precision == pytest.approx(size / (size + expected), abs=0.02)


def test_keys_that_never_differ_pass_each_other() -> None:
    """One direction and equal weights: all y are equal, and so are their distances in every draw."""
    np.testing.assert_array_equal(module.mean_cosines(INDEPENDENT, 9), np.eye(9))
    assert module.bound_by_pair_union(np.ones((5, 5)), 2, 8) == (0.4, 0.0)


def union(products: np.ndarray, size: int, d: int, digits: int = 60) -> tuple[float, float]:
    """Lower bounds of Precision and Recall from the note's (12) as it stands, in so many digits."""
    with localcontext(Context(prec=digits)):
        k = [[Decimal(float(entry)) for entry in row] for row in products]
        n, inside = len(k), range(size)
        centre = [sum(k[i][j] for i in inside) for j in range(n)]
        square = sum(centre[i] for i in inside)
        distance = [square - 2 * centre[j] + k[j][j] for j in range(n)]
        found = []
        for i, j in product(inside, range(size, n)):
            p, q, m = distance[j], distance[i], square - centre[i] - centre[j] + k[i][j]
            root = max((p + q) ** 2 - 4 * m**2, (p - q) ** 2).sqrt()
            found.append(float((root - (p - q)) / (2 * root)))
    passing = special.betainc(d / 2, d / 2, np.reshape(found, (size, n - size)))
    expected = np.minimum(passing.sum(axis=0), 1).sum()
    return size / (size + expected), 1 - np.minimum(passing.sum(axis=1), 1).mean()


@pytest.mark.parametrize("least", [1e-1, 1e-10])
def test_small_keys_do_not_drown_in_the_selection(least: float) -> None:
    """Distances that differ by keys of the least norm alone, beside a sum of selected keys of norm 1."""
    n, size, d = 8, 5, 64
    a = np.append(1.0, least * np.linspace(2, 1, n - 1))
    products = a[:, None] * module.mean_cosines(replace(INDEPENDENT, beta=0.8, rho_0=0.5), n) * a
    found, expected = module.bound_by_pair_union(products, size, d), union(products, size, d)
    assert 0.5 < expected[1] < 0.97
    assert found == pytest.approx(expected, rel=1e-10)
    if least == 1e-10:  # what double precision makes of the formula as it stands would be noticed
        assert union(products, size, d, digits=16) != pytest.approx(expected, rel=1e-3)


# Draws.


def test_a_point_depends_on_its_seed_and_on_itself_alone() -> None:
    asked = {"draws": 4, "sizes": (2, 4)}
    first = compare_bounds(INDEPENDENT, 16, 8, seed=1, **asked)
    compare_bounds(INDEPENDENT, 20, 8, seed=1, **asked)
    assert compare_bounds(INDEPENDENT, 16, 8, seed=1, **asked) == first
    assert compare_bounds(INDEPENDENT, 16, 8, seed=2, **asked) != first
    others = [(INDEPENDENT, 8, 16), (INDEPENDENT, 17, 8), (replace(INDEPENDENT, lambda_sink=0.3), 16, 8)]
    states = {tuple(module._make_seed(*of, 1).generate_state(4)) for of in ((INDEPENDENT, 16, 8), *others)}
    assert len(states) == 4


# Table 1.


TABLE = replace(INDEPENDENT, beta=3.0, p_sink=0.2, t_1=12, t_2=40)


@cache
def effects(assumed: AssumedHead, size: int = 2, draws: int = 40) -> dict[str, dict[str, Any]]:
    rows = measure_parameter_effects(assumed, 56, 128, size, kappa=0.5, scale="unit", draws=draws, seed=0)
    assert [row["parameter"] for row in rows] == list(PAPER_EFFECTS)
    return {row["parameter"]: row for row in rows}


def test_arrows_of_table_1_where_the_margin_is_positive() -> None:
    found = effects(TABLE)
    for name in ("d", "L", "a_0", "a_min_in", "a_max_out"):
        assert found[name]["effect"] == PAPER_EFFECTS[name], name
        assert found[name]["agrees"] is True, found[name]["untested"]
    slow = effects(replace(TABLE, beta=0.5))["beta"]
    assert (slow["low"], slow["high"], slow["effect"], slow["agrees"]) == (0.25, 1.0, 1, True)
    for name in ("N", "eta", "omega", "T_1", "T_2"):
        assert found[name]["paper_effect"] is None
        assert found[name]["agrees"] is None


def test_ends_of_what_is_changed() -> None:
    ends = {name: (row["low"], row["high"]) for name, row in effects(TABLE).items()}
    of_d, of_n = {"d": (64, 256)}, {"L": (43, 111), "N": (2, 4)}  # L goes no farther than the plateau
    doubled = dict.fromkeys(("a_0", "a_min_in", "a_max_out"), (0.5, 2))
    of_phases = {"beta": (1.5, 6), "eta": (0.15, 0.6), "omega": (0.15, 0.6), "T_1": (6, 26), "T_2": (26, 47)}
    assert ends == of_d | of_n | doubled | of_phases
    limited = effects(replace(TABLE, eta=0.8, omega=2.0))
    assert limited["eta"]["high"] == pytest.approx(0.9)
    assert limited["omega"]["high"] == math.pi


@pytest.mark.parametrize("broken", [False, True])
def test_value_states_drawn_once_are_those_of_separate_draws(monkeypatch: pytest.MonkeyPatch, *, broken: bool) -> None:
    """Each end as if it were drawn alone; not so if settings with another decay of cosines shared their draws."""
    if broken:
        monkeypatch.setattr(module, "PARAMETERS_OF_WEIGHTS", {**module.PARAMETERS_OF_WEIGHTS, "beta": 1.0})
    drawn = Mock(wraps=draw_values)
    monkeypatch.setattr(module, "draw_values", drawn)
    changes = list(module.iterate_changes(module.Setting(TABLE, 56, 16, 3)))
    settings = [end for change in changes for end in (change.at_low, change.at_high)]
    random = np.random.SeedSequence(5)
    together = module._draw_ingredients(settings, 3, random)
    assert drawn.call_count == 3 * (5 if broken else 7)  # the base, two lengths d, two contexts, and two decays
    assert together.keys() == {*settings}
    same = []
    for setting, parts in together.items():
        alone = draw(setting.assumed, setting.n, setting.head_dim, draws=3, random=random, sizes=[setting.size])
        same += [
            np.array_equal(getattr(parts, name), getattr(alone.ingredients, name), equal_nan=True)
            for name in INGREDIENTS
        ]
    assert all(same) is not broken


@pytest.mark.slow
def test_a_parameter_is_tested_where_its_term_is_present() -> None:
    assert {name: row["untested"] for name, row in effects(replace(TABLE, beta=8.0)).items() if row["untested"]} == {
        "beta": "ρ_out is within what independent directions have by chance, so that β is not in the bounds"
    }
    trivial = effects(replace(TABLE, beta=1e-9), size=8)  # one direction: Δ and Δ_0 are negative
    assert {name for name, row in trivial.items() if row["effect"]} == {"L", "N"}
    untested = {name for name, row in trivial.items() if row["untested"]}
    assert untested == {"d", "a_0", "a_min_in", "a_max_out", "beta"}
    assert all(trivial[name]["agrees"] is None for name in untested)
    alone = effects(replace(TABLE, p_sink=0.5), size=1)["a_0"]  # N = 1, the sink alone: no bound
    assert {alone[name] for name in ("precision_lower_low", "log_miss_high", "effect", "agrees")} == {None}
    unselected = effects(replace(TABLE, p_sink=1e-4), size=4)["a_0"]
    assert (unselected["untested"], unselected["effect"]) == ("the sink is not selected at this N", 0)
    assert unselected["agrees"] is None


@pytest.mark.parametrize(
    ("changed", "unknown"),
    [
        ({}, set()),
        ({"beta": math.inf}, {"beta"}),
        ({"beta": 0.0}, {"beta"}),
        ({"eta": 0.0}, {"omega", "T_1"}),
        ({"t_1": 40}, {"omega"}),
        ({"eta": 0.0, "eta_growth": 0.0}, {"eta", "omega", "T_1", "T_2"}),
    ],
)
def test_what_was_not_changed_has_no_effect(changed: dict[str, float], unknown: set[str]) -> None:
    found = effects(replace(TABLE, **changed), draws=2)
    assert {name for name, row in found.items() if row["effect"] is None} == unknown
    assert all(found[name]["agrees"] is None for name in unknown)
    if "beta" in unknown:
        assert found["beta"]["low"] == found["beta"]["high"]


def test_a_change_within_its_errors_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = np.random.default_rng(0).standard_normal(100)
    assert module._sign(noise - noise.mean() + 0.2) == 0
    assert module._sign(noise - noise.mean() + 0.4) == 1
    assert module._sign(noise - noise.mean() - 0.4) == -1
    monkeypatch.setattr(module, "STANDARD_ERRORS", 0.0)
    assert module._sign(noise - noise.mean() + 0.2) == 1


def test_the_premise_is_sought_near_the_parameters_given() -> None:
    """β is raised no farther than need be, d only if β does not help; the point found has Δ > 0 in other draws too."""
    given = replace(INDEPENDENT, beta=0.1, eta=0.0, eta_growth=0.2, omega=1.0, t_1=20, t_2=20)
    found, head_dim, size = find_premise_point(given, 40, 64, seed=0)
    assert found == replace(given, beta=found.beta)
    assert (found.beta in RATES, head_dim, size > 1) == (True, 64, True)
    sizes, random = [size], np.random.SeedSequence(9)
    parts = draw(found, 40, head_dim, draws=20, random=random, sizes=sizes).ingredients
    assert (lower.margin(parts) > 0).mean() > 0.8
    below = RATES[RATES.index(found.beta) - 1] if found.beta > RATES[0] else given.beta
    same = np.random.SeedSequence(0)  # the draws of the search
    parts = draw(replace(given, beta=below), 40, 64, draws=4, random=same, sizes=list(range(2, 40))).ingredients
    assert not (lower.margin(parts) > 0).all(axis=0).any()


def test_where_no_point_is_within_the_premise_the_one_given_stays() -> None:
    given = AssumedHead(
        lambda_sink=1, beta=0.0, rho_0=0.9, p_sink=0.1, eta=0.0, eta_growth=0.0, omega=1.0, t_1=9, t_2=9
    )
    assert find_premise_point(given, 10, 4, seed=0) == (given, 4, 2)
