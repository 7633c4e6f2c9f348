"""The example of Figure 1: what the paper prints of it, and that no rounding decides it."""

import numpy as np
import pytest

from geometry.selection import example
from geometry.selection.example import Intuition, build_intuition
from geometry.selection.profile import selection_counts

MARGIN = 0.05  # How far each decision is from turning, as a share of the radius it is about


def distances(found: Intuition) -> tuple[np.ndarray, np.ndarray]:
    """From s, of the selected keys and of those left out: N largest weights, summed one by one."""
    order = sorted(range(len(found.weights)), key=lambda i: -float(found.weights[i]))
    inside, outside = order[: example.SELECTED], order[example.SELECTED :]
    y = [float(alpha) * np.array(v) for alpha, v in zip(found.weights, found.values.tolist(), strict=True)]
    s = sum((y[i] for i in inside), np.zeros(2))
    return tuple(np.array([np.hypot(*(y[i] - s)) for i in part]) for part in (inside, outside))


def test_precision_and_recall_are_those_of_the_paper() -> None:
    found = build_intuition()
    inside, outside = distances(found)
    assert (found.k_in, found.k_out) == ((inside <= outside.min()).sum(), (outside <= inside.max()).sum()) == (2, 5)
    assert (found.precision, found.recall) == (3 / 8, 2 / 3)
    assert (found.r_min, found.r_max) == pytest.approx((outside.min(), inside.max()))


def test_no_decision_is_near_a_tie() -> None:
    found = build_intuition()
    inside, outside = distances(found)
    assert (np.abs(outside - found.r_max) > MARGIN * found.r_max).all()
    assert (np.abs(inside - found.r_min) > MARGIN * found.r_min).all()
    heaviest = np.sort(found.weights)[::-1]
    assert heaviest[example.SELECTED - 1] > 1.5 * heaviest[example.SELECTED]


def test_another_example_has_other_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example, "ANGLES", example.ANGLES[1:] + example.ANGLES[:1])
    moved = build_intuition()
    assert (moved.precision, moved.recall) != (3 / 8, 2 / 3)
    inside, outside = distances(moved)
    assert (moved.k_in, moved.k_out) == ((inside <= outside.min()).sum(), (outside <= inside.max()).sum())


def test_keys_lie_on_the_circle_and_weights_are_a_row_of_a_softmax() -> None:
    found = build_intuition()
    keys = len(found.weights)
    assert 12 <= keys <= 16
    np.testing.assert_allclose(np.linalg.norm(found.values, axis=1), 1, rtol=1e-15)
    assert found.weights.sum() == pytest.approx(1, abs=keys * 2.0**-52)
    np.testing.assert_array_equal(found.scaled, found.weights[:, None] * found.values)
    assert found.selected.sum() == example.SELECTED
    assert found.weights[found.selected].min() > found.weights[~found.selected].max()
    np.testing.assert_allclose(found.s, found.scaled[found.selected].sum(axis=0))
    assert {part.shape for part in (found.values, found.scaled)} == {(keys, 2)}


def test_the_kernels_count_the_same() -> None:
    found = build_intuition()
    counts = selection_counts(found.weights, found.values)
    at = example.SELECTED - 1
    assert (counts.k_in[at], counts.k_out[at]) == (found.k_in, found.k_out)
    assert (counts.r_min[at], counts.r_max[at]) == pytest.approx((found.r_min, found.r_max))
