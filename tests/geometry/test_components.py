"""The plane in which curves differ most, against a singular value decomposition."""

import numpy as np
import pytest

from geometry.statistics.components import fit_plane


def slow(curves: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Axes, points and share from the singular values of the centred curves."""
    centred = curves - curves.mean(axis=0)
    _, lengths, directions = np.linalg.svd(centred)
    axes = directions[:2] * np.where(directions[:2].sum(axis=1) < 0, -1, 1)[:, None]
    return axes, centred @ axes.T, float((lengths[:2] ** 2).sum() / (lengths**2).sum())


@pytest.mark.parametrize("shape", [(30, 5), (4, 12), (3, 2), (2, 7)])
def test_axes_points_and_share_are_those_of_the_singular_values(shape: tuple[int, int]) -> None:
    curves = np.random.default_rng(1).normal(size=shape) * np.arange(1, shape[1] + 1)
    found, (axes, points, share) = fit_plane(curves), slow(curves)
    if shape[0] == 2:
        axes[1], points[:, 1] = 0, 0  # two curves differ in one direction
    np.testing.assert_allclose(found.axes, axes, atol=1e-9)
    np.testing.assert_allclose(found.points, points, atol=1e-9)
    assert found.share == pytest.approx(share)
    wrong, _, _ = slow(curves + 3 * np.arange(shape[0])[:, None])
    assert not np.allclose(found.axes, wrong, atol=1e-3), "other curves have other axes"


def test_a_number_that_is_not_known_counts_as_the_mean_of_the_others() -> None:
    curves = np.random.default_rng(2).normal(size=(9, 4))
    filled = curves.copy()
    filled[3, 1] = np.delete(curves[:, 1], 3).mean()
    curves[3, 1] = np.nan
    np.testing.assert_allclose(fit_plane(curves).points, fit_plane(filled).points)
    lacking = np.column_stack([curves, np.full(9, np.nan)])
    np.testing.assert_allclose(fit_plane(lacking).points, fit_plane(curves).points, atol=1e-12)


@pytest.mark.parametrize("curves", [np.ones((5, 3)), np.ones((1, 3)), np.full((4, 3), np.nan)])
def test_curves_that_are_equal_have_no_plane(curves: np.ndarray) -> None:
    found = fit_plane(curves)
    assert np.isnan(found.share)
    assert not found.points.any()
    assert not found.axes.any()
