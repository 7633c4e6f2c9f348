"""Similarity of value states: the mean cosine at every distance, and the cosines of all value states with one of them.

Holds the cosines to which Assumption 2 is fitted, ρ_0 (Section 4.1), and the cosines with the sink and the last token.
What does not belong here: the fit (``geometry.assumptions.decay``) and means over sequences.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from geometry.arrays import F64, Bool


def mean_cosines(unit: F64, directed: Bool) -> F64:
    """Mean cosine of the value states of a head at every distance k = |i − j|, over i, j > 0 (Assumption 2, Figure 3).

    Parameters
    ----------
    unit, directed
        Of its ``unit_vectors``, (n, d) and (n,), position 0 the sink.

    Returns
    -------
    ndarray
        float64 (n,): element k is the mean over the pairs at distance k, within [−1, 1]; element 0 is 1. A value state
        of norm 0 has no direction and is in no pair. NaN where there is no pair: always for n − 1.

    Notes
    -----
    Sums over pairs are autocorrelations of unit vectors: exact up to rounding, O(n d log n), and O(n d) of memory.
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
    """Cosines of all value states of a head with one of them, cos(v_index, v_j) for every j (Section 4.2, Figure 10).

    Parameters
    ----------
    unit, directed
        Of its ``unit_vectors``, (n, d) and (n,).
    index
        Index along n of the one: 0 for the first, −1 for the last.

    Returns
    -------
    ndarray
        float64 (n,), within [−1, 1]; 1 for the one itself. NaN where a value state has norm 0, and everywhere if the
        one has. Computed from a part of the positions, the cosines are the same to the last bit.
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
