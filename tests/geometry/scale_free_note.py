"""The note on the scale-free bound (``geometry/bounds/scale_free.md``), read literally."""

import math
from typing import Any

import numpy as np

from geometry.bounds import scale_free
from tests.geometry import oracle


def rate(gamma: float) -> float:
    """Equation 2, by trying z."""
    z = np.tanh(np.linspace(0, 8, 20_001))  # dense where the maximum of a large γ lies
    return float((gamma * z + np.log1p(-z * z) / 2).max())


def pair_gamma(own: float, square: Any, total: float) -> Any:
    """Equation 4, own: a_i², square: a_j²."""
    g, rest = own + square, total - own
    return g / (2 * np.sqrt(g * rest + own * square))


def pair_tail(own: float, square: Any, total: float, d: int) -> float:
    """A bound for the least γ_ij of one or many j."""
    return math.exp(-d * rate(np.min(pair_gamma(own, square, total))))


def own_tail(own: float, total: float, tau: float, d: int) -> float:
    """Equation 6."""
    return math.exp(-d * rate((own - tau) / (2 * math.sqrt(own * (total - own))))) if own > tau else 1.0


def left_tail(square: float, total: float, tau: float, d: int) -> float:
    """Equation 7."""
    return math.exp(-d * rate((tau + square) / (2 * math.sqrt(square * total)))) if square > 0 else 0.0


def level(tail: float, total: float, most: float, d: int) -> float:
    """Equation 8."""
    c = math.exp(2 * tail / d) - 1
    return 2 * math.sqrt(most * c * total) - most if most <= c * total else c * total


def passing(tau: float, total: float, left: np.ndarray, d: int) -> float:
    """K'(τ) by its groups."""
    falling, expected, start = np.sort(left)[::-1], 0.0, 0
    while start < len(falling):
        size = min(start + 1, len(falling) - start)
        expected += size * left_tail(min(falling[start], tau), total, tau, d)
        start += size
    return expected


def literal(weights: np.ndarray, norms: np.ndarray, size: int, d: int) -> tuple[float, float]:
    """Equations 9 to 11 for one N ≥ 2."""
    a = weights * norms
    inside, outside = oracle.split(weights, size)
    own, left, n = a[inside] ** 2, a[outside] ** 2, len(a)
    total, out = own.sum(), len(outside)
    taus = [level(tail, total, left.max(), d) for tail in scale_free.TAILS]
    passes = [passing(tau, total, left, d) for tau in taus]
    squares = np.linspace(left.min(), left.max(), 2001)
    worst = [pair_tail(x, squares, total, d) if x > 0 else 1.0 for x in own]
    tails = [[own_tail(x, total, tau, d) if x > 0 else 1.0 for x in own] for tau in taus]
    missed = [
        min([1.0, out * worst[i], *(p + t[i] for p, t in zip(passes, tails, strict=True))])
        if own[i] > (total - own[i]) / (2 * d)
        else 1.0
        for i in range(size)
    ]
    by_level = [size / (size + p) - (1 - size / n) * sum(t) for p, t in zip(passes, tails, strict=True)]
    precision = max(size / n, size / (size + out * min(1.0, sum(worst))), *by_level)
    return precision, 1 - sum(missed) / size
