"""Plain PyTorch implementations of the counts, which the selection profile is compared with.

Holds the two contenders, in float32 and written in the most direct way.
"""

import torch
from torch import Tensor

Counts = tuple[Tensor, Tensor, Tensor, Tensor]
"""k_in, k_out, r_min, r_max for N = 1 ... n - 1, (n - 1,) each."""


def count_vectorised(weights: Tensor, values: Tensor) -> Counts:
    """All N at once through ``cdist`` and masks; weights (n,), values (n, d)."""
    y, s = _compute_selections(weights, values)
    distances = torch.cdist(s, y)  # row N - 1: distances of all keys from s_N
    n = len(y)
    chosen = torch.ones(n - 1, n, dtype=torch.bool).tril()
    r_min = distances.masked_fill(chosen, torch.inf).amin(1)
    r_max = distances.masked_fill(~chosen, -torch.inf).amax(1)
    k_in = (chosen & (distances <= r_min[:, None])).sum(1)
    k_out = (~chosen & (distances <= r_max[:, None])).sum(1)
    return k_in, k_out, r_min, r_max


def count_in_loop(weights: Tensor, values: Tensor) -> Counts:
    """One N after another; weights (n,), values (n, d)."""
    y, s = _compute_selections(weights, values)
    counts = []
    for n in range(1, len(y)):
        distances = (y - s[n - 1]).norm(dim=1)
        chosen, left_out = distances[:n], distances[n:]
        r_min, r_max = left_out.min(), chosen.max()
        counts.append(((chosen <= r_min).sum(), (left_out <= r_max).sum(), r_min, r_max))
    k_in, k_out, nearest, farthest = (torch.stack(column) for column in zip(*counts, strict=True))
    return k_in, k_out, nearest, farthest


def _compute_selections(weights: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The y in order of decreasing weight, (n, d), and s_1 ... s_(n - 1), (n - 1, d)."""
    order = weights.argsort(descending=True, stable=True)
    y = weights[order, None] * values[order]
    return y, y.cumsum(0)[:-1]
