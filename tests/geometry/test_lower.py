"""The printed lower bounds and their sums against the definitions, key by key, and wrong readings that must show."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from geometry import selection_profile
from geometry.bounds import lower
from geometry.bounds.lower import INGREDIENTS, LOWER, Ingredients, sum_lower_bounds
from tests.geometry.draws import HEADS, assumed_head
from tests.geometry.printed_bounds import bound_selection, row


def expected(head: tuple[np.ndarray, np.ndarray], kappa: float, scale: str, sink: bool) -> np.ndarray:
    return np.array([row(*head, size, kappa, scale, sink) for size in range(1, len(head[0]))]).T


def given(head: tuple[np.ndarray, np.ndarray], kappa: float, scale: str, sink: bool) -> np.ndarray:
    weights, values = head
    profile = selection_profile(weights, values, sink=sink)
    parts = Ingredients(**{name: getattr(profile, name) for name in INGREDIENTS})
    unit = profile.value_scale[..., None] if scale == "unit" else 1.0
    n, d = values.shape
    bounds = lower.lower_bounds(parts, size=np.arange(1, n), n_keys=n, head_dim=d, kappa=kappa, unit=unit)
    return np.array([lower.margin(parts, unit), *bounds])


def peaked_head() -> tuple[np.ndarray, np.ndarray]:
    """A head with Δ > 0 for some N and not for others, whose sink has the second largest weight."""
    rng = np.random.default_rng(5)
    weights = np.array([0.3, *np.full(6, 0.01), 0.04, 0.2, 0.4])
    return (weights / weights.sum()).astype(np.float32), rng.standard_normal((10, 64)).astype(np.float32)


def differs(left: np.ndarray, right: np.ndarray) -> bool:
    return not np.allclose(left, right, rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.one_case
@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize(("scale", "sink"), [("unit", True), ("raw", False)])
def test_equal_the_definitions(kind: str, scale: str, sink: bool) -> None:
    for n, d in ((2, 8), (17, 8), (40, 16)):
        head = HEADS[kind](n, d, n)
        for kappa in (0.05, 5.0, 500.0):
            np.testing.assert_allclose(
                given(head, kappa, scale, sink), expected(head, kappa, scale, sink), rtol=1e-5, atol=1e-6
            )


def test_a_head_with_both_signs_of_the_margin_is_among_them() -> None:
    """And with bounds that are neither 0 nor 1; so the mutations below have something to change."""
    head = peaked_head()
    margin, precision, recall = expected(head, 5.0, "unit", True)
    assert {1, -1} <= set(np.sign(margin[~np.isnan(margin)]))
    assert ((precision > 0.2) & (precision < 0.9)).any()
    assert ((recall > 0.1) & (recall < 0.9)).any()
    assert not differs(given(head, 5.0, "unit", True), expected(head, 5.0, "unit", True))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("delta", lambda parts: parts.a_min_in**2 - parts.a_max_out * parts.s_in * parts.rho_out),
        ("delta_sink", lambda parts: parts.a_0**2 + 0 * parts.s_in),
        ("breadth", lambda parts: parts.a_max_in + parts.s_in),
        ("_log_tail", lambda relative, factor: -factor * relative**2),
    ],
)
def test_a_wrong_reading_shows(name: str, wrong: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lower, name, wrong)
    head = peaked_head()
    assert any(differs(given(head, 50.0, "unit", sink), expected(head, 50.0, "unit", sink)) for sink in (True, False))


def test_where_there_is_no_bound() -> None:
    """Nothing but the sink, no norm at all, no scale."""
    weights, values = assumed_head(12, 8, 0)
    assert np.isnan(given((weights, values), 0.5, "raw", True)[:, 0]).all()
    assert np.isnan(given((weights, 0 * values), 0.5, "raw", True)).all()
    assert np.isnan(given((weights, 0 * values), 0.5, "unit", True)).all()
    parts = Ingredients(**dict.fromkeys(INGREDIENTS, 1.0))
    for unit in (0.0, math.nan, -1.0):
        bounds = lower.lower_bounds(parts, size=2, n_keys=9, head_dim=4, kappa=1.0, unit=unit)
        assert np.isnan(bounds).all()


def test_the_logarithm_goes_on_where_the_bounds_end() -> None:
    """q below the smallest float, and miss far above 1."""
    parts = Ingredients(s_in=1.0, a_min_in=1.0, a_max_in=1.0, a_max_out=0.0, rho_out=0.0)
    of = {"size": 1, "n_keys": 11, "head_dim": 400, "kappa": 100.0}
    assert lower.log_miss(parts, **of) == pytest.approx(math.log(10) - 100 * 400 / 4)
    assert lower.lower_bounds(parts, **of) == (1.0, 1.0)
    parts = replace(parts, rho_out=1.0, a_max_out=1.0)
    assert lower.log_miss(parts, **of) == pytest.approx(math.log(10))
    assert lower.lower_bounds(parts, **of) == (pytest.approx(1 / 11), 0.0)


SEQUENCES, HEADS_OF_LAYER, KEYS, HEAD_DIM = 4, 3, 12, 16
KAPPAS = (0.02, 0.5, 8.0)
UNIT = np.array([[1.0, 0.5, 2.0]] * 3 + [[0.0, np.nan, 1.0]])
"""C of the sequences and heads; in the last sequence, 0 and unknown."""


def draw_ingredients() -> dict[str, np.ndarray]:
    """Ingredients (sequence, head, N): without J, without the sink, without either, of norms 0 and near underflow."""
    rng, shape = np.random.default_rng(3), (SEQUENCES, HEADS_OF_LAYER, KEYS - 1)
    parts = {name: rng.uniform(0.2, 1, shape) for name in INGREDIENTS}
    parts["rho_out"] = rng.choice([0, 0.01, 0.3, 0.9], shape)
    parts["a_max_out"] *= rng.choice([0, 0.1, 1], shape)
    for name in INGREDIENTS:
        parts[name][0, 0, :2] = np.nan if name == "a_0" else 0  # all weighted norms are 0
        parts[name][1] *= 1 if name == "rho_out" else 1e-25
        parts[name][:, 1, 0] = parts[name][:, 1, 0] if name in ("a_0", "a_max_out") else np.nan  # only the sink
    parts["a_0"][:, 2, ::3] = np.nan
    return {name: array.astype(np.float32) for name, array in parts.items()}


def assert_summed(changed: Callable[[dict[str, float]], dict[str, float]] = lambda of_one: of_one) -> None:
    """Margins are those of every selection, and sums those of the bounds of all selections that have bounds."""
    parts = draw_ingredients()
    margins = (
        lower.margin(Ingredients(**parts), UNIT[..., None]),
        lower.margin_sink(Ingredients(**parts), UNIT[..., None]),
    )
    sums = sum_lower_bounds(*margins, n_keys=KEYS, head_dim=HEAD_DIM, kappas=KAPPAS)
    wanted = np.zeros((len(LOWER), HEADS_OF_LAYER, len(KAPPAS), KEYS - 1))
    for (index, kappa), at in product(enumerate(KAPPAS), np.ndindex(margins[0].shape)):
        of_one = bound_selection(
            {name: array[at] for name, array in parts.items()},
            UNIT[at[:2]],
            n=at[2] + 1,
            keys=KEYS,
            d=HEAD_DIM,
            kappa=kappa,
        )
        for name, margin in zip(("margin", "sink"), margins, strict=True):
            assert margin[at] == pytest.approx(of_one.get(name, np.nan), rel=1e-12, nan_ok=True)
        if of_one and not math.isnan(of_one["margin"]):
            wanted[:, at[1], index, at[2]] += [changed(of_one)[name] for name in LOWER]
    np.testing.assert_allclose(sums, wanted, rtol=1e-12)
    assert all(np.unique(of_bound).size > 20 for of_bound in wanted)
    assert (np.isnan(margins[1]) & ~np.isnan(margins[0])).any()


def test_sums_are_those_of_every_selection() -> None:
    assert_summed()


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("precision_lower", lambda one: one["precision_lower"] ** 1.001),
        ("recall_lower", lambda one: 2 - 1 / one["precision_lower"]),  # below 0
        ("f_r_max_lower", lambda one: one["precision_lower"]),
        ("precision_lower", lambda one: one["precision_lower"] if one["sink"] <= 0 else 1.0),
    ],
)
def test_other_bounds_would_be_noticed(name: str, wrong: Callable[[dict[str, float]], float]) -> None:
    with pytest.raises(AssertionError):
        assert_summed(lambda of_one: of_one | {name: wrong(of_one)})
