"""Losses of forward passes against the plain pass: next-token cross entropy and Kullback-Leibler divergence.

Holds ``compare``. What does not belong here: the passes themselves (``extract.resuming``, ``extract.sparsity``).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK_BYTES = 2**20
"""Bytes of the float32 logits of a block of positions, which a processor's cache holds; one position at least."""


@dataclass(frozen=True)
class Losses:
    """What R forward passes over one sequence lose, float64 (R,) on the CPU."""

    loss: Tensor
    """Mean next-token cross entropy in nats, over all positions but the last, which has no next token."""
    kl: Tensor
    """Mean over all positions of KL(p_0 ‖ p) in nats, p_0 of the plain pass."""


def log_probabilities(logits: Tensor) -> Tensor:
    """Logarithms of the probabilities of the next token, float32, of logits whose last axis is the vocabulary."""
    return logits.float().log_softmax(-1)


def compare(logits: Tensor, plain: Tensor, ids: Tensor) -> Losses:
    """Losses of passes with logits (R, K, V) over token ids (K,), whose ``plain`` pass has ln p_0 (K, V).

    Of the plain pass it takes what ``log_probabilities`` makes of its logits. Softmax in float32, sums over positions
    in float64. KL is exactly 0 where the logits are equal. Memory beside the arguments: at most eight times
    ``BLOCK_BYTES``, or what one position takes.
    """
    rows, keys, words = logits.shape
    step = max(1, BLOCK_BYTES // (4 * rows * words))
    targets = ids.to(logits.device, torch.long)
    loss, kl = (torch.zeros(rows, dtype=torch.float64, device=logits.device) for _ in range(2))
    for start in range(0, keys, step):
        block = slice(start, start + step)
        ours, theirs = log_probabilities(logits[:, block]), plain[block]
        following = targets[start + 1 : start + step + 1].expand(rows, -1)[..., None]
        loss -= ours[:, : following.shape[1]].gather(-1, following).sum((1, 2), dtype=torch.float64)
        kl += ours.neg_().add_(theirs).mul_(theirs.exp()).sum(-1).sum(-1, dtype=torch.float64)  # p_0 (ln p_0 - ln p)
    return Losses((loss / (keys - 1)).cpu(), (kl / keys).cpu())
