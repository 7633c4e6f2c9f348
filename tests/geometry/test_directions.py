"""Principal directions against a singular value decomposition of all unit vectors at once."""

from collections.abc import Callable

import numpy as np
import pytest

from geometry.assumptions import values as module
from geometry.assumptions.values import DirectionMoments, PrincipalDirections


def draw(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Value states with a mean, of unequal spread along their axes, and of unequal norms."""
    rng = np.random.default_rng(seed)
    states = rng.standard_normal((n, d)) * np.linspace(2, 0.3, d) + 0.4
    return (states @ np.linalg.qr(rng.standard_normal((d, d)))[0]) * rng.lognormal(size=(n, 1))


def with_zeros() -> np.ndarray:
    values = draw(60, 5, 1)
    values[::4] = 0
    return values


KINDS: dict[str, np.ndarray] = {
    "six": draw(200, 6),
    "float32": draw(90, 4, 2).astype(np.float32),
    "three": draw(50, 3),
    "two": draw(50, 2),
    "one": np.array([[2.0], [3.0], [-1.0], [5.0]]),
    "zeros": with_zeros(),
    "few": draw(2, 8, 5),
    "huge": 1e300 * draw(40, 4),
    "tiny": 1e-300 * draw(40, 4),
}


def unit(values: np.ndarray) -> np.ndarray:
    """Unit vectors of what has a direction, one by one."""
    scaled = [v / np.abs(v).max() for v in values.astype(np.float64) if v.any()]
    return np.array([v / np.sqrt(v @ v) for v in scaled])


def decomposed(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shares, (d), and axes, (d, d), of vectors about the origin."""
    _, strength, axes = np.linalg.svd(rows, full_matrices=True)
    squares = np.zeros(rows.shape[1])
    squares[: len(strength)] = strength**2
    return squares / squares.sum(), axes


def about_the_mean(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return decomposed(rows - rows.mean(axis=0))


def of(values: np.ndarray, block: int = 17) -> PrincipalDirections:
    moments = DirectionMoments(values.shape[1])
    for first in range(0, len(values), block):
        moments.add(values[first : first + block])
    found = moments.compute_directions()
    assert found is not None
    return found


def agrees(values: np.ndarray, reading: Callable = decomposed, given: Callable = unit) -> bool:
    """Whether shares and points are those of a decomposition of all at once."""
    found, rows, d = of(values), given(values), values.shape[1]
    shares, axes = reading(rows)
    padded = np.concatenate([shares, np.zeros(max(0, 3 - d))])
    kept = min(3, np.linalg.matrix_rank(rows))
    axes = axes[:kept] * np.where(axes[:kept] @ unit(values).mean(axis=0) < 0, -1, 1)[:, None]
    points, wanted = found.project(values[values.any(axis=1)])[:, :kept], unit(values) @ axes.T
    return bool(
        np.allclose(found.shares, padded, atol=1e-12)
        and np.allclose(found.effective_dimension, 1 / (shares**2).sum(), rtol=1e-9)
        and np.allclose(points, wanted, atol=1e-9)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_directions_are_those_of_a_singular_value_decomposition(kind: str) -> None:
    assert agrees(KINDS[kind])


@pytest.mark.parametrize(
    ("reading", "given"),
    [(about_the_mean, unit), (decomposed, lambda values: values / np.abs(values).max())],  # centred; not unit vectors
)
def test_other_readings_are_noticed(reading: Callable, given: Callable) -> None:
    assert agrees(KINDS["six"])
    assert not agrees(KINDS["six"], reading, given)


@pytest.mark.parametrize("kind", KINDS)
def test_axes_are_orthonormal_and_shares_fall_and_sum_to_1(kind: str) -> None:
    found, d = of(KINDS[kind]), KINDS[kind].shape[1]
    np.testing.assert_allclose(found.axes @ found.axes.T, np.diag(np.arange(3) < d), atol=1e-12)
    assert found.axes.shape == (3, d)
    assert (found.shares >= 0).all()
    assert (np.diff(found.shares) <= 0).all()
    assert found.shares.sum() == pytest.approx(1)
    assert 1 <= found.effective_dimension <= d * (1 + 1e-12)


def test_axes_point_to_the_side_of_the_mean() -> None:
    for kind, values in KINDS.items():
        axes, opposite = of(values).axes, of(-values).axes
        along = axes @ unit(values).mean(axis=0)
        assert (along >= -1e-12).all(), kind
        np.testing.assert_allclose(opposite[along > 1e-9], -axes[along > 1e-9], atol=1e-9)
        assert (along > 1e-9).any()


def test_axes_of_balanced_directions_have_a_positive_largest_component(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean is 0 but for rounding, which must not choose the side."""
    half = draw(40, 4, 3)
    values = np.concatenate([half, -half[::-1]])
    axes = of(values).axes
    assert (axes[np.arange(3), np.abs(axes).argmax(axis=1)] > 0).all()
    np.testing.assert_allclose(of(-values).axes, axes, atol=1e-9)
    rounding = DirectionMoments(4)
    rounding.add(values)
    assert np.abs(rounding._sum).max() > 0
    monkeypatch.setattr(module, "BALANCED", 0.0)
    assert any(not np.allclose(of(sign * values, block).axes, axes) for sign in (1, -1) for block in (7, 17, 80))


def test_what_has_one_direction_has_dimension_1() -> None:
    found = of(np.outer([1.0, 2.0, 0.5, 3.0], [1.0, -2.0, 2.0, 0.0]))
    assert found.effective_dimension == pytest.approx(1)
    np.testing.assert_allclose(found.shares, [1, 0, 0, 0], rtol=0, atol=16 * 2.0**-52)
    np.testing.assert_allclose(found.axes[0], np.array([1, -2, 2, 0]) / 3)
    assert np.array_equal(found.project(np.array([[3.0, -6.0, 6.0, 0.0]])).round(12) + 0, [[1, 0, 0]])


def test_nothing_with_a_direction_has_none() -> None:
    moments = DirectionMoments(3)
    assert moments.compute_directions() is None
    moments.add(np.zeros((4, 3)))
    assert moments.compute_directions() is None


def test_a_point_of_a_value_state_of_norm_0_is_unknown() -> None:
    points = of(KINDS["six"]).project(np.concatenate([np.zeros((1, 6)), KINDS["six"][:3]]))
    np.testing.assert_array_equal(np.isnan(points).all(axis=1), [True, False, False, False])
    assert (np.linalg.norm(points[1:], axis=1) <= 1 + 1e-12).all()


@pytest.mark.parametrize("values", [np.array([[1.0, np.nan]]), np.array([[np.inf, 0.0]]), np.ones((2, 3)), np.ones(2)])
def test_values_of_another_length_or_not_finite_are_refused(values: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"values must be finite numbers \(n, 2\)"):
        DirectionMoments(2).add(values)
