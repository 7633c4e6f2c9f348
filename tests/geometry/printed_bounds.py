"""The printed lower bounds of a selection, read literally from its ingredients."""

import math
from collections.abc import Mapping

from geometry.bounds.lower import INGREDIENTS


def tail(margin: float, breadth: float, d: int, kappa: float) -> float:
    """exp(−κd(Δ/B)²), or 1 where the margin is not positive."""
    return math.exp(-kappa * d * (margin / breadth) ** 2) if margin > 0 else 1.0


def bound_selection(
    parts: Mapping[str, float | None], scale: float | None, *, n: int, keys: int, d: int, kappa: float
) -> dict[str, float]:
    """Equations 7, 8, 12, 14, 16 and 17 of one selection, word by word; nothing where there is no bound.

    Norms are divided by ``scale``. Parts that there are not are NaN or None, as that of the sink.
    """
    if parts["s_in"] is None or not (scale and scale > 0):
        return {}
    known = {name: math.nan if parts[name] is None else float(parts[name]) for name in INGREDIENTS}
    a = {name: value if name == "rho_out" else value / scale for name, value in known.items()}
    b = a["a_max_in"] + a["a_max_out"] + a["s_in"]
    if not b > 0:
        return {}
    delta = a["a_min_in"] ** 2 - 2 * a["a_max_out"] * a["s_in"] * a["rho_out"]
    delta_0 = a["a_0"] ** 2 - (a["s_in"] * a["rho_out"]) ** 2
    miss = (keys - n) * tail(delta, b, d, kappa)
    if not math.isnan(delta_0):
        miss += (keys - n) / n * tail(delta_0, b, d, kappa)
    precision, recall = 1 / (1 + miss), max(0.0, 1 - miss)
    lower = {"precision_lower": precision, "recall_lower": recall}
    lower |= {"f_r_max_lower": 2 * precision / (1 + precision), "f_r_min_lower": 2 * recall / (1 + recall)}
    return {"delta": delta, "margin": delta / b, "sink": delta_0 / b, "premise_share": float(delta > 0)} | lower
