"""Sparse attention: forward passes in which every query attends to the keys that a policy keeps.

Weights are computed and keys chosen for a block of queries at a time, so that memory is bounded for any context.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from extract.capture.attention import compute_logits, compute_softmax, find_visible_keys, group_by_kv_head
from extract.capture.one_pass import Attention
from extract.effects.interventions import (
    Call,
    Edit,
    Recorder,
    compare_losses,
    compute_log_probabilities,
    intervene,
    run_base,
)
from extract.effects.policies import Block, Policy, Rest, count_fewest

BLOCK_BYTES = 2**20
"""Bytes of the float32 weights of a block of queries, few enough for a cache of the CPU; at least one query."""

BLOCKS = 16
"""Upper bound of the memory for choosing keys, in multiples of the bytes of a block."""


@dataclass
class SparseEdit:
    """Lets every query attend to the keys that a policy keeps, and gives the weight of the others to its ``rest``."""

    policy: Policy
    kept: int = field(default=0, init=False)
    """Keys kept so far, over all sequences, layers, heads and queries."""
    queries: int = field(default=0, init=False)
    """Queries of all heads so far."""

    @property
    def keys_kept(self) -> float:
        """Mean number of keys that a query of a head keeps."""
        return self.kept / self.queries

    def __call__(self, call: Call) -> Tensor:
        """Z of a layer over the kept keys, (B, K, H, Dv)."""
        outputs = []
        for block in iterate_blocks(call):
            kept = self.policy.keep(block) & block.visible
            self.kept += int(kept.expand(block.logits.shape).count_nonzero())
            self.queries += block.logits[..., 0].numel()
            outputs.append(combine_values(block, kept, self.policy.rest))
        return torch.cat(outputs, dim=2).transpose(1, 2).contiguous()


def combine_values(block: Block, kept: Tensor, rest: Rest) -> Tensor:
    """Z of the queries of a block over the kept keys (B, H, Q, K), and what stands for the others: (B, H, Q, Dv)."""
    if rest == "renormalised":
        weights = compute_softmax(block.logits, kept, block.s_aux)[..., : block.logits.shape[-1]]
    else:
        weights = block.weights * kept
    grouped = group_by_kv_head(weights.to(block.value.dtype), block.value)
    output = (grouped @ block.value).reshape(*weights.shape[:3], -1)
    if rest in {"renormalised", "dropped"}:
        return output
    left_out = block.visible & ~kept
    if rest == "mean":
        mean = block.mean_values.repeat_interleave(output.shape[1] // block.value.shape[1], dim=1)
    else:
        mean = block.average_values(group_by_kv_head(left_out.expand(weights.shape), block.value)).reshape(output.shape)
    return output + ((block.weights * left_out).sum(-1, keepdim=True) * mean).to(output.dtype)


def measure_policy_losses(
    model: PreTrainedModel,
    attention: Attention,
    ids: Tensor,
    policies: Sequence[Policy],
) -> dict[str, Any]:
    """Let a model read one sequence, (K,), with full attention, and once under each policy.

    Returns ``plain_loss``: mean next-token cross entropy of full attention, in nats; and lists by policy: ``loss``, the
    same under it; ``kl``: mean over positions of KL(p_0 ‖ p) in nats; ``keys_kept``: mean number of keys that a query
    of a head keeps.

    Memory in addition to that of a plain pass with its logits: K * V float32 numbers, and ``BLOCKS`` times
    ``BLOCK_BYTES`` or the size of one query (``estimate_policy_bytes``). Raises as ``intervene``.
    """
    logits = _compute_logits(model, attention, ids, Recorder())
    plain = compute_log_probabilities(logits[0])
    plain_loss, _ = compare_losses(logits, plain, ids)
    del logits
    found: dict[str, list[float]] = {"loss": [], "kl": [], "keys_kept": []}
    for policy in policies:
        edit = SparseEdit(policy)
        loss, kl = compare_losses(_compute_logits(model, attention, ids, edit), plain, ids)
        for name, number in zip(found, (float(loss), float(kl), edit.keys_kept), strict=True):
            found[name].append(number)
    return {"plain_loss": float(plain_loss), **found}


def count_mass_keys(
    model: PreTrainedModel, attention: Attention, ids: Tensor, shares: Sequence[float]
) -> NDArray[np.float64]:
    """Mean number of keys that make up shares of a query's weights, over sequences (S, K); float64 (shares,).

    One plain pass for each sequence; memory as for ``measure_policy_losses``, without logits.
    """
    kept, queries = np.zeros(len(shares)), 0  # over all sequences, layers, heads and queries

    def count(call: Call) -> Tensor:
        nonlocal kept, queries
        for block in iterate_blocks(call):
            kept += count_fewest(block.weights, shares).sum(dim=(0, 1, 2)).cpu().numpy()
            queries += block.logits[..., 0].numel()
        return call.output()

    for one in ids:
        run_base(model, attention, count, one[None])
    return kept / queries


def estimate_policy_bytes(model: PreTrainedModel, keys: int) -> int:
    """Most bytes that ``measure_policy_losses`` needs over ``keys`` tokens in addition to the model, from its sizes."""
    text = model.config.get_text_config(decoder=True)
    block = max(BLOCK_BYTES, text.num_attention_heads * keys * torch.float32.itemsize)
    return int(estimate_row_bytes(model, keys) + keys * text.vocab_size * torch.float32.itemsize + BLOCKS * block)


def estimate_row_bytes(model: PreTrainedModel, keys: int) -> int:
    """Most bytes that one sequence needs in a forward pass, from the sizes of the model.

    Three copies of the logits, ten of the widest activations, and, if the model computes attention eagerly, six of the
    float32 matrix of all weights of a layer. Temporary memory of layers of other kinds, such as Mamba's, is not
    counted.
    """
    text = model.config.get_text_config(decoder=True)
    words = text.vocab_size
    widest = max(size for weight in model.parameters() for size in weight.shape[-2:] if size != words)
    matrices = 6 * text.num_attention_heads * keys if model.config._attn_implementation == "eager" else 0
    return int(keys * (model.dtype.itemsize * (3 * words + 10 * widest) + torch.float32.itemsize * matrices))


def iterate_blocks(call: Call) -> Iterator[Block]:
    """Iterate over the queries of a layer in blocks, each with the keys up to its last query."""
    key = call.key.float()
    batch, heads, keys, _ = call.query.shape
    together = max(1, BLOCK_BYTES // (batch * heads * keys * torch.float32.itemsize))
    for rows in torch.arange(keys, device=key.device).split(together):
        end = int(rows[-1]) + 1
        logits = compute_logits(call.query[:, :, rows], key[:, :, :end], call.how.scale, call.how.softcap)
        visible = find_visible_keys(call.how.mask, rows, end)[..., :end]
        yield Block(call.layer, rows, visible, logits, call.how.s_aux, call.value[:, :, :end])


def _compute_logits(model: PreTrainedModel, attention: Attention, ids: Tensor, edit: Edit) -> Tensor:
    with intervene(model, attention, edit), torch.inference_mode():
        logits: Tensor = model(input_ids=ids[None].to(model.device, torch.long), use_cache=False).logits
    return logits
