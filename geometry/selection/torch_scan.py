"""The Gram scan in PyTorch, for a GPU: what ``geometry.selection.scan`` finds of heads, on the device of tensors.

Letters as there. It finds the same numbers from the same matrix, for all keys and some ranks of several heads at once;
what the error bound does not decide, and all numbers that take O(n d), come from ``geometry.selection.host`` as on the
CPU, so every quantity has one definition.

All numbers are in float64, which GPUs of data centres compute at half the speed of float32 and others at a 32nd or
64th. E then has the error δ_l = a_l (slope · size + bend · max a + TRIFLE): slope for sums of n products of d terms, in
any order (Higham, *Accuracy and Stability of Numerical Algorithms*, §3.1), bend for a_l². The norms of
a cancel in products: directions have been divided by the same numbers.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from geometry.selection.keys import error_slope
from geometry.selection.scan import FARTHEST, NEAREST, NEAREST_TO_REST, TRIFLE, Head, Keys, Rows, make_rows, normalise
from geometry.selection.upper_bounds import DENSITY_0, SHRINK, XI_END, Steepness

GRAM_BYTES = 2**28
"""Most memory of the cosines of all pairs, up to 5,792 keys; of more keys, those of a strip are multiplied for it."""

STRIP_BYTES = 2**29
"""Memory of a strip: so many ranks of all heads that are scanned together, and at least one."""

PAIR_BYTES = 256
"""Memory of one key at one rank of a head within a strip, at most."""

UNIT_ROUNDOFF = 2.0**-53
"""Largest relative error of one float64 rounding."""


class Heads(NamedTuple):
    """Heads that are scanned together, on the device; lifted numbers as in ``Head``."""

    a: Tensor
    least: Tensor
    """float64 (head, n)."""
    order: Tensor
    rank: Tensor
    """int64 (head, n)."""
    sink: Tensor
    """int64 (head, 1)."""
    slope: Tensor
    reach: Tensor
    """Those of ``Steepness``, float64 (head, κ, n − 1)."""


class Sums(NamedTuple):
    """What a strip hands on to the next."""

    c: Tensor
    """Σ_k a_k cos(u_k, u), the sink left out, (head, n)."""
    reached: Tensor
    """Largest cosine with a selected key but the sink, at least 0, (head, n)."""
    size: Tensor
    """Σ_k a_k, the sink left out, (head, 1)."""


class TorchScan:
    """Scans heads that share value states, which are on the device; called as ``geometry.selection.host.Scan``."""

    def __init__(self, keys: Keys, device: str | torch.device) -> None:
        self._directions = torch.as_tensor(normalise(keys.states, keys.norm), device=device)
        of_all = 8 * len(keys.norm) ** 2 <= GRAM_BYTES
        self._cosines = self._directions @ self._directions.T if of_all else None

    def __call__(self, keys: Keys, heads: Sequence[Head], steepness: Sequence[Steepness]) -> list[Rows]:
        """What the scan finds of heads, without ``value`` and ``most``, which none but a scan reads."""
        n = len(keys.norm)
        results = make_rows(len(heads), n, len(steepness[0].slope))
        given, at_once = self._place(heads, steepness), max(1, STRIP_BYTES // (PAIR_BYTES * n * len(heads)))
        sums = Sums(torch.zeros_like(given.a), torch.zeros_like(given.a), given.a.new_zeros((len(heads), 1)))
        for first in range(0, n - 1, at_once):
            strip = slice(first, min(first + at_once, n - 1))
            arrays, sums = self._scan_strip(keys, given, sums, strip)
            for name, numbers in arrays.items():
                for rows, of_head in zip(results, numbers.cpu().numpy(), strict=True):
                    getattr(rows, name)[..., strip] = of_head
        return results

    def _place(self, heads: Sequence[Head], steepness: Sequence[Steepness]) -> Heads:
        """The heads on the device."""

        def stack(arrays: Sequence[object], dtype: torch.dtype = torch.float64) -> Tensor:
            return torch.as_tensor(np.stack(arrays), dtype=dtype, device=self._directions.device)  # type: ignore[arg-type]

        return Heads(
            a=stack([head.a for head in heads]),
            least=stack([head.least for head in heads]),
            order=stack([head.order for head in heads], torch.int64),
            rank=stack([head.rank for head in heads], torch.int64),
            sink=stack([[head.sink] for head in heads], torch.int64),
            slope=stack([of.slope for of in steepness]),
            reach=stack([of.reach for of in steepness]),
        )

    def _multiply(self, keys: Keys, picked: Tensor) -> Tensor:
        """Cosines of some keys, (…), with all of ``keys``, (…, n)."""
        part = slice(keys.first, keys.first + len(keys.norm))
        if self._cosines is not None:
            return self._cosines[part, part][picked]
        return self._directions[part][picked] @ self._directions[part].T

    def _scan_strip(self, keys: Keys, heads: Heads, sums: Sums, strip: slice) -> tuple[dict[str, Tensor], Sums]:
        """What is found at the ranks of a strip, (head, …, r) by the name in ``Rows``, and the sums up to its end."""
        ranks = torch.arange(strip.start, strip.stop, device=heads.a.device)
        picked, left, (n, d) = heads.order[:, strip], heads.rank[:, None] > ranks[:, None], keys.states.shape
        is_sink, sunk = ranks == heads.sink, ranks >= heads.sink
        own = heads.a.gather(1, picked).masked_fill(is_sink, 0.0)
        size, of_sink = sums.size + own.cumsum(1), heads.a[:, :1] * sunk

        cosines = self._multiply(keys, picked).masked_fill_(is_sink[..., None], 0.0)
        reached = torch.maximum(cosines.cummax(1).values, sums.reached[:, None])
        c = cosines.mul_(own[..., None]).cumsum_(1).add_(sums.c[:, None])
        onward = Sums(c[:, -1].clone(), reached[:, -1].clone(), size[:, -1:])
        closest = reached.masked_fill_(~left, 0.0).amax(-1)
        del reached

        a, cosines_of_sink = heads.a[:, None], self._multiply(keys, torch.zeros_like(ranks[:1]))
        about_rest = a * (a - c.mul_(2.0))
        about_all = about_rest - (2.0 * a * cosines_of_sink) * of_sink[..., None]
        del c, cosines
        slope, bend = error_slope(n + d + 16, UNIT_ROUNDOFF), 1.01 * (d + 16) * UNIT_ROUNDOFF
        reach_of_rest = slope * size + bend * heads.a.amax(-1, keepdim=True) + TRIFLE
        reach = reach_of_rest + slope * of_sink
        thresholds = {
            NEAREST: count_about(about_all, about_all.masked_fill(~left, math.inf).argmin(-1), heads.least, reach),
            FARTHEST: count_about(about_all, about_all.masked_fill(left, -math.inf).argmax(-1), heads.least, reach),
        }
        del about_all
        nearest = about_rest.masked_fill(~left, math.inf).argmin(-1)
        thresholds[NEAREST_TO_REST] = count_about(about_rest, nearest, heads.least, reach_of_rest)
        key, sure, near = torch.stack([thresholds[which] for which in range(len(thresholds))], 2)
        total, best = sum_worst_pairs(about_rest, left, heads.slope[..., strip], heads.reach[..., strip])
        about_s = {"key": key, "sure": sure, "near": near, "closest": closest}
        return about_s | {"total": total, "best": best}, onward


def count_about(e: Tensor, key: Tensor, least: Tensor, reach: Tensor) -> Tensor:
    """A threshold of rows: its key, keys whose E is surely below it, and keys that may be at it, int64 (3, head, r).

    e: E of every key, (head, r, n); key: where the threshold is, (head, r); least: (head, n); reach: the factor of
    ``least`` in the error of E, (head, r).
    """
    value, its_error = e.gather(-1, key[..., None]), (least.gather(1, key) * reach)[..., None]
    error = least[:, None] * reach[..., None]
    sure = (e + error < value - its_error).sum(-1)
    return torch.stack([key, sure, (e - error <= value + its_error).sum(-1) - sure])


def sum_worst_pairs(g: Tensor, left: Tensor, slope: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
    """Σ_i and max_i of max_j p_ij over the early keys i (``geometry.selection.upper_bounds``).

    g: E about s without the sink, (head, r, n); left: whether a key is left out; slope, reach: (head, κ, r), as the
    results.
    """
    least = g.masked_fill(~left, math.inf).amin(-1, keepdim=True)
    most = g.masked_fill(~left, -math.inf).amax(-1, keepdim=True)
    early, (total, best) = ~left & (g <= least), torch.zeros_like(slope).expand(2, *slope.shape).clone()
    for kappa in range(slope.shape[1]):
        c, target = slope[:, kappa, :, None] * SHRINK, g + reach[:, kappa, :, None]
        p = bound_probability((torch.where(target >= most, most, least) - g) * c)
        between = early & (target > least) & (target < most)
        some = between.any(-1)
        inner = find_largest_between(g[some], left[some], target[some], c[some])
        p[some] = torch.where(between[some], inner, p[some])
        p.masked_fill_(~early, 0.0)
        total[:, kappa], best[:, kappa] = p.sum(-1), p.amax(-1)
    return total, best


def find_largest_between(g: Tensor, left: Tensor, target: Tensor, c: Tensor) -> Tensor:
    """max_j p(c (g_j − g_i)) of every g_i of some rows, (row, n), whose target lies between the g_j left out."""
    ordered = g.masked_fill(~left, math.inf).sort(-1).values
    above = torch.searchsorted(ordered, target).clamp_(1, g.shape[-1] - 1)
    ends = [bound_probability((ordered.gather(-1, at) - g) * c) for at in (above - 1, above)]
    return torch.maximum(*ends)


def bound_probability(xi: Tensor) -> Tensor:
    """p(ξ) = φ(ξ) ξ/(1 + ξ²) of eq. 9; ξ < 0 counts as 0."""
    x = xi.clamp(0.0, XI_END)
    square = x * x
    return square.mul(-0.5).exp_().mul_(x).mul_(DENSITY_0).div_(square.add_(1.0))
