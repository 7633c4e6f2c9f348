"""The counts of every query in PyTorch, for a GPU: the product of ``geometry.selection.every_query``, and its reading.

Letters as there; w keys from the first that a query of a block sees to the last. What the error bound does not decide,
and all that takes O(n d) for a query but s_N, come from there as on the CPU.

All numbers are in float64, which no setting of PyTorch replaces by a shorter type, as TF32 may replace float32. s_N is
a sum of n terms and t one of d, so that E has the error bound of ``geometry.selection.torch_scan``; size, Σ a_k, is
taken over all keys that the query sees, which is no less.
"""

import math

import numpy as np
import torch
from torch import Tensor

from geometry.arrays import F32, F64, I64
from geometry.selection.keys import error_slope
from geometry.selection.scan import FLOOR, LIFT, TRIFLE, Keys, normalise
from geometry.selection.torch_scan import UNIT_ROUNDOFF

PAIR_BYTES = 32
"""Memory of one key at one N of a query within a block, at most; 64 more are those of one key of a query."""


class TorchCounts:
    """Counts of blocks of queries that share value states, which are on the device.

    keys: of one KV head, K of d components, on the host; device: where they are placed, in float64.
    """

    def __init__(self, keys: Keys, device: str | torch.device) -> None:
        factor = 2.0 ** (LIFT - int(np.frexp(keys.norm.max())[1]))
        self._device = device
        self._states, self._norm = self._place(keys.states), self._place(factor * keys.norm)
        self._directions, self._factor = self._place(normalise(keys.states, keys.norm)), factor

    def _place(self, numbers: F32 | F64) -> Tensor:
        """In float64 on the device; widened before, since devices may take subnormal float32 numbers as 0."""
        return torch.as_tensor(numbers.astype(np.float64), device=self._device)

    def __call__(self, weights: F32, order: I64, sizes: I64, begin: int) -> tuple[I64, I64]:
        """K_in and K_out as far as they are sure, and what they are at most, (2, R, G) each.

        weights: of the keys from ``begin`` on, (R, w); order: the places of the keys that a query sees by falling
        weight, then numbers from w on, (R, w); sizes: the grids, (R, G).
        """
        part, (rows, width) = slice(begin, begin + weights.shape[1]), weights.shape
        alpha, places = self._place(weights), torch.as_tensor(order, device=self._device).clamp_(max=width)
        ranks = torch.arange(width, device=self._device).expand(rows, -1)
        rank = torch.full((rows, width + 1), width, device=self._device).scatter_(1, places, ranks)[:, None, :width]
        split = torch.as_tensor(sizes, device=self._device)[..., None]
        chosen, left = rank < split, (rank >= split) & (rank < width)
        a, d = (alpha * self._norm[part])[:, None], self._states.shape[1]
        slope, bend = error_slope(width + d + 16, UNIT_ROUNDOFF), 1.01 * (d + 16) * UNIT_ROUNDOFF
        reach = slope * a.sum(-1, keepdim=True) + bend * a.amax(-1, keepdim=True) + TRIFLE
        error = torch.where(a > 0, a.clamp(min=FLOOR), 0.0) * reach
        sums = (chosen * (self._factor * alpha)[:, None]) @ self._states[part]
        e = (sums.mul_(-2.0) @ self._directions[part].T).add_(a).mul_(a)
        above = e + error
        found = count_within(e.sub_(error), above, chosen, left).cpu().numpy()
        return found[0], found[1]


def count_within(below: Tensor, above: Tensor, chosen: Tensor, left: Tensor) -> Tensor:
    """K_in and K_out that are sure and that are possible, from what E lies between, int64 (2, 2, R, G).

    below, above: float64 (R, G, w); chosen, left: whether a key is selected, or seen and left out.
    """
    nearest = [e.masked_fill(~left, math.inf).amin(-1, keepdim=True) for e in (below, above)]
    farthest = [e.masked_fill(~chosen, -math.inf).amax(-1, keepdim=True) for e in (below, above)]
    pairs = (chosen, nearest), (left, farthest)
    sure = [(among & (above <= low)).sum(-1) for among, (low, _) in pairs]
    most = [(among & (below <= high)).sum(-1) for among, (_, high) in pairs]
    return torch.stack([torch.stack(sure), torch.stack(most)])
