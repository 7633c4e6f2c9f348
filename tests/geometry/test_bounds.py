"""The ingredients of the bounds and the upper bounds against the definitions, and wrong definitions that must show."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from geometry import selection_profile
from tests.geometry import oracle
from tests.geometry.comparison import UPPER, departures
from tests.geometry.draws import HEADS, aligned_head, random_head, repeated_head, small_heads

KAPPAS = (0.05, 0.5, 5, 500)
LARGE = np.float32(50)  # Value states so long that ξ runs past ξ* where the scale is raw


@pytest.mark.one_case
@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize(("n", "d", "sink"), [(17, 8, False), (64, 16, True)])
def test_bounds_of_long_value_states_equal_the_definitions(kind: str, n: int, d: int, sink: bool) -> None:
    """As far as float32 tells ξ: which pairs have ξ < 0 is decided exactly, also of keys that are nearly equal."""
    weights, values = HEADS[kind](n, d, n + d)
    values, asked = values * LARGE, {"kappas": KAPPAS, "scale": "raw", "sink": sink}
    profile = selection_profile(weights, values, **asked)
    expected = oracle.profile(weights, values, **asked) | oracle.sure_counts(weights, values)
    assert departures(profile, expected, upper=1e-4 if kind == "confined" else 1e-5) == {}


class TestTies:
    """Pairs with g_j = g_i have ξ = 0 and p = 0, in exact arithmetic and in the product."""

    @given(small_heads())
    def test_halves_are_those_of_exact_arithmetic(self, head: tuple[np.ndarray, np.ndarray]) -> None:
        """κ is so small that nothing but the pairs with ξ < 0 counts."""
        weights, values = head
        for sink in (True, False):
            halves = oracle.exact_halves(weights, values, sink=sink)
            profile = selection_profile(weights, values, kappas=(1e-24,), scale="raw", sink=sink)
            size, there = np.arange(1, len(weights)), ~np.isnan(profile.recall_upper[0])
            assert not (there & (halves < 0)).any()
            assert (there | (halves < 0) | (np.nan_to_num(profile.s_in) + profile.a_max_out == 0)).all()
            np.testing.assert_allclose(profile.recall_upper[0, there], (1 - halves / 2 / size)[there], atol=1e-9)
            np.testing.assert_allclose(
                profile.precision_upper[0, there], (1 - (halves > 0) / 2 / (size + 1))[there], atol=1e-9
            )

    @pytest.mark.parametrize(("n", "d"), [(2, 8), (64, 1), (300, 33)])
    def test_equal_keys_never_outdo_each_other(self, n: int, d: int) -> None:
        values = np.tile(np.random.default_rng(n).standard_normal(d).astype(np.float32), (n, 1))
        for sink in (True, False):
            profile = selection_profile(np.full(n, 1 / n, np.float32), values, kappas=KAPPAS, sink=sink)
            np.testing.assert_array_equal(profile.recall_upper[:, sink:], 1)
            np.testing.assert_array_equal(profile.precision_upper[:, sink:], 1)


@pytest.mark.parametrize("scale", ["unit", "raw"])
def test_values_that_are_all_zero_have_no_bound(scale: str) -> None:
    profile = selection_profile(np.full(5, 0.2), np.zeros((5, 3)), scale=scale, sink=False)
    assert np.isnan(profile.recall_upper).all()
    assert np.isnan(profile.precision_upper).all()
    np.testing.assert_array_equal(profile.rho_out, 0)


def test_values_that_are_mostly_zero_have_no_unit() -> None:
    weights, values = random_head(9, 4, seed=0)
    values[2:8] = 0
    profile = selection_profile(weights, values)
    assert profile.value_scale == 0
    assert np.isnan(profile.recall_upper).all()
    assert np.isfinite(selection_profile(weights, values, scale="raw").recall_upper[0, 1:]).all()


Oracle = Callable[..., Any]
Mutant = tuple[str, Callable[[Oracle], Oracle], tuple[str, ...]]


def changed(name: str, change: Callable[[np.ndarray, list[int]], float]) -> Callable[[Oracle], Oracle]:
    """One of the ingredients, from a = ‖y‖ and the keys left out."""

    def mutate(right: Oracle) -> Oracle:
        def wrong(y: np.ndarray, inside: list[int], outside: list[int], *, sink: bool) -> dict[str, float]:
            found = right(y, inside, outside, sink=sink)
            return found | {name: change(np.linalg.norm(y, axis=1), outside)}

        return wrong

    return mutate


def keep_sink(right: Oracle) -> Oracle:
    return lambda *arguments, sink: right(*arguments, sink=False)  # noqa: ARG005


PRECISION, RECALL = UPPER
MUTANTS: dict[str, Mutant] = {
    "p is symmetric": ("p", lambda p: lambda xi: p(np.abs(xi)), UPPER),
    "μ is reversed": ("potential", lambda g: lambda *a, sink: -g(*a, sink=sink), UPPER),
    "the sink stays in M": ("potential", keep_sink, UPPER),
    "ρ_out counts the selected sink": ("closest", keep_sink, ("rho_out",)),
    "C counts the sink": ("value_scale", keep_sink, ("value_scale", *UPPER)),
    "S_in counts the sink": ("ingredients", changed("s_in", lambda a, out: a.sum() - a[out].sum()), ("s_in", *UPPER)),
    "a_min counts the sink": (
        "ingredients",
        changed("a_min_in", lambda a, out: np.delete(a, out).min()),
        ("a_min_in",),
    ),
    "a_max counts the sink": (
        "ingredients",
        changed("a_max_in", lambda a, out: np.delete(a, out).max()),
        ("a_max_in", *UPPER),
    ),
    "B without the largest left out": ("breadth", lambda _: lambda f: f["a_max_in"] + f["s_in"], UPPER),
    "ξ without the 2": ("steepness", lambda right: lambda *a: right(*a) / np.sqrt(2), UPPER),
    "Precision over N": ("precision_bound", lambda _: lambda worst: 1 - worst.max() / len(worst), (PRECISION,)),
    "Recall without the sink": (
        "recall_bound",
        lambda _: (
            lambda worst, inside, *, sink: (
                np.mean([1 - p for p, i in zip(worst, inside, strict=True) if i in oracle.content(inside, sink=sink)])
                if oracle.content(inside, sink=sink)
                else np.nan
            )
        ),
        (RECALL,),
    ),
}
"""Wrong readings: the function of the oracle, what is put in its place, and what must differ."""

SMALL = {
    "random": random_head(24, 8, 0),
    "aligned": aligned_head(24, 8, 1),
    "repeated": repeated_head(24, 8, 2),
    "opposed": (np.array([0.1, 0.6, 0.3]), np.array([[-1.0, 0.0], [2.0, 0.0], [-1.0, 0.1]])),
    "sink left out": (np.array([0.2, 0.5, 0.3]), np.array([[3.0, 0.0], [1.0, 0.1], [-1.0, 0.0]])),
}


def all_departures() -> set[str]:
    """What differs from the oracle in any of a few heads."""
    found: set[str] = set()
    for weights, values in SMALL.values():
        for scale, factor in (("unit", 1), ("raw", 7)):
            asked = {"kappas": (0.5, 50), "scale": scale}
            profile = selection_profile(weights, values * factor, **asked)
            found |= set(departures(profile, oracle.profile(weights, values * factor, **asked)))
    return found


def test_the_right_reading_is_not_noticed() -> None:
    assert all_departures() == set()


@pytest.mark.one_case
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_reading_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, mutate, differing = MUTANTS[name]
    monkeypatch.setattr(oracle, target, mutate(getattr(oracle, target)))
    assert all_departures() == set(differing)
