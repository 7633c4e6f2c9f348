"""Weights at other temperatures against softmax(l / T), and counts there against the definitions."""

import math
from typing import Any

import numpy as np
import pytest

from geometry import selection_counts
from geometry.limits import temperature
from geometry.limits.temperature import TEMPERATURES, counts_by_temperature, temper
from tests.geometry import draws, oracle

LOGITS = np.random.default_rng(0).standard_normal((3, 2, 40)) * 4
SINKS = LOGITS.max(axis=-1) + np.random.default_rng(1).standard_normal((3, 2))
"""Logits of a model's size, and of a learned sink in each row."""


def softmax(logits: np.ndarray) -> np.ndarray:
    """Row by row, in float64."""
    rows = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return rows / rows.sum(axis=-1, keepdims=True)


def with_sink(t: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights of the keys and the share of the sink, whose logit comes last."""
    rows = softmax(np.concatenate([LOGITS, SINKS[..., None]], axis=-1) / t)
    return rows[..., :-1], rows[..., -1]


@pytest.mark.parametrize("t", [*TEMPERATURES, 0.01, 1000.0])
def test_it_is_the_softmax_of_logits_divided(t: float) -> None:
    np.testing.assert_allclose(temper(softmax(LOGITS), t), softmax(LOGITS / t), rtol=1e-12 / min(t, 1))
    single = softmax(LOGITS).astype(np.float32)
    np.testing.assert_allclose(temper(single, t), softmax(LOGITS / t), rtol=2**-22 / min(t, 1))


@pytest.mark.parametrize("t", TEMPERATURES)
def test_a_learned_sink_takes_its_share_at_every_temperature(t: float) -> None:
    weights, share = with_sink(1.0)
    wanted, left = with_sink(t)
    found = temper(weights, t, share)
    np.testing.assert_allclose(found, wanted, rtol=1e-11)
    np.testing.assert_allclose(1 - found.sum(axis=-1), left, rtol=1e-11, atol=1e-15)
    if t != 1:  # mutation control: a sink whose share stays, and one that is left out
        assert np.abs(softmax(LOGITS / t) * (1 - share[..., None]) / wanted - 1).max() > 0.1
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


@pytest.mark.one_case
@pytest.mark.parametrize("kind", [draws.random_head, draws.repeated_head, draws.underflowed_head, draws.zeroed_head])
@pytest.mark.parametrize("grid", [None, [1, 2, 5, 11], [3], list(range(1, 12))])
def test_counts_at_every_temperature_are_exact(kind: draws.Head, grid: list[int] | None) -> None:
    weights, values = kind(12, 3, 0)
    sizes = np.arange(1, 12) if grid is None else np.array(grid)
    found = counts_by_temperature(weights, values, n=grid)
    np.testing.assert_array_equal(found.n, sizes)
    np.testing.assert_array_equal(found.temperature, TEMPERATURES)
    for row, t in enumerate(TEMPERATURES):
        alpha = temper(weights, t)
        for name, wanted in oracle.exact_counts(alpha, values).items():
            np.testing.assert_array_equal(getattr(found, name)[row], wanted[sizes - 1])
        for column, size in enumerate(sizes):
            wanted = oracle.row(alpha, values, size)
            assert found.r_min[row, column] == pytest.approx(wanted["r_min"], rel=1e-9, abs=1e-12)
            assert found.r_max[row, column] == pytest.approx(wanted["r_max"], rel=1e-9, abs=1e-12)


def test_counts_change_with_the_temperature() -> None:
    """Else the test above says nothing of it."""
    weights, values = draws.random_head(60, 4, 0)
    found = counts_by_temperature(weights, values, (0.5, 1.0, 2.0))
    assert (np.diff(found.k_in, axis=0) != 0).any(axis=1).all()


@pytest.mark.parametrize("kind", draws.HEADS)
def test_some_of_all_n_have_the_counts_of_all(kind: str) -> None:
    weights, values = draws.HEADS[kind](150, 8, 1)
    grid = [1, 2, 7, 40, 100, 149]
    whole, some = counts_by_temperature(weights, values), counts_by_temperature(weights, values, n=grid)
    for name in ("k_in", "k_out"):
        np.testing.assert_array_equal(getattr(some, name), getattr(whole, name)[:, np.array(grid) - 1])
    for name in ("r_min", "r_max"):
        # sums of s_N in another order: absolute rounding, of the size of the values
        np.testing.assert_allclose(
            getattr(some, name), getattr(whole, name)[:, np.array(grid) - 1], rtol=1e-9, atol=1e-14
        )


def test_heads_of_a_group_share_value_states() -> None:
    weights, values = draws.grouped(draws.random_head, 2, 3, 20, 4)
    found = counts_by_temperature(weights, values, (0.5, 2.0), n=[2, 9])
    assert found.k_in.shape == (2, 3, 2, 2)
    for head in np.ndindex(2, 3):
        alone = counts_by_temperature(weights[head], values[head[0], 0], (0.5, 2.0), n=[2, 9])
        np.testing.assert_array_equal(found.k_in[head], alone.k_in)
        np.testing.assert_array_equal(found.r_max[head], alone.r_max)


@pytest.mark.parametrize("grid", [None, [1, 5, 20]])
def test_a_learned_sink_shrinks_radii_and_changes_no_count(grid: list[int] | None) -> None:
    weights, share = with_sink(1.0)
    values = np.random.default_rng(2).standard_normal((3, 1, 40, 5)).astype(np.float32)
    found = counts_by_temperature(weights, values, (0.5, 1.0, 2.0), grid, share)
    sizes = found.n - 1
    for row, t in enumerate((0.5, 1.0, 2.0)):
        wanted = selection_counts(with_sink(t)[0], values)
        np.testing.assert_array_equal(found.k_out[..., row, :], wanted.k_out[..., sizes])
        np.testing.assert_allclose(found.r_max[..., row, :], wanted.r_max[..., sizes], rtol=1e-9, atol=1e-15)


def test_a_sink_that_takes_all_at_a_temperature_leaves_counts() -> None:
    weights = np.array([1e-20, 2e-20, 3e-20], np.float32)
    found = counts_by_temperature(weights, np.eye(3, dtype=np.float32), (0.05, 1.0), learned_sink=1.0)
    np.testing.assert_array_equal(found.r_max[0], 0.0)
    assert (found.k_in >= 0).all()


def test_wrong_temperatures_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation control: α^T for α^(1/T)."""
    monkeypatch.setattr(temperature, "temper", lambda alpha, t, *sink: temper(alpha, 1 / t, *sink))
    weights, values = draws.random_head(60, 4, 0)
    wrong = counts_by_temperature(weights, values, (2.0,)).k_in[0]
    assert (wrong != selection_counts(temper(weights, 2.0), values).k_in).any()


@pytest.mark.parametrize("grid", [[0, 1], [1, 1], [2, 1], [5], [1.0], [[1, 2]]])
def test_an_n_that_is_none_is_refused(grid: list[Any]) -> None:
    with pytest.raises(ValueError, match="n must be ascending whole numbers from 1 to 4"):
        counts_by_temperature(np.full(5, 0.2), np.eye(5), n=grid)
