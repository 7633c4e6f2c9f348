"""Losses of forward passes compared with the plain pass: next-token cross entropy and Kullback-Leibler divergence."""

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK_BYTES = 2**20
"""Bytes of the float32 logits of a block of positions, which fit into a CPU's cache; at least one position."""


@dataclass(frozen=True)
class Losses:
    """Losses of R forward passes over one sequence, float64 (R,) on the CPU."""

    loss: Tensor
    """Mean next-token cross entropy in nats, over all positions except the last, which has no next token."""
    kl: Tensor
    """Mean over all positions of KL(p_0 ‖ p) in nats, where p_0 is the plain pass's."""


def compute_log_probabilities(logits: Tensor) -> Tensor:
    """Logarithms of next-token probabilities, float32, from logits whose last axis is the vocabulary."""
    return logits.float().log_softmax(-1)


def compare(logits: Tensor, plain: Tensor, ids: Tensor) -> Losses:
    """Losses of passes with logits (R, K, V) over token ids (K,), compared with a plain pass.

    ``plain`` is the plain pass's ln p_0 (K, V), the result of ``compute_log_probabilities``. Softmax is computed in
    float32, sums over positions in float64. KL is exactly 0 where the logits are equal. Memory in addition to the
    arguments: at most eight times ``BLOCK_BYTES``, or the size of one position.
    """
    rows, keys, words = logits.shape
    step = max(1, BLOCK_BYTES // (4 * rows * words))
    targets = ids.to(logits.device, torch.long)
    loss, kl = (torch.zeros(rows, dtype=torch.float64, device=logits.device) for _ in range(2))
    for start in range(0, keys, step):
        block = slice(start, start + step)
        ours, theirs = compute_log_probabilities(logits[:, block]), plain[block]
        following = targets[start + 1 : start + step + 1].expand(rows, -1)[..., None]
        loss -= ours[:, : following.shape[1]].gather(-1, following).sum((1, 2), dtype=torch.float64)
        kl += ours.neg_().add_(theirs).mul_(theirs.exp()).sum(-1).sum(-1, dtype=torch.float64)  # p_0 (ln p_0 - ln p)
    return Losses((loss / (keys - 1)).cpu(), (kl / keys).cpu())
