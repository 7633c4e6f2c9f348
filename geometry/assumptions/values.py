"""Value states: how their norms vary (Assumption 1), their cosines (Assumption 2), and their principal directions."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft

from geometry.arrays import F64, Bool
from geometry.threads import one_blas_thread


def variation(norms: ArrayLike) -> F64:
    """Coefficient of variation along the last axis (divisor: number of values); NaN for fewer than two, or all 0."""
    given = np.asarray(norms, np.float64)
    mean = given.mean(axis=-1)
    varied = (mean > 0) & (given.shape[-1] > 1)
    ratio: F64 = np.divide(given.std(axis=-1), mean, out=np.full(mean.shape, np.nan), where=varied)
    return ratio


def estimate_variation(norms: ArrayLike) -> tuple[F64, F64]:
    """Coefficient of variation over positions of the expected norm, from norms (S, …, position): its limit for many
    sequences.

    The variance of a mean over S sequences also includes a part 1/S of that within a sequence, which is excluded by
    averaging only products of two different sequences. Of all sequences, (…), and without each, (S, …); 0 where the
    variance comes out below 0, NaN for one sequence or one position.
    """
    given = np.asarray(norms, np.float64)
    sequences, *heads, positions = given.shape
    if sequences < 2 or positions < 2:
        return np.full(heads, np.nan), np.full((sequences, *heads), np.nan)
    levels = given.mean(axis=-1)
    apart = np.moveaxis(given - levels[..., None], 0, -2)
    products = apart @ apart.swapaxes(-1, -2) / positions * (1 - np.eye(sequences))
    of_each, every = np.moveaxis(products.sum(axis=-1), -1, 0), products.sum(axis=(-2, -1))
    sums = np.concatenate([every[None], every - 2 * of_each])
    middle = np.concatenate([levels.mean(axis=0)[None], (levels.sum(axis=0) - levels) / (sequences - 1)])
    counts = np.append(sequences, np.full(sequences, sequences - 1)).reshape(-1, *[1] * len(heads))
    pairs = counts * (counts - 1)
    known = (pairs > 0) & (middle > 0)
    variance = np.divide(sums, pairs, out=np.full(sums.shape, np.nan), where=known)
    ratio = np.sqrt(np.maximum(variance, 0)) / np.where(known, middle, np.nan)
    return ratio[0], ratio[1:]


def mean_cosines(unit: F64, directed: Bool) -> F64:
    """Mean cosine of the value states of a head at every distance k = |i − j|, over i, j > 0, (n,) (Assumption 2,
    Figure 3).

    From ``unit_vectors``, (n, d) and (n,), position 0 the sink. Element 0 is 1; NaN where there is no pair: always for
    n − 1. Sums over pairs are autocorrelations of unit vectors: exact up to rounding, O(n d log n), and O(n d) of
    memory.
    """
    cosines = np.full(len(unit), np.nan)
    sums = autocorrelation(np.ascontiguousarray(unit[1:].T))
    pairs = np.rint(autocorrelation(directed[None, 1:].astype(np.float64)))
    row = cosines[:-1]
    np.divide(sums, pairs, out=row, where=pairs > 0)
    row[:1] = np.where(directed[1:].any(), 1.0, np.nan)
    np.clip(row, -1.0, 1.0, out=row)
    return cosines


def summarise_cosines(cosines: F64) -> tuple[float, float]:
    """Mean and standard deviation of all cosines but the first, (n,), that are not NaN; NaN if there are none.

    Of the cosines with the sink: ρ_0, the mean over j > 0 of cos(v_0, v_j), and its spread over j (Section 4.1).
    """
    others = cosines[1:][~np.isnan(cosines[1:])]
    return (float(others.mean()), float(others.std())) if others.size else (math.nan, math.nan)


def cosines_with_one(unit: F64, directed: Bool, index: int) -> F64:
    """Cosines of all value states of a head with the one at ``index``, (n,) (Section 4.2, Figure 10); 1 for the one
    itself.

    NaN where a value state has norm 0, and everywhere if the one has. Computed from a part of the positions, the
    cosines are the same to the last bit.
    """
    cosines = np.clip(np.einsum("nd,d->n", unit, unit[index]), -1.0, 1.0)
    cosines[index] = 1.0
    return np.where(directed & directed[index], cosines, np.nan)


def unit_vectors(values: NDArray[np.floating]) -> tuple[F64, Bool]:
    """Unit vectors (n, d), 0 where the norm is 0, and a mask of where it is not 0, (n,).

    Each vector is first divided by its largest component: squares of very large or small numbers are out of range.
    """
    states = values.astype(np.float64)
    largest = np.abs(states).max(axis=1, keepdims=True)
    directed = largest > 0
    np.divide(states, largest, out=states, where=directed)
    norms = np.sqrt(np.einsum("nd,nd->n", states, states))[:, None]
    np.divide(states, norms, out=states, where=directed)
    return states, directed[:, 0]


def autocorrelation(rows: F64) -> F64:
    """Σ over rows and positions i of x_i x_(i+k) for every k: (rows, n) → (n,)."""
    n = rows.shape[1]
    if n == 0:
        return np.empty(0)
    length = fft.next_fast_len(2 * n - 1, real=True)
    spectrum = fft.rfft(rows, length, axis=1)
    power = np.einsum("rf,rf->f", spectrum.real, spectrum.real) + np.einsum("rf,rf->f", spectrum.imag, spectrum.imag)
    sums: F64 = fft.irfft(power, length)[:n]
    return sums


AXES = 3  # Number of principal directions that are kept, as many as a figure can show

BALANCED = 1e-12
"""Largest component of the mean of unit vectors along an axis that counts as 0 when the axis is oriented."""


@dataclass(frozen=True)
class PrincipalDirections:
    """The principal directions of the unit vectors of a head, in order of falling share; d components each."""

    axes: F64  # The first `AXES` directions, orthonormal rows, (3, d); rows beyond d are 0
    shares: F64  # Share of the squared length along each direction, summing to 1, (max(d, 3),); 0 beyond d

    @property
    def effective_dimension(self) -> float:
        """Participation ratio 1 / Σ share², from 1 (one direction) to d (equal shares)."""
        return float(1 / (self.shares**2).sum())

    @one_blas_thread
    def project(self, values: NDArray[np.floating]) -> F64:
        """Components of the unit vectors of value states (n, d) along the first three directions, (n, 3); NaN for norm
        0.
        """
        unit, directed = unit_vectors(values)
        points = np.clip(unit @ self.axes.T, -1.0, 1.0)
        points[~directed] = np.nan
        return points


class DirectionMoments:
    """First and second moments about the origin of unit vectors, added block by block; (d + d²) numbers in memory.

    Not about the mean: they describe directions on a sphere, and a mean far from the origin is their main feature.
    """

    def __init__(self, head_dim: int) -> None:
        self._sum: F64 = np.zeros(head_dim)
        self._squares: F64 = np.zeros((head_dim, head_dim))

    @one_blas_thread
    def add(self, values: NDArray[np.floating]) -> None:
        """Add the unit vectors of some value states, (n, d); those of norm 0 are skipped.

        A ValueError if their length is not d, or they are not finite.
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
