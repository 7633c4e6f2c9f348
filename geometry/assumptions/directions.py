"""Principal directions of the unit vectors of value states, and their effective dimension.

Holds the second moments of the unit vectors of a KV head, summed block by block, their principal directions, and the
components of unit vectors along the first three (Figure 9). For cosines of pairs see
``geometry.assumptions.similarity``.

Moments are about the origin, not about the mean: they describe directions on a sphere, and a mean far from the origin
is their main feature.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geometry.arrays import F64
from geometry.assumptions.similarity import unit_vectors
from geometry.threads import one_blas_thread

AXES = 3
"""Number of principal directions that are kept, as many as a figure can show."""

BALANCED = 1e-12
"""Largest component of the mean of unit vectors along an axis that counts as 0 when the axis is oriented."""


@dataclass(frozen=True)
class PrincipalDirections:
    """The principal directions of the unit vectors of a head, in order of falling share; d components each."""

    axes: F64
    """The first ``AXES`` directions, orthonormal rows, (3, d); rows beyond d are 0."""
    shares: F64
    """Share of the squared length along each direction, summing to 1, (max(d, 3),); 0 beyond d."""

    @property
    def effective_dimension(self) -> float:
        """Participation ratio 1 / Σ share², from 1 (one direction) to d (equal shares)."""
        return float(1 / (self.shares**2).sum())

    @one_blas_thread
    def project(self, values: NDArray[np.floating]) -> F64:
        """Components of the unit vectors of value states along the first three directions.

        Parameters
        ----------
        values
            Value states, (n, d), of any unit.

        Returns
        -------
        ndarray
            float64 (n, 3), points in the unit ball; NaN where a value state has norm 0.
        """
        unit, directed = unit_vectors(values)
        points = np.clip(unit @ self.axes.T, -1.0, 1.0)
        points[~directed] = np.nan
        return points


class DirectionMoments:
    """First and second moments about the origin of unit vectors, added block by block; (d + d²) numbers in memory.

    Parameters
    ----------
    head_dim
        d, the length of a value state.
    """

    def __init__(self, head_dim: int) -> None:
        self._sum: F64 = np.zeros(head_dim)
        self._squares: F64 = np.zeros((head_dim, head_dim))

    @one_blas_thread
    def add(self, values: NDArray[np.floating]) -> None:
        """Add the unit vectors of some value states, (n, d), of any unit; value states of norm 0 are skipped.

        Raises
        ------
        ValueError
            If their length is not d, or they are not finite.
        """
        if values.shape[1:] != self._sum.shape or not np.isfinite(values).all():
            raise ValueError(f"values must be finite numbers (n, {self._sum.size}), got {values.dtype} {values.shape}")
        unit, _ = unit_vectors(values)
        self._sum += unit.sum(axis=0)
        self._squares += unit.T @ unit

    @one_blas_thread
    def compute_directions(self) -> PrincipalDirections | None:
        """Compute the principal directions of all added unit vectors; None if there are none.

        Axes are oriented towards the mean of the unit vectors; if the component of the mean along an axis is 0, the
        largest component of the axis is positive.
        """
        added = np.trace(self._squares)  # the number of unit vectors, up to rounding
        if added == 0:
            return None
        ascending, columns = np.linalg.eigh(self._squares)
        strength, rows = np.maximum(ascending[::-1], 0), columns.T[::-1]
        kept = min(AXES, len(rows))
        axes, shares = np.zeros((AXES, len(rows))), np.zeros(max(AXES, len(rows)))
        axes[:kept] = _orient_axes(rows[:kept], self._sum / added)
        shares[: len(rows)] = strength / strength.sum()
        return PrincipalDirections(axes, shares)


def _orient_axes(axes: F64, mean: F64) -> F64:
    """Orient each axis, (axis, d), towards the mean."""
    along = axes @ mean
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)[:, 0]
    side = np.where(np.abs(along) > BALANCED, along, largest)
    return axes * np.where(side < 0, -1.0, 1.0)[:, None]
