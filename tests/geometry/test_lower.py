"""The printed lower bounds and their sums against the definitions, word by word, and wrong readings that must show."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from geometry.bounds import lower
from geometry.bounds.lower import INGREDIENTS, LOWER, Ingredients, sum_lower_bounds
from tests.geometry.printed_bounds import bound_selection


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
UNIT = np.array([[1.0, 0.5, 2.0]] * 3 + [[0.0, np.nan, -1.0]])
"""C of the sequences and heads; in the last sequence, 0, unknown and no length."""


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
    """Margins and bounds are those of every selection, and sums those of all that have bounds."""
    parts = draw_ingredients()
    margins = [of(Ingredients(**parts), UNIT[..., None]) for of in (lower.margin, lower.margin_sink)]
    sums = sum_lower_bounds(*margins, n_keys=KEYS, head_dim=HEAD_DIM, kappas=KAPPAS)
    wanted = np.zeros((len(LOWER), HEADS_OF_LAYER, len(KAPPAS), KEYS - 1))
    for (index, kappa), at in product(enumerate(KAPPAS), np.ndindex(margins[0].shape)):
        of_selection, unit = {name: array[at] for name, array in parts.items()}, UNIT[at[:2]]
        of_one = bound_selection(of_selection, unit, n=at[2] + 1, keys=KEYS, d=HEAD_DIM, kappa=kappa)
        given = {"size": at[2] + 1, "n_keys": KEYS, "head_dim": HEAD_DIM, "kappa": kappa, "unit": unit}
        bounds = lower.lower_bounds(Ingredients(**of_selection), **given)
        for name, bound in zip(LOWER, bounds, strict=False):
            assert bound == pytest.approx(of_one.get(name, np.nan), rel=1e-9, nan_ok=True)
        for name, margin in zip(("margin", "sink"), margins, strict=True):
            assert margin[at] == pytest.approx(of_one.get(name, np.nan), rel=1e-12, nan_ok=True)
        if of_one and not math.isnan(of_one["margin"]):
            wanted[:, at[1], index, at[2]] += [changed(of_one)[name] for name in LOWER]
    np.testing.assert_allclose(sums, wanted, rtol=1e-12)
    assert all(np.unique(of_bound).size > 20 for of_bound in wanted)
    assert (np.isnan(margins[1]) & ~np.isnan(margins[0])).any()


def test_bounds_and_sums_are_those_of_every_selection() -> None:
    assert_summed()


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
    with pytest.raises(AssertionError):
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
