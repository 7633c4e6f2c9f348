"""The plane in which many curves differ most: the first two principal components, and how much of them it holds."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from geometry.arrays import F64


@dataclass(frozen=True)
class Plane:
    """The plane of some curves."""

    points: F64  # Place of each curve on both axes, (…, 2), in the units of the curves; the mean curve lies at 0
    axes: F64
    """Directions of the axes, (2, F), of length 1, each with a sum of at least 0; 0 where the curves differ in less."""
    share: float  # Share of the curves' variance that the plane holds; NaN if they are all equal


def fit_plane(curves: ArrayLike) -> Plane:
    """Find the first two principal components of curves of F numbers, (H, F), H ≥ 1; what is NaN counts as the mean of
    the others.
    """
    given = np.asarray(curves, np.float64)
    known = ~np.isnan(given)
    counts = np.maximum(known.sum(axis=0), 1)
    centred = np.where(known, given - np.where(known, given, 0.0).sum(axis=0) / counts, 0.0)
    variances, directions = np.linalg.eigh(centred.T @ centred)
    axes = np.zeros((2, given.shape[1]))
    total = variances.sum()
    for place, index in enumerate(range(len(variances) - 1, max(len(variances) - 3, -1), -1)):
        if variances[index] > 1e-12 * total:
            axes[place] = directions[:, index] * (1 if directions[:, index].sum() >= 0 else -1)
    points = centred @ axes.T
    return Plane(points, axes, float((points**2).sum() / total) if total > 0 else float("nan"))
