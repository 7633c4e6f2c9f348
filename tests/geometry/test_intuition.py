"""The example of Figure 1: what the paper prints of it, and that no rounding decides it."""

import numpy as np
import pytest

from geometry.selection import example
from geometry.selection.example import build_intuition
from geometry.selection.profile import selection_counts


def test_precision_and_recall_are_those_of_the_paper() -> None:
    """By distances from s of the N largest weights, summed one by one, and by the kernels."""
    found, at = build_intuition(), example.SELECTED - 1
    order = sorted(range(len(found.weights)), key=lambda i: -float(found.weights[i]))
    y = [float(found.weights[i]) * np.array(found.values[i].tolist()) for i in order]
    s = sum(y[: example.SELECTED], np.zeros(2))
    distance = np.array([np.hypot(*(one - s)) for one in y])
    inside, outside = distance[: example.SELECTED], distance[example.SELECTED :]
    assert (found.k_in, found.k_out) == ((inside <= outside.min()).sum(), (outside <= inside.max()).sum()) == (2, 5)
    assert (found.precision, found.recall) == (3 / 8, 2 / 3)
    assert (found.r_min, found.r_max) == pytest.approx((outside.min(), inside.max()))
    counts = selection_counts(found.weights, found.values)
    assert (counts.k_in[at], counts.k_out[at]) == (found.k_in, found.k_out)
    assert (counts.r_min[at], counts.r_max[at]) == pytest.approx((found.r_min, found.r_max))
