"""The printed lower bounds against the definitions, key by key, and wrong readings that must show."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from geometry import selection_profile
from geometry.bounds import lower
from geometry.bounds.lower import INGREDIENTS, Ingredients
from tests.geometry.draws import HEADS, assumed_head
from tests.geometry.printed_bounds import row


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
@pytest.mark.parametrize("scale", ["unit", "raw"])
@pytest.mark.parametrize("sink", [True, False])
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


def test_one_scale_depends_on_the_unit_of_the_values_and_the_other_does_not() -> None:
    weights, values = peaked_head()
    larger = weights, values * np.float32(8)
    np.testing.assert_allclose(
        given(larger, 5.0, "unit", True), given((weights, values), 5.0, "unit", True), rtol=1e-6, atol=1e-9
    )
    assert differs(given(larger, 5.0, "raw", True), given((weights, values), 5.0, "raw", True))


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
