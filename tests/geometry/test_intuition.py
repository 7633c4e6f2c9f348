"""The example of Figure 1: what the paper prints of it, and that no rounding decides it."""

import numpy as np
import pytest

from geometry.selection import example
from geometry.selection.example import Intuition, build_intuition
from geometry.selection.profile import selection_counts


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


def test_the_kernels_count_the_same() -> None:
    found = build_intuition()
    counts = selection_counts(found.weights, found.values)
    at = example.SELECTED - 1
    assert (counts.k_in[at], counts.k_out[at]) == (found.k_in, found.k_out)
    assert (counts.r_min[at], counts.r_max[at]) == pytest.approx((found.r_min, found.r_max))
