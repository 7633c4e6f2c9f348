"""Forward passes in which the outputs of attention heads are edited before the output projection, and their losses.

An edit is called inside the attention function, with the vectors that are multiplied, and returns the weighted sums z
of the layer, (B, K, H, D). What follows (gates, the output projection with its bias, norms) is computed by the model;
replacing the projection's output instead would also remove the bias and could not separate heads. A layer that an edit
does not change is computed by the attention function that the model would otherwise use, from the same arguments, so
that a pass without changes equals the plain pass bit by bit.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from extract.capture.attention import Weighting
from extract.capture.one_pass import Attention, find_eager_attention, refuse_part_of_the_keys, replace_attention
from extract.models.architectures import find_own_attention
from extract.models.loading import is_out_of_memory
from storage.errors import UserError


@dataclass(frozen=True)
class Call:
    """The attention of one layer, as transformers calls it."""

    layer: int
    query: Tensor
    """(B, H, K, D), as multiplied with the keys."""
    key: Tensor
    """(B, Hkv, K, D)."""
    value: Tensor
    """(B, Hkv, K, Dv); query head h reads KV head h // (H / Hkv)."""
    how: Weighting
    plain: Callable[[int], Tensor]
    """The layer's own z of the first so many sequences, (first, K, H, Dv), as the model computes it."""

    def output(self) -> Tensor:
        """The layer's own z, (B, K, H, Dv)."""
        return self.plain(len(self.query))

    def select_first(self) -> "Call":
        """The same call for the first sequence only."""
        how = replace(self.how, mask=None if self.how.mask is None else self.how.mask[:1])
        return replace(self, query=self.query[:1], key=self.key[:1], value=self.value[:1], how=how)

    def select_head(self, head: int) -> "Call":
        """The same call for one head and its KV head."""
        group = self.query.shape[1] // self.key.shape[1]
        own, of_kv = slice(head, head + 1), slice(head // group, head // group + 1)
        mask, s_aux = self.how.mask, self.how.s_aux
        mask = mask if mask is None or mask.shape[1] == 1 else mask[:, own]
        how = replace(self.how, mask=mask, s_aux=None if s_aux is None else s_aux[own])
        return replace(self, query=self.query[:, own], key=self.key[:, of_kv], value=self.value[:, of_kv], how=how)

    def sees_first(self) -> Tensor:
        """Which queries see position 0, bool (B or 1, K); the same for all heads."""
        if self.how.mask is None:
            return torch.ones(1, self.key.shape[2], dtype=torch.bool, device=self.key.device)
        return self.how.mask[:, 0, :, 0]


Edit = Callable[[Call], Tensor]
"""Computes z of the heads of a layer, (B, K, H, Dv) in the type of the value states."""


@dataclass
class Recorder:
    """Leaves every layer unchanged, and records what happens in it."""

    means: dict[int, Tensor] = field(default_factory=dict)
    """By layer, the mean of z over the positions, float32 (B, H, Dv)."""
    sees_first: dict[int, bool] = field(default_factory=dict)
    """By layer, whether every query sees position 0."""
    counts: dict[int, Tensor] = field(default_factory=dict)
    """By layer, how many keys each query sees, int64 (K,); of the first sequence and head."""

    def __call__(self, call: Call) -> Tensor:
        """The layer's own."""
        output = call.output()
        self.means[call.layer] = output.float().mean(dim=1)
        self.sees_first[call.layer] = bool(call.sees_first().all())
        rows = torch.arange(call.key.shape[2], device=call.key.device)
        self.counts[call.layer] = rows + 1 if call.how.mask is None else call.how.mask[0, 0].sum(dim=-1)
        return output


@contextmanager
def intervene(model: PreTrainedModel, attention: Attention, edit: Edit) -> Iterator[None]:
    """Edit the attention of every forward pass of the model inside the context; restore it afterwards.

    ``attention`` is what ``extract.capture.one_pass.probe`` found out about the model.
    """
    refuse_two_passes(model, attention)
    before = find_own_attention(model.config)
    try:
        with replace_attention(model, partial(_forward, type(model).__name__, edit, before), before):
            yield
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            raise UserError(
                f"There is not enough memory for a forward pass of {type(model).__name__} whose attention is read or "
                "edited; lower context_length, or set dtype: bfloat16 or device_map: auto; a study runs without "
                "effects, too"
            ) from error
        raise


def run_base(model: PreTrainedModel, attention: Attention, edit: Edit, ids: Tensor) -> None:
    """A pass of the base model, without logits, over token ids (B, K), whose attention is edited; as ``intervene``."""
    with intervene(model, attention, edit), torch.inference_mode():
        model.base_model(input_ids=ids.to(model.device, torch.long), use_cache=False)


class UneditableError(UserError):
    """The attention of a model cannot be edited, so the effects of its heads cannot be measured; all else can."""


def refuse_two_passes(model: PreTrainedModel, attention: Attention) -> None:
    """Refuse a model (``UneditableError``) that is read in two passes, whose attention cannot be edited."""
    if attention.path == "two-pass":
        raise UneditableError(
            f"{type(model).__name__} computes attention in its own code (it is read in two passes), so its heads "
            "cannot be changed; leave out effects, all else can be computed"
        )


def _forward(
    name: str,
    edit: Edit,
    implementation: str,
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **given: Any,
) -> tuple[Tensor, None]:
    """Attention of one layer of the model ``name`` as transformers calls it, computed by the edit."""
    refuse_part_of_the_keys(name, query, key, given.get("indices"), given.get("block_indices"))
    attend = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, find_eager_attention(name, module))

    def plain(first: int) -> Tensor:
        mask = attention_mask if attention_mask is None or len(attention_mask) == 1 else attention_mask[:first]
        output: Tensor = attend(module, query[:first], key[:first], value[:first], mask, **given)[0]
        return output

    scaling = given.get("scaling")
    how = Weighting(
        attention_mask if attention_mask is None or attention_mask.dtype == torch.bool else attention_mask == 0,
        query.shape[-1] ** -0.5 if scaling is None else scaling,
        given.get("softcap"),
        given.get("s_aux"),
    )
    layer = int(module.layer_idx)  # type: ignore[arg-type]  # a number, as probe has checked
    return edit(Call(layer, query, key, value, how, plain)), None


BLOCK_BYTES = 2**20
"""Bytes of the float32 logits of a block of positions, which fit into a CPU's cache; at least one position."""


def compute_log_probabilities(logits: Tensor) -> Tensor:
    """Logarithms of next-token probabilities, float32, from logits whose last axis is the vocabulary."""
    return logits.float().log_softmax(-1)


def compare_losses(logits: Tensor, plain: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Losses of passes with logits (R, K, V) over token ids (K,), compared with a plain pass, float64 (R,) on the CPU.

    These are the mean next-token cross entropy in nats, over all positions except the last, which has no next token,
    and the mean over all positions of KL(p_0 ‖ p) in nats, where p_0 is the plain pass's. ``plain`` is the plain pass's
    ln p_0 (K, V), the result of ``compute_log_probabilities``. Softmax is computed in float32, sums over positions in
    float64. KL is exactly 0 where the logits are equal. Memory in addition to the arguments: at most eight times
    ``BLOCK_BYTES``, or the size of one position.
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
    return (loss / (keys - 1)).cpu(), (kl / keys).cpu()
