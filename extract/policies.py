"""Policies of sparse attention: which keys each query keeps.

A policy is called for a block of queries of one layer at a time, and keeps at least one key of each query.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from extract.attention import compute_softmax

Needs = Literal["weights", "statistics"]
"""What a policy needs to know in advance: the weights of a query, which makes it an oracle; or only past statistics of
the head, so that it can be used at inference."""

Order = Literal["weights", "off_mean"]
"""What the keys that are kept have most of: α, or ‖α (v − v̄)‖, which ``Block.off_mean`` defines."""

Rest = Literal["renormalised", "dropped", "mean", "mean_of_rest"]
"""What the weight of the keys that are left out goes to: the kept keys, whose weights are rescaled to sum to 1 with the
learned sink's, as in every sparse method; nothing; the mean value state of all keys that the query sees, which a
decoder can keep up as keys come (value reallocation of SparQ, arXiv 2312.04985); or of the keys left out."""


@dataclass(frozen=True)
class Block:
    """A block of queries of a layer, as passed to a policy."""

    layer: int
    positions: Tensor
    """Of the queries, int64 (Q,)."""
    visible: Tensor
    """Which keys each query may attend to, bool (B or 1, H or 1, Q, K)."""
    logits: Tensor
    """Float32 (B, H, Q, K)."""
    s_aux: Tensor | None
    """Logits of the heads' learned sinks, (H,)."""
    value: Tensor
    """Value states of the keys, (B, Hkv, K, Dv)."""

    @cached_property
    def weights(self) -> Tensor:
        """Softmax weights of the keys, float32 (B, H, Q, K); 0 where a key is hidden."""
        return compute_softmax(self.logits, self.visible, self.s_aux)[..., : self.logits.shape[-1]]

    @cached_property
    def mean_values(self) -> Tensor:
        """Mean value state v̄ of the keys that each query sees, the same for all heads of a KV head: (B, Hkv, Q, Dv)."""
        return self.average_values(self.visible[:, :1].expand(-1, self.value.shape[1], -1, -1))

    @cached_property
    def off_mean(self) -> Tensor:
        """Norms ‖α (v − v̄)‖ of what each key adds to a head's output beyond the mean, float32 (B, H, Q, K).

        Distances are products of value states, which lose the digits that all of them share: these are taken off first.
        """
        centre = self.value.float().mean(dim=2, keepdim=True)
        distances = torch.cdist(self.mean_values - centre, self.value.float() - centre)
        return self.weights * distances.repeat_interleave(self.logits.shape[1] // distances.shape[1], dim=1)

    def average_values(self, chosen: Tensor) -> Tensor:
        """Mean value state of the keys ``chosen``, bool (B or 1, Hkv, Q, K); float32 (B, Hkv, Q, Dv), 0 for no keys."""
        return (chosen.float() @ self.value.float()) / chosen.sum(-1, keepdim=True).clamp(min=1)

    def select_heads(self, numbers: NDArray[Any]) -> Tensor:
        """The layer's row of an array (layers, heads), as a tensor (H,) on the device of the block."""
        return torch.from_numpy(numbers[self.layer, : self.logits.shape[1]]).to(self.logits.device)


class Policy(Protocol):
    """Decides which keys are kept."""

    @property
    def name(self) -> str:
        """Name of the policy in tables."""

    @property
    def setting(self) -> str:
        """Its parameters, as text."""

    @property
    def needs(self) -> Needs:
        """What it needs to know in advance."""

    @property
    def rest(self) -> Rest:
        """What the weight of the keys that it leaves out goes to."""

    def keep(self, block: Block) -> Tensor:
        """Which keys are kept, bool that broadcasts to (B, H, Q, K); hidden keys are never kept, even if marked."""


@dataclass(frozen=True)
class LargestKeys:
    """Keeps the N keys of the largest weights or distances off the mean, N given for each head.

    Of equal ones, the lower position wins.
    """

    name: str
    setting: str
    budgets: NDArray[np.int64]
    """N of each head, 1 or more, (layers, heads)."""
    by: Order = "weights"
    """What is largest."""
    rest: Rest = "renormalised"
    sink: int = 0
    """Keys from position 0 on that are always among the N."""
    recent: int = 0
    """Most recent keys that are always among the N."""
    needs: Needs = "weights"

    def keep(self, block: Block) -> Tensor:
        """The largest keys, and among them those that are always kept."""
        scores = block.weights if self.by == "weights" else block.off_mean
        if self.sink or self.recent:
            keys = torch.arange(scores.shape[-1], device=scores.device)
            always = (keys < self.sink) | (keys > block.positions[:, None] - self.recent)
            scores = scores.masked_fill(always, torch.inf)
        return select_largest(scores, block.visible, block.select_heads(self.budgets)[:, None])


@dataclass(frozen=True)
class Mass:
    """Keeps, for each query, the fewest keys whose weights sum to a share of the weights of all keys."""

    share: float
    """From 0 to 1."""
    name: str = "mass"
    rest: Rest = "renormalised"
    needs: Needs = "weights"

    @property
    def setting(self) -> str:
        """The share."""
        return f"m={self.share:.6g}"

    def keep(self, block: Block) -> Tensor:
        """The keys of the largest weights, as many as make up the share."""
        return select_largest(block.weights, block.visible, count_fewest(block.weights, [self.share])[..., 0])


@dataclass(frozen=True)
class SinkAndRecent:
    """Keeps the first keys and the most recent ones; in some heads, if given, all keys.

    If a query's window hides some of the first keys, it keeps as many more of the most recent ones.
    """

    sink: int
    """Keys from position 0 on, 0 or more."""
    recent: int
    """Most recent keys, including the query's own position, 1 or more."""
    full: NDArray[np.bool_] | None = None
    """Heads that keep all keys, (layers, heads)."""
    name: str = "sink_recent"
    draw: str = ""
    """Which of several draws it is; appended to the setting."""
    rest: Rest = "renormalised"
    needs: Needs = "statistics"

    @property
    def setting(self) -> str:
        """Both numbers, and how many heads keep all keys."""
        heads = "" if self.full is None else f", {int(self.full.sum())} full heads"
        return f"sink={self.sink}, recent={self.recent}{heads}{self.draw}"

    def keep(self, block: Block) -> Tensor:
        """The first and the most recent keys; the same for every sequence and every head that is not full."""
        keys = torch.arange(block.logits.shape[-1], device=block.logits.device)
        hidden = self.sink - block.visible[..., : self.sink].sum(dim=-1, keepdim=True)
        kept = (keys < self.sink) | (keys > block.positions[:, None] - self.recent - hidden)
        return kept if self.full is None else kept | block.select_heads(self.full)[:, None, None]


def select_largest(weights: Tensor, visible: Tensor, counts: Tensor) -> Tensor:
    """Mask of the keys of the largest numbers (B, H, Q, K), bool of the same shape: ``counts`` keys of each query.

    All visible keys if there are fewer. Numbers are 0 or more; of equal ones, those of lower positions are taken first.
    ``counts`` are 1 or more and broadcast to (B, H, Q).
    """
    weights = torch.where(visible, weights, -1.0)
    keys = weights.shape[-1]
    ranks = (keys - counts.clamp(max=keys)).expand(weights.shape[:-1])[..., None]
    threshold = sort_numbers(weights).gather(-1, ranks)
    kept = (weights >= threshold) & visible
    if (kept.sum(dim=-1, dtype=torch.int32) > counts).any():
        tied = (weights == threshold) & visible
        room = counts[..., None] - (kept & ~tied).sum(dim=-1, keepdim=True, dtype=torch.int32)
        kept &= ~tied | (tied.cumsum(dim=-1, dtype=torch.int32) <= room)
    return kept


def count_fewest(weights: Tensor, shares: Sequence[float]) -> Tensor:
    """Number of the largest weights (B, H, Q, K) that make up shares of their sum, int64 (B, H, Q, shares)."""
    sums = sort_numbers(weights).flip(-1).cumsum(dim=-1, dtype=torch.float64)
    needed = torch.tensor(shares, dtype=torch.float64, device=weights.device) * sums[..., -1:]
    return torch.searchsorted(sums, needed) + 1


def sort_numbers(numbers: Tensor) -> Tensor:
    """Numbers in ascending order over the last axis; on a CPU by NumPy, whose sort is much faster than PyTorch's."""
    if numbers.device.type == "cpu":
        return torch.from_numpy(np.sort(numbers.numpy(), axis=-1))
    return numbers.sort(dim=-1).values
