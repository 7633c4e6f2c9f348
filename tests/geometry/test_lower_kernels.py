"""Margins of whole layers, and sums of the printed lower bounds, against their definitions selection by selection."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from geometry.bounds import lower
from geometry.bounds.lower import INGREDIENTS, LOWER, Ingredients, sum_lower_bounds
from tests.geometry.printed_bounds import bound_selection

SEQUENCES, HEADS, KEYS, HEAD_DIM = 4, 3, 12, 16
KAPPAS = (0.02, 0.5, 8.0)
UNIT = np.array([[1.0, 0.5, 2.0]] * 3 + [[0.0, np.nan, 1.0]])
"""C of the sequences and heads; in the last sequence, 0 and unknown."""


def draw_ingredients(dtype: type) -> dict[str, np.ndarray]:
    """Ingredients (sequence, head, N): without J, without the sink, without either, of norms 0 and near underflow."""
    rng, shape = np.random.default_rng(3), (SEQUENCES, HEADS, KEYS - 1)
    parts = {name: rng.uniform(0.2, 1, shape) for name in INGREDIENTS}
    parts["rho_out"] = rng.choice([0, 0.01, 0.3, 0.9], shape)
    parts["a_max_out"] *= rng.choice([0, 0.1, 1], shape)
    for name in INGREDIENTS:
        parts[name][0, 0, :2] = np.nan if name == "a_0" else 0  # all weighted norms are 0
        parts[name][1] *= 1 if name == "rho_out" else 1e-25
        parts[name][:, 1, 0] = parts[name][:, 1, 0] if name in ("a_0", "a_max_out") else np.nan  # only the sink
    parts["a_0"][:, 2, ::3] = np.nan
    return {name: array.astype(dtype) for name, array in parts.items()}


def list_selections(parts: dict[str, np.ndarray], kappa: float) -> dict[tuple[int, ...], dict[str, float]]:
    """The bounds of every selection by (sequence, head, N's index)."""
    given = {"keys": KEYS, "d": HEAD_DIM, "kappa": kappa}
    return {
        at: bound_selection({name: array[at] for name, array in parts.items()}, UNIT[at[:2]], n=at[2] + 1, **given)
        for at in np.ndindex(SEQUENCES, HEADS, KEYS - 1)
    }


def measure(parts: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Δ/B and Δ_0/B of all selections."""
    given = Ingredients(**parts), UNIT[..., None]
    return lower.margin(*given), lower.margin_sink(*given)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_margins_are_those_of_every_selection(dtype: type) -> None:
    parts = draw_ingredients(dtype)
    margins = dict(zip(("margin", "sink"), measure(parts), strict=True))
    slowly = list_selections(parts, 1.0)
    for name, array in margins.items():
        wanted = [of_one.get(name, np.nan) for of_one in slowly.values()]
        np.testing.assert_allclose(array.ravel(), wanted, rtol=1e-12)
        assert {-1, 1} <= set(np.sign(array[~np.isnan(array)]))
        assert np.isnan(array).any()
    np.testing.assert_allclose(margins["margin"], lower.margin(Ingredients(**parts), UNIT[..., None]), rtol=1e-12)
    assert (np.isnan(margins["sink"]) & ~np.isnan(margins["margin"])).any()


def assert_summed(changed: Callable[[dict[str, float]], dict[str, float]] = lambda of_one: of_one) -> None:
    """Sums are those of the bounds of all selections that have bounds."""
    parts = draw_ingredients(np.float32)
    margins = measure(parts)
    sums = sum_lower_bounds(*margins, n_keys=KEYS, head_dim=HEAD_DIM, kappas=KAPPAS)
    wanted = np.zeros((len(LOWER), HEADS, len(KAPPAS), KEYS - 1))
    for index, kappa in enumerate(KAPPAS):
        for (_, head, at), of_one in list_selections(parts, kappa).items():
            if of_one and not math.isnan(of_one["margin"]):
                wanted[:, head, index, at] += [changed(of_one)[name] for name in LOWER]
    np.testing.assert_allclose(sums, wanted, rtol=1e-12)
    for name, of_bound in zip(LOWER, wanted, strict=True):
        assert np.unique(of_bound).size > 20, name


def test_sums_are_those_of_every_selection() -> None:
    assert_summed()


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("precision_lower", lambda one: one["precision_lower"] ** 1.001),
        ("recall_lower", lambda one: 2 - 1 / one["precision_lower"]),  # below 0
        ("f_r_max_lower", lambda one: one["precision_lower"]),
        ("f_r_min_lower", lambda one: one["recall_lower"]),
        ("precision_lower", lambda one: one["precision_lower"] if one["sink"] <= 0 else 1.0),
    ],
)
def test_other_bounds_would_be_noticed(name: str, wrong: Callable[[dict[str, float]], float]) -> None:
    with pytest.raises(AssertionError):
        assert_summed(lambda of_one: of_one | {name: wrong(of_one)})
