"""Principal directions of value states: along which axes their unit vectors lie, and how many they really use.

Holds the second moments of the unit vectors of a KV head, summed block by block, their principal directions, and the
components of unit vectors along the first three (Figure 9). What does not belong here: cosines of pairs
(``geometry.similarity``), and where the value states come from.

Moments are taken about the origin, not about the mean: directions on a sphere are the question, and a mean far from the
origin is the largest part of the answer.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geometry.kernels import F64
from geometry.similarity import unit_vectors
from geometry.threads import one_blas_thread

AXES = 3
"""Principal directions that are kept: what a picture can show."""

BALANCED = 1e-12
"""A mean of unit vectors whose component along an axis is no larger has no side."""


@dataclass(frozen=True)
class PrincipalDirections:
    """The principal directions of the unit vectors of a head, in order of falling share; d components each."""

    axes: F64
    """The first ``AXES``, orthonormal rows, (3, d); rows beyond d are 0."""
    shares: F64
    """Share of the squared length along each of all directions, summing to 1, (max(d, 3),); 0 beyond d."""

    @property
    def effective_dimension(self) -> float:
        """Participation ratio 1 / Σ share², from 1 (one direction) to d (all alike)."""
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
            float64 (n, 3), points of the ball of radius 1; NaN where a value state has norm 0.
        """
        unit, directed = unit_vectors(values)
        points = np.clip(unit @ self.axes.T, -1.0, 1.0)
        points[~directed] = np.nan
        return points


class DirectionMoments:
    """First and second moments about the origin of unit vectors, block by block; (d + d²) numbers in memory.

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
        """Add the unit vectors of some value states, (n, d), of any unit; those of norm 0 have none.

        Raises
        ------
        ValueError
            If they have another length than d, or are not finite.
        """
        if values.shape[1:] != self._sum.shape or not np.isfinite(values).all():
            msg = f"values must be finite numbers (n, {self._sum.size}), got {values.dtype} {values.shape}"
            raise ValueError(msg)
        unit, _ = unit_vectors(values)
        self._sum += unit.sum(axis=0)
        self._squares += unit.T @ unit

    @one_blas_thread
    def principal(self) -> PrincipalDirections | None:
        """The principal directions of all that was added; None if nothing had a direction.

        Axes point to the side of the mean of the unit vectors; where the mean has no side, their largest component is
        positive.
        """
        added = np.trace(self._squares)  # the number of unit vectors, but for rounding
        if added == 0:
            return None
        ascending, columns = np.linalg.eigh(self._squares)
        strength, rows = np.maximum(ascending[::-1], 0), columns.T[::-1]
        kept = min(AXES, len(rows))
        axes, shares = np.zeros((AXES, len(rows))), np.zeros(max(AXES, len(rows)))
        axes[:kept] = _oriented(rows[:kept], self._sum / added)
        shares[: len(rows)] = strength / strength.sum()
        return PrincipalDirections(axes, shares)


def _oriented(axes: F64, mean: F64) -> F64:
    """Each axis, (axis, d), or its opposite, whichever has the mean on its side."""
    along = axes @ mean
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)[:, 0]
    side = np.where(np.abs(along) > BALANCED, along, largest)
    return axes * np.where(side < 0, -1.0, 1.0)[:, None]
