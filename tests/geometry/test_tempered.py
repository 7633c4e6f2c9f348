"""Selections at several temperatures against literal readings, and against models whose logits are divided."""

import numpy as np
import pytest

from geometry import limits, selection_profile
from geometry.grids import log_grid
from geometry.limits import MEASURES, random_subset_distance, selection_by_temperature
from geometry.separation import chance
from geometry.separation.chance import separability
from tests.geometry.draws import softmax_rows
from tests.memory import trace

TEMPERATURES = (0.25, 1.0, 3.0)
N = 24


@pytest.fixture(scope="module")
def logits() -> np.ndarray:
    """Of two KV heads of three heads each."""
    return np.random.default_rng(0).standard_normal((2, 3, N)) * 3


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((2, 1, N, 5))


def output(alpha: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Norms of the output and of all contributions."""
    y = alpha[..., None] * values
    return np.linalg.norm(y.sum(axis=-2), axis=-1), np.sqrt((y**2).sum(axis=(-1, -2)))


def rest_distance(alpha: np.ndarray, values: np.ndarray) -> np.ndarray:
    """‖Σ_{i∉I_N} y_i − s_N‖ for the N of the log grid, (…, grid)."""
    order = np.argsort(-alpha, axis=-1, kind="stable")
    y = np.take_along_axis(alpha[..., None] * values, order[..., None], axis=-2)
    s = y.cumsum(axis=-2)
    return np.linalg.norm(s[..., -1:, :] - 2 * s[..., log_grid(N) - 1, :], axis=-1)


def test_it_is_a_model_whose_logits_are_divided(logits: np.ndarray, values: np.ndarray) -> None:
    found = selection_by_temperature(softmax_rows(logits), values, TEMPERATURES)
    np.testing.assert_array_equal(found.n, log_grid(N))
    for index, t in enumerate(TEMPERATURES):
        alpha = softmax_rows(logits / t)
        counted = separability(alpha, values, draws=0, seed=0)
        wanted = counted.observed[..., [chance.MEASURES.index(name) for name in MEASURES], :]
        np.testing.assert_allclose(found.measures[:, :, index], wanted, rtol=1e-12)
        np.testing.assert_allclose(found.distance[:, :, index], rest_distance(alpha, values), rtol=1e-10)
        whole, parts = output(alpha, values)
        random = random_subset_distance(whole[..., None], parts[..., None], size=found.n, n_keys=N)
        np.testing.assert_allclose(found.random_distance[:, :, index], random, rtol=1e-10)
    wrong = rest_distance(softmax_rows(logits * 3), values)  # mutation control: multiplied
    assert np.abs(found.distance[:, :, 2] / wrong - 1).max() > 0.1


def test_at_1_it_is_the_profile_of_the_model(logits: np.ndarray, values: np.ndarray) -> None:
    alpha = softmax_rows(logits).astype(np.float32)
    found, profile = selection_by_temperature(alpha, values, (1.0,)), selection_profile(alpha, values)
    of_grid = found.n - 1
    precision, recall, specificity, _ = np.moveaxis(found.measures[:, :, 0], -2, 0)
    np.testing.assert_array_equal(precision, profile.precision[..., of_grid])
    np.testing.assert_array_equal(recall, profile.recall[..., of_grid])
    np.testing.assert_allclose(specificity, profile.specificity[..., of_grid], rtol=1e-13)
    np.testing.assert_allclose(found.distance[:, :, 0], profile.distance_rest[..., of_grid], rtol=1e-5)


@pytest.mark.parametrize("t", TEMPERATURES)
def test_a_learned_sink_shrinks_distances_alone(logits: np.ndarray, values: np.ndarray, t: float) -> None:
    sink = np.random.default_rng(2).standard_normal((2, 3)) * 3
    rows = softmax_rows(np.concatenate([logits, sink[..., None]], axis=-1))
    alpha, share = rows[..., :-1], rows[..., -1]
    found = selection_by_temperature(alpha, values, (t,), learned_sink=share)
    without = selection_by_temperature(softmax_rows(logits), values, (t,))
    np.testing.assert_array_equal(found.measures, without.measures)
    of_keys = softmax_rows(np.concatenate([logits, sink[..., None]], axis=-1) / t)[..., :-1]
    np.testing.assert_allclose(found.distance[:, :, 0], rest_distance(of_keys, values), rtol=1e-9)
    whole, parts = output(of_keys, values)
    random = random_subset_distance(whole[..., None], parts[..., None], size=found.n, n_keys=N)
    np.testing.assert_allclose(found.random_distance[:, :, 0], random, rtol=1e-9)
    assert (found.distance < without.distance).all()  # mutation control: the sink is not left out


def test_one_key_has_no_selection() -> None:
    found = selection_by_temperature(np.ones((2, 1)), np.ones((2, 1, 3)), TEMPERATURES)
    assert found.measures.shape == (2, 3, len(MEASURES), 0)
    assert found.distance.shape == found.random_distance.shape == (2, 3, 0)


@pytest.mark.parametrize(("heads", "n", "head_dim"), [(1, 1024, 16), (16, 128, 64), (8, 512, 8)])
def test_memory_keeps_within_its_bound(heads: int, n: int, head_dim: int) -> None:
    rng = np.random.default_rng(3)
    weights, values = softmax_rows(rng.standard_normal((heads, n)) * 3), rng.standard_normal((n, head_dim))
    selection_by_temperature(weights, values, TEMPERATURES)  # what is compiled once is there
    _, peak = trace(lambda: selection_by_temperature(weights, values, TEMPERATURES))
    bound = limits.estimate_tempered_bytes(heads, n, head_dim, log_grid(n).size, len(TEMPERATURES))
    assert peak <= bound
    assert bound < 8 * peak, "the bound is of the right size, not just large"
