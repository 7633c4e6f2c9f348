"""The keys of largest weight, against a slow reading of their definitions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from geometry import TopKeys, top_keys
from geometry.selection import top_keys as module
from tests.geometry import oracle
from tests.geometry.draws import assumed_head, confined_head, random_head, repeated_head

Found = dict[str, np.ndarray]


def slow(weights: np.ndarray, values: np.ndarray, n: int, count: int) -> Found:
    """Each column by its definition, in float64 and, where ties decide, in rational numbers."""
    order = oracle.selected(weights, len(weights))
    y = weights.astype(np.float64)[:, None] * values.astype(np.float64)
    s = y[order[:n]].sum(axis=0)
    exact = oracle.rational(weights, values)
    energy = sums(exact, order[:n])
    top = order[:count]
    of_each = [within(order, sums(exact, order[:m]), m) for m in range(1, len(top) + 1)]
    return {
        "key": np.array(top),
        "weight": weights[top].astype(np.float64),
        "contribution": np.linalg.norm(y[top], axis=1),
        "relative_distance": np.linalg.norm(s - y[top], axis=1) / np.linalg.norm(s),
        "within_r_min": within(order, energy, n)[:count],
        "within_r_min_at": np.stack(of_each, axis=1)[:count],
    }


def sums(exact: Any, selected: Any) -> Any:
    """Squared distances of all keys from the sum of some, but for a common term, in rational numbers."""
    return oracle.energies(oracle.add([exact[i] for i in selected]), exact)


def within(order: Any, energy: Any, n: int) -> np.ndarray:
    """Whether each key, by rank, is among the first n and no farther than every other key."""
    nearest = min((energy[j] for j in order[n:]), default=None)
    return np.array([i in order[:n] and nearest is not None and energy[i] <= nearest for i in order])


def differences(found: TopKeys, expected: Found) -> set[str]:
    """The columns that differ."""
    return {
        name for name, column in expected.items() if not np.allclose(getattr(found, name), column, rtol=1e-9, atol=0)
    }


HEADS = (random_head, assumed_head, repeated_head, confined_head)


@pytest.mark.parametrize("draw", HEADS)
@pytest.mark.parametrize(("n", "count"), [(1, 16), (16, 16), (40, 50)])
def test_every_column_equals_its_definition(draw: Callable[..., Any], n: int, count: int) -> None:
    weights, values = draw(40, 6, 3)
    assert differences(top_keys(weights, values, n=n, count=count), slow(weights, values, n, count)) == set()


WITHIN = {"within_r_min", "within_r_min_at"}


@pytest.mark.parametrize(
    ("wrong", "columns"), [("distance", {"relative_distance"}), ("compare_distances", WITHIN), ("SURELY", WITHIN)]
)
def test_a_wrong_distance_is_noticed(wrong: str, columns: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    weights, values = assumed_head(40, 6, 3)
    right = getattr(getattr(module, wrong), "py_func", None)
    changed = {
        "distance": lambda s, *rest: right(s * 1.001, *rest),
        "compare_distances": lambda *given: -right(*given),
        "SURELY": 50.0,  # leaves out keys that may be nearer
    }
    monkeypatch.setattr(module, wrong, changed[wrong])
    for kernel in ("_measure_keys", "_compare_keys", "_find_nearest"):
        monkeypatch.setattr(module, kernel, getattr(module, kernel).py_func)
    assert differences(top_keys(weights, values, n=8), slow(weights, values, 8, 16)) == columns


def test_large_value_states_do_not_overflow() -> None:
    weights, values = random_head(20, 4, 1)
    plain, large = (top_keys(weights, values.astype(np.float64) * scale, n=5) for scale in (1.0, 2.0**700))
    np.testing.assert_array_equal(large.contribution, plain.contribution * 2.0**700)
    np.testing.assert_array_equal(large.relative_distance, plain.relative_distance)


def test_one_key_is_itself_the_sum() -> None:
    found = top_keys(np.ones(1, np.float32), np.ones((1, 3), np.float32), n=1)
    assert (found.key.tolist(), found.relative_distance.tolist(), found.within_r_min.tolist()) == ([0], [0.0], [False])
