"""The curve of one selection over all radii, against the definitions and against AUC."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geometry import selection_counts
from geometry.separation.chance import separation, separation_curve
from tests.geometry import oracle
from tests.geometry.draws import HEADS, random_head, repeated_head, small_heads


def points(weights: np.ndarray, values: np.ndarray, size: int) -> list[tuple[Fraction, Fraction, Fraction]]:
    """(P, R, false positives) within every distance at which there are keys, in rational arithmetic."""
    y, (inside, outside) = oracle.rational(weights, values), oracle.split(weights, size)
    energy = oracle.energies([sum(y[i][k] for i in inside) for k in range(len(y[0]))], y)
    found = []
    for reach in sorted(set(energy)):
        chosen, others = (sum(energy[key] <= reach for key in part) for part in (inside, outside))
        found.append((Fraction(chosen, chosen + others), Fraction(chosen, size), Fraction(others, len(outside))))
    return found


def area(recall: np.ndarray, false_positives: np.ndarray) -> float:
    return float(np.trapezoid(np.r_[0, recall], np.r_[0, false_positives]))


def assert_right(weights: np.ndarray, values: np.ndarray, size: int) -> None:
    curve, expected = separation_curve(weights, values, size), points(weights, values, size)
    found = np.stack([curve.precision, curve.recall, curve.false_positive_share], axis=1)
    np.testing.assert_array_equal(found, np.array([[float(x) for x in point] for point in expected]))
    assert curve.auc == separation(weights, values, [size])[0]
    assert area(curve.recall, curve.false_positive_share) == pytest.approx(curve.auc, abs=1e-12)


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("size", [1, 2, 9, 29])
def test_equals_the_definitions(kind: str, size: int) -> None:
    assert_right(*HEADS[kind](30, 6, 4), size)


@given(small_heads(), st.data())
def test_ties_make_one_point_as_in_exact_arithmetic(head: tuple[np.ndarray, np.ndarray], data: st.DataObject) -> None:
    assert_right(*head, data.draw(st.integers(1, len(head[0]) - 1)))


def test_ties_in_several_points_would_be_noticed() -> None:
    """Each key a point of its own, selected ones first: another area."""
    weights, values = repeated_head(40, 4, 0)
    curve = separation_curve(weights, values, 11)
    assert len(curve.radius) == 6
    order, expected = np.argsort(-weights, kind="stable"), points(weights, values, 11)
    distances = np.linalg.norm((weights[:, None] * values)[order[:11]].sum(0) - weights[:, None] * values, axis=1)
    chosen = np.isin(np.argsort(distances, kind="stable"), order[:11])
    apart = area(np.cumsum(chosen) / 11, np.cumsum(~chosen) / 29)
    assert len(expected) == 6
    assert abs(apart - curve.auc) > 0.01


@pytest.mark.parametrize("kind", HEADS)
def test_radii_are_distances(kind: str) -> None:
    weights, values = HEADS[kind](50, 8, 3)
    order = np.argsort(-weights.astype(float), kind="stable")
    y = weights.astype(float)[order, None] * values[order]
    for size in (1, 20, 49):
        curve, counts = separation_curve(weights, values, size), selection_counts(weights, values)
        distances = np.linalg.norm(y[:size].sum(axis=0) - y, axis=1)
        scale = distances.max() * 1e-9
        assert (np.diff(curve.radius) >= 0).all()
        assert curve.radius[-1] == pytest.approx(distances.max(), abs=scale)
        assert curve.radius[0] == pytest.approx(distances.min(), abs=scale)
        at_r_max = np.flatnonzero(curve.recall == 1)[0]
        assert curve.radius[at_r_max] == pytest.approx(counts.r_max[size - 1], abs=scale)
        assert curve.precision[at_r_max] == size / (size + counts.k_out[size - 1])
        at_r_min = np.flatnonzero(curve.false_positive_share > 0)[0]
        assert curve.radius[at_r_min] == pytest.approx(counts.r_min[size - 1], abs=scale)
        assert curve.recall[at_r_min] == counts.k_in[size - 1] / size


def test_radii_have_the_unit_of_the_values() -> None:
    weights, values = random_head(20, 4, 0)
    small, large = (separation_curve(weights, np.ldexp(values.astype(float), by), 7) for by in (0, 60))
    np.testing.assert_array_equal(large.radius, np.ldexp(small.radius, 60))
    np.testing.assert_array_equal(large.precision, small.precision)


def test_bad_input_is_named() -> None:
    weights, values = random_head(9, 2, 0)
    with pytest.raises(ValueError, match=r"separation_curve takes one head, .* got \(1, 9\) and \(9, 2\)"):
        separation_curve(weights[None], values, 3)
    for size in (0, 9):
        with pytest.raises(ValueError, match="n must be ascending whole numbers from 1 to 8"):
            separation_curve(weights, values, size)
    with pytest.raises(ValueError, match=r"weights of shape .* must be rows"):
        separation_curve(-weights, values, 3)
