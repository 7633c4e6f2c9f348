"""Regimes of the selection: how the composition of I_N changes with N, and the margin Δ/B with it (Table 2).

Holds the classes of keys by the fit of Assumption 3, the first N of the regimes in one sequence, and the margin within
them. What does not belong here: fits, margins, and means over sequences.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geometry.arrays import F64, I64

REGIMES = ("I", "II", "III", "IV", "V")  # Names of the regimes, in order of N
SINK, PLATEAU, VALLEY, PEAK, TAIL = range(5)  # Classes of keys


@dataclass(frozen=True)
class Regimes:
    """The regimes of some heads in one sequence; arrays (H, 5), in the order of ``REGIMES``.

    A regime without any N has ``first_n`` and ``last_n`` 0, and NaN in all other arrays.
    """

    first_n: I64
    last_n: I64
    margin_first: F64  # Δ/B at the first N
    margin_last: F64  # Δ/B at the last N
    slope: F64  # Slope of Δ/B over ln N by least squares; NaN for fewer than two N with a margin
    positive_share: F64  # Share of ln N with Δ > 0, among the N with a margin


def classify_keys(positions: ArrayLike, *, eta: float, omega: float, t_1: int, t_2: int) -> I64:
    """Classify the keys at some positions by a fit of Assumption 3, each into one of the five classes.

    Position 0 is the sink, positions up to T_1 are the plateau, positions beyond T_2 the tail; in between, a key is a
    peak if η cos(ωi) > 0 and a valley otherwise. η and ω may be NaN if there are no positions in between.
    """
    x = np.asarray(positions)
    with np.errstate(invalid="ignore"):
        oscillating = np.where(eta * np.cos(omega * x) > 0, PEAK, VALLEY)
    classes: I64 = np.select([x == 0, x <= t_1, x > t_2], [SINK, PLATEAU, TAIL], oscillating).astype(np.int64)
    return classes


def find_regime_starts(weights: ArrayLike, classes: ArrayLike) -> I64:
    """m_1, m_2 and m_3 of each head, (H, 3): the first N of the regimes III, IV and V, even if these are empty.

    From weights and classes of the keys in order of position, (H, n). Keys are taken in order of weight, ties to the
    earlier position. m_1 is the rank of the first peak, or m_2 if there is no peak; m_2 that of the first valley or key
    of the plateau, or n if there is none; m_3 that of the last key not on the plateau. Each is at least the one before
    it, and at least 2.
    """
    alpha, kinds = np.asarray(weights), np.asarray(classes)
    if alpha.ndim != 2 or alpha.shape != kinds.shape:
        raise ValueError(f"weights and classes must have the same shape (H, n), got {alpha.shape} and {kinds.shape}")
    n = alpha.shape[1]
    ordered = np.take_along_axis(kinds, np.argsort(-alpha, axis=1, kind="stable"), axis=1)
    peaks, lows, high = ordered == PEAK, (ordered == VALLEY) | (ordered == PLATEAU), ordered != PLATEAU
    first_low = np.where(lows.any(axis=1), lows.argmax(axis=1) + 1, n)
    first_peak = np.where(peaks.any(axis=1), peaks.argmax(axis=1) + 1, first_low)
    last_high = np.where(high.any(axis=1), n - high[:, ::-1].argmax(axis=1), 1)
    m_1 = np.maximum(2, first_peak)
    m_2 = np.maximum(m_1, first_low)
    return np.stack([m_1, m_2, np.maximum(m_2, last_high)], axis=1)


def find_regimes(weights: ArrayLike, classes: ArrayLike, margins: F64) -> Regimes:
    """The regimes of some heads in one sequence, composition and margin of the same I_N.

    ``weights``, ``classes``: as for ``find_regime_starts``, n at least 2; ``margins``: Δ/B for N = 1 to n − 1, (H, n −
    1), NaN where nothing but the sink is selected. A ValueError if the shapes do not match.
    """
    starts = find_regime_starts(weights, classes)
    heads, n = np.shape(weights)
    if margins.shape != (heads, n - 1):
        raise ValueError(f"margins must have the shape {(heads, n - 1)}, got {margins.shape}")
    edges = np.column_stack([np.ones(heads, np.int64), np.full(heads, 2), np.minimum(starts, n), np.full(heads, n)])
    first, last = edges[:, :-1], edges[:, 1:] - 1
    there = first <= last
    parts = [_measure_margins(margins, first[:, regime], last[:, regime]) for regime in range(len(REGIMES))]
    first_n = np.where(there, np.stack(parts, axis=-1), np.nan)
    return Regimes(np.where(there, first, 0), np.where(there, last, 0), *first_n)


def _measure_margins(margins: F64, first: I64, last: I64) -> F64:
    """First and last margin, slope over ln N and share of ln N above 0, for a range of N of each head, (4, H)."""
    n = np.arange(1, margins.shape[1] + 1)
    low, high = first[:, None], last[:, None]
    known = (n >= low) & (n <= high) & ~np.isnan(margins)
    begin = np.where(n == low, np.log(n - 0.5), np.log(np.maximum(n - 1, 1) * n) / 2)
    end = np.where(n == high, np.log(n + 0.5), np.log(n * (n + 1)) / 2)
    length, positive = np.where(known, end - begin, 0.0), np.where(known, margins, 0.0) > 0
    with np.errstate(invalid="ignore"):  # 0/0 where no N has a margin
        share = (length * positive).sum(axis=1) / length.sum(axis=1)
    ends = (np.take_along_axis(margins, np.clip(at - 1, 0, n.size - 1)[:, None], 1)[:, 0] for at in (first, last))
    return np.stack([*ends, _fit_slopes(np.log(n), np.where(known, margins, 0.0), known), share])


def _fit_slopes(x: F64, y: F64, known: NDArray[np.bool_]) -> F64:
    """Slope of the straight line through the known points of each head by least squares; NaN for fewer than two."""
    count = np.maximum(known.sum(axis=1, keepdims=True), 1)
    apart = np.where(known, x - (known * x).sum(axis=1, keepdims=True) / count, 0.0)
    level = y.sum(axis=1, keepdims=True) / count
    square = (apart * apart).sum(axis=1)
    several = known.sum(axis=1) > 1
    return np.where(several, (apart * (y - level)).sum(axis=1) / np.where(several, square, 1.0), np.nan)
