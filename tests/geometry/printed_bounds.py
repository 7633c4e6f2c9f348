"""The printed lower bounds, read literally key by key."""

import math

import numpy as np

from tests.geometry import oracle


def tail(margin: float, breadth: float, d: int, kappa: float) -> float:
    """exp(−κd(Δ/B)²), or 1 where the margin is not positive."""
    return math.exp(-kappa * d * (margin / breadth) ** 2) if margin > 0 else 1.0


def row(weights: np.ndarray, values: np.ndarray, size: int, kappa: float, scale: str, sink: bool) -> tuple:
    """Δ/B and the lower bounds of one N from eq. 7, 8, 12 and 14, of values divided by C in the unit scale."""
    weights, values = weights.astype(float), values.astype(float)
    if scale == "unit":
        c = oracle.value_scale(values, sink=sink)
        if not c > 0:
            return (math.nan,) * 3
        values = values / c
    inside, outside = oracle.split(weights, size)
    found = oracle.ingredients(weights[:, None] * values, inside, outside, sink=sink)
    b = oracle.breadth(found)
    if not b > 0:
        return (math.nan,) * 3
    rho, n, d = oracle.closest(values, inside, outside, sink=sink), *values.shape
    delta = found["a_min_in"] ** 2 - 2 * found["a_max_out"] * found["s_in"] * rho
    miss = (n - size) * tail(delta, b, d, kappa)
    if sink and 0 in inside:
        miss += (n - size) / size * tail(found["a_0"] ** 2 - (found["s_in"] * rho) ** 2, b, d, kappa)
    return delta / b, 1 / (1 + miss), max(0.0, 1 - miss)
