"""A selection small enough to see: keys on a circle, their weights, and the two balls around the representative vector.

Holds the example of Figure 1, drawn in ``reports.intuition``. It is computed by the definitions, without the kernels,
whose loading takes a page's process a second.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geometry.arrays import F64

ANGLES = (4, 33, 56, 95, 113, 145, 183, 212, 238, 276, 296, 336)
"""Direction of each value state, in degrees."""

SCORES = (1.7, 0.5, 0.2, 0.6, 0.8, 0.8, 0.7, -0.5, 1.5, -0.4, 0.8, 1.4)
"""Logit of each key, whose softmax is its weight."""

SELECTED = 3
"""N of the example."""


@dataclass(frozen=True)
class Intuition:
    """Keys on the unit circle; those with the largest weights are selected (Section 3, Figure 1). n keys, by angle."""

    values: F64
    """Value states v, unit vectors, (n, 2)."""
    weights: F64
    """Attention weights α, a softmax row, (n,)."""
    scaled: F64
    """Weighted value states y = αv, (n, 2)."""
    selected: NDArray[np.bool_]
    """Whether a key is in I_N, (n,)."""
    s: F64
    """The representative vector s_N, the sum of the selected y (eq. 1), (2,)."""
    r_min: float
    """Distance from s to the nearest key left out (eq. 19)."""
    r_max: float
    """Distance from s to the farthest selected key (eq. 19)."""
    k_in: int
    """Selected keys no farther from s than r_min (eq. 20)."""
    k_out: int
    """Keys left out that are no farther from s than r_max (eq. 20)."""
    precision: float
    """P(r_max, N) = N/(N + K_out) (Definition 1), 3/8 as in the paper's example."""
    recall: float
    """R(r_min, N) = K_in/N (Definition 2), 2/3 as in the paper's example."""


def build_intuition() -> Intuition:
    """Build the example of Figure 1: one of three selected keys points away from the others and lies far from s.

    The paper prints its Precision, 3/8, and Recall, 2/3, but no coordinates; these are chosen to give the same values.
    """
    angles, scores = np.radians(ANGLES), np.array(SCORES)
    values = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    weights = np.exp(scores) / np.exp(scores).sum()
    scaled = weights[:, None] * values
    selected = np.zeros(len(weights), bool)
    selected[np.argsort(-weights, kind="stable")[:SELECTED]] = True
    s = scaled[selected].sum(axis=0)
    distances = np.linalg.norm(scaled - s, axis=1)
    r_min, r_max = float(distances[~selected].min()), float(distances[selected].max())
    k_in, k_out = int((distances[selected] <= r_min).sum()), int((distances[~selected] <= r_max).sum())
    return Intuition(
        values=values,
        weights=weights,
        scaled=scaled,
        selected=selected,
        s=s,
        r_min=r_min,
        r_max=r_max,
        k_in=k_in,
        k_out=k_out,
        precision=SELECTED / (SELECTED + k_out),
        recall=k_in / SELECTED,
    )
