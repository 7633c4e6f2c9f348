"""Capture of attention during one ordinary forward pass: chosen queries' weights and the value states of every layer.

Holds the attention function that transformers calls instead of its own, and ``capture`` and ``probe``, which run a
model with it. What does not belong here: loading models (``extract.models``), and batches, files and provenance
(``extract.extraction``).

The layer's own output still comes from SDPA, and beside it only the chosen queries meet the keys, so memory stays
O(queries * context) for each head; SDPA knows no soft-capped logits and no learned sinks, so layers with those are
computed here, a block of queries at a time.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from storage.errors import UserError

ATTENTION = "attention_geometry_queries"
"""Name of the attention function in transformers' registries."""

QUERY_BLOCK = 128
"""Queries computed at a time where SDPA cannot compute the layer's output."""

TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""How far ``probe`` lets a layer's output be from its captured weights times its value states, relative to the largest
element, by the type the layer computes in: some 800, 10 and 6 of its rounding steps."""


@dataclass(frozen=True)
class Captured:
    """What Q queries of a batch of B sequences of K tokens saw in the L layers of a model, on the CPU."""

    weights: Tensor
    """Softmax weights, float32 (B, Q, L, H, K); exactly 0 where the mask hides the key, as it does after the query."""
    values: Tensor
    """Value states once per KV head, float32 (B, L, Hkv, K, D); query head h reads KV head h // (H / Hkv)."""
    first_key: Tensor
    """First position each query may attend to, int32 (Q, L); it attends from there to its own position."""
    query_position: Tensor
    """Positions of the queries, int32 (Q,), in the order they were asked for."""


@dataclass
class _Recorder:
    """Collects the layers of one forward pass; ``verify`` also checks each layer's output against its weights."""

    model: str
    layers: int
    queries: tuple[int, ...]
    verify: bool
    weights: Tensor | None = None
    values: Tensor | None = None
    first_key: dict[int, list[int]] = field(default_factory=dict)

    def record(self, layer: int | None, weights: Tensor, value: Tensor, first_key: list[int]) -> None:
        """Keep float32 copies of one layer's weights (B, Q, H, K) and value states (B, Hkv, K, D)."""
        if layer is None or not 0 <= layer < self.layers:
            msg = f"{self.model} computes attention outside its {self.layers} numbered layers; it cannot be captured"
            raise UserError(msg)
        if layer in self.first_key:
            msg = f"{self.model} computes attention more than once in layer {layer}; it cannot be captured"
            raise UserError(msg)
        if self.weights is None or self.values is None:
            self.weights = _by_layer(weights, self.layers, axis=2)
            self.values = _by_layer(value, self.layers, axis=1)
        weights_kept, values_kept = self.weights[:, :, layer], self.values[:, layer]
        for what, kept, new in (("weights", weights_kept, weights), ("value states", values_kept, value)):
            if kept.shape != new.shape:
                msg = (
                    f"{self.model} has layers of different sizes: the {what} of layer {layer} are "
                    f"{tuple(new.shape[1:])}, of an earlier layer {tuple(kept.shape[1:])}; "
                    "one array cannot hold them, choose another model"
                )
                raise UserError(msg)
            kept.copy_(new)
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
        queries = torch.tensor(self.queries, dtype=torch.int32)
        return Captured(self.weights, self.values, first_key.T.contiguous(), queries)


_recorder: ContextVar[_Recorder] = ContextVar("_recorder")


def capture(model: PreTrainedModel, input_ids: Tensor, queries: Sequence[int]) -> Captured:
    """Run the model once on ``input_ids`` (B, K), without padding, and keep what some queries saw in every layer.

    Only the base model runs: no logits are computed. The captured tensors are on the CPU and share no memory with the
    forward pass.

    Parameters
    ----------
    model, input_ids
        A causal language model and the token ids it reads.
    queries
        Positions of the queries, from 0 to K - 1.

    Raises
    ------
    UserError
        If the model's attention cannot be captured in all of its layers, is not causal, hides keys other than the
        first ones from one of the queries, or has layers of different sizes.
    ValueError
        If there is no query, or none at such a position.
    """
    return _run(model, input_ids, queries, verify=False)


def probe(model: PreTrainedModel, input_ids: Tensor) -> Captured:
    """Like ``capture``, checking also that each layer's output is its captured weights times its value states.

    Meant for one short sequence (1, K) before any work is done: it finds mechanisms that ``capture`` does not know. The
    queries are the last position and the one half-way to it, which has keys behind it that it must not see.

    Raises
    ------
    UserError
        As ``capture``, and if a layer's output differs from what was captured, or heads have learned sinks.
    """
    last = input_ids.shape[1] - 1
    return _run(model, input_ids, sorted({last // 2, last}), verify=True)


def _run(model: PreTrainedModel, input_ids: Tensor, queries: Sequence[int], *, verify: bool) -> Captured:
    """One forward pass of the base model under a recorder."""
    keys = input_ids.shape[1]
    if not queries or not 0 <= min(queries) <= max(queries) < keys:
        msg = f"queries must be some positions from 0 to {keys - 1}, got {list(queries)}"
        raise ValueError(msg)
    layers = model.config.get_text_config(decoder=True).num_hidden_layers
    recorder = _Recorder(type(model).__name__, layers, tuple(queries), verify)
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
    """Attention of one layer as transformers calls it: record the chosen queries, return the output (B, K, H, D).

    ``query`` is (B, H, K, D), ``key`` and ``value`` are (B, Hkv, K, D) and (B, Hkv, K, Dv), all after rotation;
    ``attention_mask`` is True where a key is visible, (B or 1, H or 1, K, K), or None for a plain causal mask.
    """
    recorder = _recorder.get()
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    _refuse_other_masks(recorder.model, module, attention_mask, is_causal)
    rows = torch.tensor(recorder.queries, device=query.device)
    weights = query_weights(query, key, attention_mask, rows, scale, softcap, s_aux)
    if softcap is None and s_aux is None:
        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, is_causal=is_causal, **kwargs
        )
    else:
        output = _attend(query, key, value, attention_mask, scale, softcap, s_aux)
    layer = getattr(module, "layer_idx", None)
    if recorder.verify:
        _verify(recorder.model, layer, weights, value, output[:, rows])
        _refuse_learned_sinks(recorder.model, s_aux)
    recorder.record(layer, weights.transpose(1, 2), value, _first_key(recorder.model, attention_mask, rows))
    return output, None


AttentionInterface.register(ATTENTION, _forward)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)  # without it every mask would silently be None


def query_weights(
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    rows: Tensor,
    scale: float,
    softcap: float | None,
    s_aux: Tensor | None,
) -> Tensor:
    """Softmax weights of the queries at the positions ``rows`` (Q,), float32 (B, H, Q, K), computed in float32.

    The other arguments are as for ``_forward``. Each query meets the keys by itself: one product for all would round
    each by how many there are.
    """
    float_key = key.float()
    return torch.cat(
        [
            _probabilities(query[:, :, row], float_key, _visible(mask, row, key.shape[2]), scale, softcap, s_aux)
            for row in rows.split(1)
        ],
        dim=2,
    )


def _visible(mask: Tensor | None, rows: Tensor, keys: int) -> Tensor:
    """Which keys the queries at the positions ``rows`` see, bool (B or 1, H or 1, Q, K); all up to them if no mask."""
    if mask is None:
        return (torch.arange(keys, device=rows.device) <= rows[:, None])[None, None]
    return mask[:, :, rows]


def _probabilities(
    query: Tensor, key: Tensor, visible: Tensor, scale: float, softcap: float | None, s_aux: Tensor | None
) -> Tensor:
    """Softmax weights, float32 (B, H, Q, K), of some queries (B, H, Q, D) over float32 keys (B, Hkv, K, D)."""
    logits = _by_kv_head(query.float(), key) @ key.transpose(-1, -2)  # (B, Hkv, H / Hkv * Q, K)
    logits = logits.reshape(*query.shape[:3], key.shape[2]) * scale
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
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
    """Attention output (B, K, H, D), ``QUERY_BLOCK`` queries at a time; arguments as for ``_forward``."""
    float_key, blocks = key.float(), []
    for rows in torch.split(torch.arange(key.shape[2], device=key.device), QUERY_BLOCK):
        visible = _visible(mask, rows, key.shape[2])
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
        _refuse_bidirectional(model)


def _refuse_bidirectional(model: str) -> NoReturn:
    """Refuse a model in which a query sees a key after itself."""
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


def _first_key(model: str, mask: Tensor | None, rows: Tensor) -> list[int]:
    """The first key each query at the positions ``rows`` (Q,) sees; it must see those from there to its own, no others.

    That holds in every sequence and head alike.
    """
    if mask is None:
        return [0] * len(rows)
    visible = _visible(mask, rows, mask.shape[3]).flatten(0, 1)  # (B * H, Q, K)
    positions = torch.arange(mask.shape[3], device=rows.device)
    first = visible[0].int().argmax(dim=-1)
    expected = (first[:, None] <= positions) & (positions <= rows[:, None])
    if (visible == expected).all():
        return [int(position) for position in first.tolist()]
    if (visible & (positions > rows[:, None])).any():
        _refuse_bidirectional(model)
    wrong = int(rows[(visible != expected).any(dim=-1).any(dim=0).int().argmax()])
    msg = f"{model} hides keys other than the first ones from the query at {wrong}; such masks are not supported"
    raise UserError(msg)


def _verify(model: str, layer: int | None, weights: Tensor, value: Tensor, output: Tensor) -> None:
    """Refuse a layer whose output of a query (B, Q, H, D) is not its weights (B, H, Q, K) times its value states."""
    expected = (_by_kv_head(weights, value) @ value.float()).reshape(*weights.shape[:3], -1).transpose(1, 2)
    difference = (expected - output.float()).abs().amax(dim=(0, 2, 3))  # (Q,)
    if (difference > TOLERANCE[value.dtype] * expected.abs().amax(dim=(0, 2, 3))).any():
        msg = (
            f"{model} attends in layer {layer} in a way this program does not know: its output is not the captured "
            "weights times the value states; choose another model"
        )
        raise UserError(msg)


def _by_layer(example: Tensor, layers: int, axis: int) -> Tensor:
    """An empty float32 tensor on the CPU like ``example``, with the layers as one axis more."""
    return torch.empty(*example.shape[:axis], layers, *example.shape[axis:], dtype=torch.float32)
