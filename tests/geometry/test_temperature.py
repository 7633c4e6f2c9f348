"""Weights at other temperatures against softmax(l / T)."""

import math
from typing import Any

import numpy as np
import pytest

from geometry.limits import TEMPERATURES, temper
from tests.geometry import draws
from tests.geometry.draws import softmax_rows

LOGITS = np.random.default_rng(0).standard_normal((3, 2, 40)) * 4
SINKS = LOGITS.max(axis=-1) + np.random.default_rng(1).standard_normal((3, 2))
"""Logits of a model's size, and of a learned sink in each row."""


def with_sink(t: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights of the keys and the share of the sink, whose logit comes last."""
    rows = softmax_rows(np.concatenate([LOGITS, SINKS[..., None]], axis=-1) / t)
    return rows[..., :-1], rows[..., -1]


@pytest.mark.parametrize("t", [*TEMPERATURES, 0.01, 1000.0])
def test_it_is_the_softmax_of_logits_divided(t: float) -> None:
    np.testing.assert_allclose(temper(softmax_rows(LOGITS), t), softmax_rows(LOGITS / t), rtol=1e-12 / min(t, 1))
    single = softmax_rows(LOGITS).astype(np.float32)
    np.testing.assert_allclose(temper(single, t), softmax_rows(LOGITS / t), rtol=2**-22 / min(t, 1))


@pytest.mark.parametrize("t", TEMPERATURES)
def test_a_learned_sink_takes_its_share_at_every_temperature(t: float) -> None:
    weights, share = with_sink(1.0)
    wanted, left = with_sink(t)
    found = temper(weights, t, share)
    np.testing.assert_allclose(found, wanted, rtol=1e-11)
    np.testing.assert_allclose(1 - found.sum(axis=-1), left, rtol=1e-11, atol=1e-15)
    if t != 1:  # mutation control: a sink whose share stays, and one that is left out
        assert np.abs(softmax_rows(LOGITS / t) * (1 - share[..., None]) / wanted - 1).max() > 0.1
        assert np.abs(temper(weights, t) / wanted - 1).max() > 0.1


def test_at_1_the_weights_are_those_given() -> None:
    weights = np.array([0.25, 0.125, 0.0], np.float32)
    found = temper(weights, 1.0)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, weights)
    assert not np.shares_memory(found, temper(found, 1.0))


@pytest.mark.parametrize("t", TEMPERATURES)
def test_a_key_that_underflowed_stays_at_0(t: float) -> None:
    weights, _ = draws.underflowed_head(30, 2, 0)
    found = temper(weights, t)
    np.testing.assert_array_equal(found == 0, weights == 0)
    assert found.sum() == pytest.approx(weights.sum() if t == 1 else 1.0)


def test_weights_of_every_size_neither_overflow_nor_lose_their_sum() -> None:
    weights = np.array([1.0, 1e-30, 1e-45, 0.0], np.float32)
    for t in (1e-6, 1e-3, 0.1, 10.0, 1e6):
        found = temper(weights, t)
        assert np.isfinite(found).all()
        assert found.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(temper(weights, 1e9), [1 / 3, 1 / 3, 1 / 3, 0], rtol=1e-6)
    tiny = np.full(3, 1e-45, np.float32)
    np.testing.assert_allclose(temper(tiny, 0.01), [1 / 3] * 3)
    np.testing.assert_allclose(temper(tiny, 0.5, 1.0), np.zeros(3), atol=1e-80)


@pytest.mark.parametrize("t", TEMPERATURES)
def test_the_order_of_keys_is_kept(t: float) -> None:
    weights, _ = draws.random_head(200, 2, 3)
    order = np.argsort(-weights, kind="stable")
    np.testing.assert_array_equal(np.argsort(-temper(weights, t), kind="stable"), order)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.5, 0.5], 0.0), "temperature must be a positive number"),
        (([0.5, 0.5], math.inf), "temperature must be a positive number"),
        (([0.5, 0.5], math.nan), "temperature must be a positive number"),
        (([0.5, -0.5], 2.0), "weights must be finite and not negative"),
        (([0.5, math.nan], 2.0), "weights must be finite and not negative"),
        (([0.5, 0.4], 2.0, -0.1), "learned_sink must be finite and not negative"),
        (([0.5, 0.4], 2.0, [0.1]), "must match"),
        (([[0.5, 0.5], [0.0, 0.0]], 2.0), "all weights of a row are 0"),
    ],
)
def test_what_is_no_row_or_no_temperature_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        temper(*arguments)
