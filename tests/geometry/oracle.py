"""The definitions of the paper read slowly and literally: no matrix product, no code shared with the product.

Holds a float64 reading of every quantity and an exact rational one of the counts.
"""

from fractions import Fraction

import numpy as np


def selected(weights: np.ndarray, size: int) -> list[int]:
    """I_N: the N largest weights; ties go to the lower position."""
    return sorted(range(len(weights)), key=lambda i: (-float(weights[i]), i))[:size]


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    length = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / length) if length > 0 else np.nan


def energies(s, y: list[list]) -> list:
    """‖y‖² − 2⟨s, y⟩ of every key: the squared distance from s without the common ‖s‖², summed one by one."""
    return [sum(t * t for t in key) - 2 * sum(a * b for a, b in zip(s, key, strict=True)) for key in y]


def counts(weights: np.ndarray, y: list[list], size: int) -> tuple[int, int]:
    """(K_in, K_out) of eq. 20 for N = size, in whatever arithmetic ``y`` is given in."""
    inside = selected(weights, size)
    outside = [j for j in range(len(y)) if j not in set(inside)]
    s = [sum(y[i][k] for i in inside) for k in range(len(y[0]))]
    energy = energies(s, y)
    nearest, farthest = min(energy[j] for j in outside), max(energy[i] for i in inside)
    return sum(energy[i] <= nearest for i in inside), sum(energy[j] <= farthest for j in outside)


def exact_counts(weights: np.ndarray, values: np.ndarray) -> dict[str, np.ndarray]:
    """The counts for every N in rational arithmetic, without any rounding."""
    y = [[Fraction(float(w)) * Fraction(float(x)) for x in v] for w, v in zip(weights, values, strict=True)]
    found = [counts(weights, y, size) for size in range(1, len(y))]
    return {"k_in": np.array([k for k, _ in found]), "k_out": np.array([k for _, k in found])}


def profile(weights: np.ndarray, values: np.ndarray, *, sink: bool = True) -> dict[str, np.ndarray]:
    """Every quantity of a selection profile of one head: weights (n,), values (n, d) → arrays (n − 1,)."""
    weights, values = np.asarray(weights, np.float64), np.asarray(values, np.float64)
    n, last = len(weights), len(weights) - 1
    y = weights[:, None] * values
    listed = y.tolist()
    rows = []
    for size in range(1, n):
        inside = selected(weights, size)
        outside = [j for j in range(n) if j not in set(inside)]
        k_in, k_out = counts(weights, listed, size)
        s = y[inside].sum(axis=0)
        distance = np.sqrt(((s - y) ** 2).sum(axis=1))
        without_sink = y[[i for i in inside if i != 0]].sum(axis=0)
        without_last = y[[i for i in inside if i != last]].sum(axis=0)
        rows.append(
            {
                "k_in": k_in,
                "k_out": k_out,
                "r_min": min(distance[j] for j in outside),
                "r_max": max(distance[i] for i in inside),
                "norm_s": np.linalg.norm(s),
                "norm_s_without_sink": np.linalg.norm(without_sink) if sink else np.nan,
                "norm_s_without_last": np.linalg.norm(without_last),
                "cos_sink": cosine(s, values[0]) if sink else np.nan,
                "cos_last": cosine(s, values[last]),
            }
        )
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}
