"""Capture of attention during an ordinary forward pass: the last query's weights and the value states of every layer.

Holds the attention function that transformers calls instead of its own, and ``capture`` and ``probe``, which run a
model with it. What does not belong here: loading models (``extract.models``), and batches, files and provenance
(``extract.extraction``).

The layer's own output still comes from SDPA, so memory stays O(context) for each head; SDPA knows no soft-capped logits
and no learned sinks, so layers with those are computed here, a block of queries at a time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from storage.errors import UserError

ATTENTION = "attention_geometry_last_query"
"""Name of the attention function in transformers' registries."""

QUERY_BLOCK = 128
"""Queries computed at a time where SDPA cannot compute the layer's output."""

TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""How far ``probe`` lets a layer's output be from its captured weights times its value states, relative to the largest
element, by the type the layer computes in: some 800, 10 and 6 of its rounding steps."""


@dataclass(frozen=True)
class Captured:
    """What a batch of B sequences of K tokens left behind in the L layers of a model, on the CPU."""

    weights: Tensor
    """Softmax weights of the last query, float32 (B, L, H, K); exactly 0 where the mask hides the key."""
    values: Tensor
    """Value states once per KV head, float32 (B, L, Hkv, K, D); query head h reads KV head h // (H / Hkv)."""
    first_key: Tensor
    """First position the last query may attend to, int32 (L,)."""


@dataclass
class _Recorder:
    """Collects the layers of one forward pass; ``verify`` also checks each layer's output against its weights."""

    model: str
    layers: int
    verify: bool
    weights: Tensor | None = None
    values: Tensor | None = None
    first_key: dict[int, int] = field(default_factory=dict)

    def record(self, layer: int | None, weights: Tensor, value: Tensor, first_key: int) -> None:
        """Keep float32 copies of one layer's weights (B, H, K) and value states (B, Hkv, K, D)."""
        if layer is None or not 0 <= layer < self.layers:
            msg = f"{self.model} computes attention outside its {self.layers} numbered layers; it cannot be captured"
            raise UserError(msg)
        if layer in self.first_key:
            msg = f"{self.model} computes attention more than once in layer {layer}; it cannot be captured"
            raise UserError(msg)
        if self.weights is None or self.values is None:
            self.weights = _by_layer(weights, self.layers)
            self.values = _by_layer(value, self.layers)
        for what, kept, new in (("heads", self.weights, weights), ("value states", self.values, value)):
            if kept[:, layer].shape != new.shape:
                msg = (
                    f"{self.model} has layers of different sizes: the {what} of layer {layer} are "
                    f"{tuple(new.shape[1:])}, of an earlier layer {tuple(kept.shape[2:])}; "
                    "one array cannot hold them, choose another model"
                )
                raise UserError(msg)
            kept[:, layer].copy_(new)
        self.first_key[layer] = first_key

    def captured(self) -> Captured:
        """All layers, or a refusal that names the missing ones."""
        missing = [layer for layer in range(self.layers) if layer not in self.first_key]
        if self.weights is None or self.values is None:
            msg = (
                f"{self.model} does not compute its attention through transformers' AttentionInterface, so nothing can "
                "be captured; choose another model"
            )
            raise UserError(msg)
        if missing:
            msg = (
                f"{self.model} has no softmax attention to capture in layers {', '.join(map(str, missing))} of "
                f"{self.layers}; models with layers of another kind are not supported, choose another model"
            )
            raise UserError(msg)
        first_key = torch.tensor([self.first_key[layer] for layer in range(self.layers)], dtype=torch.int32)
        return Captured(self.weights, self.values, first_key)


_recorder: ContextVar[_Recorder] = ContextVar("_recorder")


def capture(model: PreTrainedModel, input_ids: Tensor) -> Captured:
    """Run the model on ``input_ids`` (B, K), without padding, and keep what every layer's last query saw.

    Only the base model runs: no logits are computed. The captured tensors are on the CPU and share no memory with the
    forward pass.

    Raises
    ------
    UserError
        If the model's attention cannot be captured in all of its layers, is not causal, hides keys other than the
        first ones, or has layers of different sizes.
    """
    return _run(model, input_ids, verify=False)


def probe(model: PreTrainedModel, input_ids: Tensor) -> Captured:
    """Like ``capture``, checking also that each layer's output is its captured weights times its value states.

    Meant for one short sequence (1, K) before any work is done: it finds mechanisms that ``capture`` does not know.

    Raises
    ------
    UserError
        As ``capture``, and if a layer's output differs from what was captured, or heads have learned sinks.
    """
    return _run(model, input_ids, verify=True)


def _run(model: PreTrainedModel, input_ids: Tensor, *, verify: bool) -> Captured:
    """One forward pass of the base model under a recorder."""
    layers = model.config.get_text_config(decoder=True).num_hidden_layers
    recorder = _Recorder(type(model).__name__, layers, verify)
    token = _recorder.set(recorder)
    try:
        with _attention(model), torch.inference_mode():
            model.base_model(input_ids=input_ids.to(model.device, torch.long), use_cache=False)
    finally:
        _recorder.reset(token)
    return recorder.captured()


@contextmanager
def _attention(model: PreTrainedModel) -> Iterator[None]:
    """Within it the model computes attention through ``_forward``; afterwards through what it used before."""
    before = model.config._attn_implementation
    model.set_attn_implementation(ATTENTION)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of one layer as transformers calls it: record the last query, return the output (B, Q, H, D).

    ``query`` is (B, H, Q, D), ``key`` and ``value`` are (B, Hkv, K, D) and (B, Hkv, K, Dv), all after rotation;
    ``attention_mask`` is True where a key is visible, (B or 1, H or 1, Q, K), or None for a plain causal mask.
    """
    recorder = _recorder.get()
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    _refuse_other_masks(recorder.model, module, attention_mask, is_causal)
    weights = last_query_weights(query, key, attention_mask, scale, softcap, s_aux)
    if softcap is None and s_aux is None:
        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, is_causal=is_causal, **kwargs
        )
    else:
        output = _attend(query, key, value, attention_mask, scale, softcap, s_aux)
    layer = getattr(module, "layer_idx", None)
    if recorder.verify:
        _verify(recorder.model, layer, weights, value, output)
        _refuse_learned_sinks(recorder.model, s_aux)
    recorder.record(layer, weights, value, _first_key(recorder.model, attention_mask))
    return output, None


AttentionInterface.register(ATTENTION, _forward)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)  # without it every mask would silently be None


def last_query_weights(
    query: Tensor, key: Tensor, mask: Tensor | None, scale: float, softcap: float | None, s_aux: Tensor | None
) -> Tensor:
    """Softmax weights of the last query, float32 (B, H, K), computed in float32; arguments as for ``_forward``."""
    visible = None if mask is None else mask[:, :, -1:]
    return _probabilities(query[:, :, -1:], key.float(), visible, scale, softcap, s_aux)[:, :, 0]


def _probabilities(
    query: Tensor, key: Tensor, visible: Tensor | None, scale: float, softcap: float | None, s_aux: Tensor | None
) -> Tensor:
    """Softmax weights, float32 (B, H, Q, K), of some queries (B, H, Q, D) over float32 keys (B, Hkv, K, D)."""
    logits = _by_kv_head(query.float(), key) @ key.transpose(-1, -2)  # (B, Hkv, H / Hkv * Q, K)
    logits = logits.reshape(*query.shape[:3], key.shape[2]) * scale
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    if visible is not None:
        logits = logits.masked_fill(~visible, float("-inf"))
    if s_aux is None:
        return logits.softmax(dim=-1)
    sink = s_aux.float().reshape(1, -1, 1, 1).expand(*logits.shape[:3], 1)
    return torch.cat([logits, sink], dim=-1).softmax(dim=-1)[..., :-1]


def _by_kv_head(tensor: Tensor, key: Tensor) -> Tensor:
    """(B, H, Q, X) as (B, Hkv, H / Hkv * Q, X): the query heads that share a KV head, side by side."""
    return tensor.reshape(tensor.shape[0], key.shape[1], -1, tensor.shape[-1])


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float,
    softcap: float | None,
    s_aux: Tensor | None,
) -> Tensor:
    """Attention output (B, Q, H, D), ``QUERY_BLOCK`` queries at a time; arguments as for ``_forward``."""
    float_key, blocks = key.float(), []
    positions = torch.arange(key.shape[2], device=key.device)
    for rows in torch.split(positions, QUERY_BLOCK):
        visible = positions <= rows[:, None] if mask is None else mask[:, :, rows]
        part = query[:, :, rows]
        probabilities = _probabilities(part, float_key, visible, scale, softcap, s_aux).to(value.dtype)
        blocks.append((_by_kv_head(probabilities, key) @ value).reshape(*part.shape[:3], value.shape[-1]))
    return torch.cat(blocks, dim=2).transpose(1, 2).contiguous()


def _refuse_other_masks(model: str, module: torch.nn.Module, mask: Tensor | None, is_causal: bool | None) -> None:
    """Refuse attention that is not causal; the first query, which may see key 0 alone, tells."""
    if mask is None:
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    elif mask.dtype == torch.bool and mask.ndim == 4:
        causal = not mask[:, :, 0, 1:].any()
    else:
        msg = f"{model} gives its attention a mask of type {mask.dtype}, which cannot be captured; choose another model"
        raise UserError(msg)
    if not causal:
        msg = f"{model} is no causal language model: its tokens attend to later ones; choose a decoder such as gpt2"
        raise UserError(msg)


def _refuse_learned_sinks(model: str, s_aux: Tensor | None) -> None:
    """Refuse heads that give part of their weight to no key: their rows do not sum to 1."""
    if s_aux is not None:
        msg = (
            f"{model} has learned attention sinks, so the weights of its keys do not sum to 1; "
            "such models are not supported, choose another model"
        )
        raise UserError(msg)


def _first_key(model: str, mask: Tensor | None) -> int:
    """The first key the last query sees; the hidden keys must be the ones before it, in every sequence and head."""
    if mask is None:
        return 0
    rows = mask[:, :, -1].flatten(0, 1)  # (B * H, K)
    first = int(rows[0].int().argmax())
    if rows[:, :first].any() or not rows[:, first:].all():
        msg = f"{model} hides keys other than the first ones from the last query; such masks are not supported"
        raise UserError(msg)
    return first


def _verify(model: str, layer: int | None, weights: Tensor, value: Tensor, output: Tensor) -> None:
    """Refuse a layer whose last output (B, H, D) is not its weights (B, H, K) times its value states."""
    expected = _by_kv_head(weights[:, :, None], value) @ value.float()
    difference = (expected.flatten(1) - output[:, -1].float().flatten(1)).abs().max()
    if difference > TOLERANCE[value.dtype] * expected.abs().max():
        msg = (
            f"{model} attends in layer {layer} in a way this program does not know: its output is not the captured "
            "weights times the value states; choose another model"
        )
        raise UserError(msg)


def _by_layer(example: Tensor, layers: int) -> Tensor:
    """An empty float32 tensor on the CPU like ``example`` (B, ...), with the layers as second axis."""
    return torch.empty(example.shape[0], layers, *example.shape[1:], dtype=torch.float32)
