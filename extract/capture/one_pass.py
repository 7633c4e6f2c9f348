"""Capture of attention while a model reads: chosen queries' weights and the value states of every layer.

Models that call no attention function of transformers are read by ``extract.capture.two_pass``.

The layer's output is still computed by SDPA; in addition only the chosen queries are multiplied with the keys, so
memory stays O(queries * context) for each head. SDPA supports neither soft-capped logits nor learned sinks, so layers
with those are computed here, a block of queries at a time.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NoReturn

import numpy as np
import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from extract.capture import two_pass
from extract.capture.attention import (
    EveryQuery,
    Patterns,
    Weighting,
    attend,
    compute_head_patterns,
    compute_query_weights,
    compute_received_attention,
    find_visible_keys,
    group_by_kv_head,
)
from extract.capture.buffers import Buffers
from extract.hub import summarise_error
from extract.models.architectures import (
    OTHER_KINDS,
    check_both_halves,
    find_own_attention,
    list_layer_kinds,
    restore_attention,
)
from extract.models.loading import MODEL_ERRORS, is_out_of_memory
from extract.stopping import check_stopped
from storage.errors import UserError
from storage.zarr.arrays import LayerSize

ATTENTION = "attention_geometry"
"""Name of the attention function in transformers' registries."""

Attend = Callable[..., tuple[Tensor, None]]
"""Computes the attention of one layer, as transformers calls it."""

TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""Largest difference that ``probe`` accepts between weights and outputs and the model's own, relative to the largest
element, by the type the layer computes in: for the last three about 800, 10 and 6 of its rounding steps."""

NO_LAYER = LayerSize(0, 0, 0)

PROBE_TOKENS = 64
"""Length of the sequence on which a model is tried before it is read."""


@dataclass(frozen=True)
class Attention:
    """How a model's attention is read, and the sizes and kinds of its layers."""

    path: Literal["AttentionInterface", "two-pass"]
    """Through the attention function that transformers calls, or from blocks of queries after a filled cache."""
    layers: tuple[LayerSize, ...]
    """Sizes of every layer; all 0 in one without softmax attention."""
    kinds: tuple[str, ...]
    """Kind of every layer as the model's configuration names it, such as full_attention or linear_attention."""
    dtype: torch.dtype
    """Type of the value states."""


@dataclass(frozen=True)
class Capture:
    """Captured tensors of Q queries of a batch of B sequences of K tokens in the L layers of a model.

    ``captured[name]`` is (L, B, ...), the array of a store that ``storage.zarr.arrays.TENSORS`` declares by this name,
    with its axis of layers first; value states are in the model's type. It is a view of the host memory that it was
    captured to; elements beyond the size of a layer are NaN. What was not requested is not there.
    """

    layers: tuple[LayerSize, ...]
    """Sizes of every layer; all 0 in one without softmax attention."""
    tensors: dict[str, Tensor]
    first_key: Tensor
    """First position each query attends to, up to its own, int32 (Q, L); -1 in a layer without softmax attention."""
    wait: Callable[[], None]
    """Waits until all tensors have arrived from the GPU; must be called before they are read."""

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]


class AllRecordedError(Exception):
    """Ends a forward pass at the attention of the last layer that is captured: what follows determines no weight."""


@dataclass
class _LayerRecorder:
    """Records the tensors of the layers of a forward pass; without buffers, checks them and keeps only their sizes."""

    model: str
    layers: int
    queries: tuple[int, ...]
    buffers: Buffers | None
    tokens: Tensor
    """Token ids that are read, (B, K), on the device of the model."""
    wanted: int | None
    """Number of layers after which the pass ends; None if it does not end early."""
    every_query: bool
    """Whether all queries are measured."""
    sizes: dict[int, LayerSize] = field(default_factory=dict)
    dtypes: dict[int, torch.dtype] = field(default_factory=dict)
    first_key: dict[int, list[int]] = field(default_factory=dict)
    _rows: dict[torch.device, Tensor] = field(default_factory=dict)
    _last_mask: tuple[Tensor, list[int]] | None = None

    def record(
        self,
        layer: int | None,
        weights: Tensor,
        value: Tensor,
        sink: Tensor | None,
        first: list[int],
        measured: tuple[Tensor | None, Patterns, Sequence[Tensor] | None] | None,
    ) -> None:
        """Record one layer's weights (B, Q, H, K), value states, learned sinks (B, Q, H), and what is measured of them.

        After the last of the wanted layers, raise ``AllRecordedError``.
        """
        check_stopped()
        if layer is None or not 0 <= layer < self.layers:
            raise UserError(
                f"{self.model} computes attention outside its {self.layers} numbered layers; it cannot be captured"
            )
        if layer in self.sizes:
            raise UserError(f"{self.model} computes attention more than once in layer {layer}; it cannot be captured")
        self.sizes[layer] = LayerSize(weights.shape[2], value.shape[1], value.shape[3])
        self.dtypes[layer] = value.dtype
        self.first_key[layer] = first
        if self.buffers is not None and measured is not None:
            self.buffers.put(layer, weights, value, sink, *measured)
        if len(self.sizes) == self.wanted:
            raise AllRecordedError

    def copy_rows(self, device: torch.device) -> Tensor:
        """Positions of the queries, int64 (Q,), on a device; copied there once."""
        if device not in self._rows:
            self._rows[device] = torch.tensor(self.queries, device=device)
        return self._rows[device]

    def find_first_keys(
        self, module: torch.nn.Module, mask: Tensor | None, is_causal: bool | None, key: Tensor
    ) -> list[int]:
        """The first key that each query sees; a mask that consecutive layers share is examined only once."""
        if mask is None:
            _refuse_other_masks(self.model, module, None, is_causal)
            return [0] * len(self.queries)
        if self._last_mask is None or self._last_mask[0] is not mask:
            _refuse_other_masks(self.model, module, mask, is_causal)
            self._last_mask = mask, _find_first_key(self.model, mask, self.copy_rows(key.device))
        return self._last_mask[1]


def probe(model: PreTrainedModel, input_ids: Tensor) -> Attention:
    """Find out how a model's attention is read by running it on one short sequence (1, K); refuse what is not known.

    Each layer's weights and output are compared with those that the model's own eager attention computes from the same
    states; for a model that calls no attention function, the rows of two blocks of queries with those of one plain
    forward pass. The queries are the last position and the one half-way to it, which is followed by keys that it must
    not see. Numbers that are not finite are let through, and out-of-memory errors are passed on.
    """
    check_both_halves(model.config, type(model).__name__, model)
    last = input_ids.shape[1] - 1
    try:
        recorder = _run(model, input_ids, sorted({last // 2, last}))
    except MODEL_ERRORS as error:
        if is_out_of_memory(error):
            raise
        raise UserError(
            f"{type(model).__name__} cannot read {last + 1} plain tokens: {summarise_error(error)}; choose "
            "another model"
        ) from error
    kinds = list_layer_kinds(model.config)
    if not recorder.sizes:
        sizes, dtype = two_pass.examine(model, _move_ids(model, input_ids))
        return Attention("two-pass", tuple(sizes), kinds, dtype)
    layers = tuple(recorder.sizes.get(layer, NO_LAYER) for layer in range(recorder.layers))
    missing = [n for n, size in enumerate(layers) if size == NO_LAYER and kinds[n] not in OTHER_KINDS]
    _refuse_in_part(recorder.model, missing, recorder.layers)
    return Attention("AttentionInterface", layers, kinds, next(iter(recorder.dtypes.values())))


def capture(
    model: PreTrainedModel,
    attention: Attention,
    input_ids: Tensor,
    queries: Sequence[int],
    buffers: Buffers | None = None,
    *,
    every_query: bool = False,
) -> Capture:
    """Let the model read ``input_ids`` (B, K), without padding, and capture some queries' attention in every layer.

    Only the base model runs: no logits are computed. Tensors captured on a GPU are still being copied when this
    returns; ``Capture.wait`` waits for them. ``attention`` is the result of ``probe``; ``queries`` are positions;
    ``buffers`` have memory for what ``every_query`` adds; new ones are made if None.
    """
    batch, keys = input_ids.shape
    if not queries or not 0 <= min(queries) <= max(queries) < keys:
        raise ValueError(f"queries must be some positions from 0 to {keys - 1}, got {list(queries)}")
    if buffers is None:
        buffers = Buffers(attention.layers, batch=batch, queries=len(queries), keys=keys, dtype=attention.dtype)
    if attention.path == "two-pass":
        ids = _move_ids(model, input_ids)
        first = two_pass.read(model, attention.layers, ids, queries, buffers.put, every_query=every_query)
    else:
        attending = sum(size != NO_LAYER for size in attention.layers)
        recorder = _run(model, input_ids, queries, buffers, attending, every_query=every_query)
        missing = [n for n, size in enumerate(attention.layers) if size != NO_LAYER and n not in recorder.sizes]
        _refuse_in_part(recorder.model, missing, recorder.layers)
        none = [-1] * len(queries)
        first = [recorder.first_key.get(layer, none) for layer in range(recorder.layers)]
    return Capture(
        layers=attention.layers,
        tensors={name: tensor[:, :batch] for name, tensor in buffers.tensors.items()},
        first_key=torch.tensor(first, dtype=torch.int32).T.contiguous(),
        wait=buffers.wait,
    )


def _run(
    model: PreTrainedModel,
    input_ids: Tensor,
    queries: Sequence[int],
    buffers: Buffers | None = None,
    wanted: int | None = None,
    *,
    every_query: bool = False,
) -> _LayerRecorder:
    """Run one forward pass of the base model with a recorder, until it has the ``wanted`` number of layers.

    Returns the recorder.
    """
    layers = model.config.get_text_config(decoder=True).num_hidden_layers
    tokens = _move_ids(model, input_ids)
    recorder = _LayerRecorder(type(model).__name__, layers, tuple(queries), buffers, tokens, wanted, every_query)
    recording = replace_attention(model, partial(_forward, recorder), "sdpa")
    with recording, torch.inference_mode(), suppress(AllRecordedError):
        model.base_model(input_ids=tokens, use_cache=False)
    return recorder


def _move_ids(model: PreTrainedModel, input_ids: Tensor) -> Tensor:
    return input_ids.to(model.device, torch.long)


def _refuse_in_part(model: str, missing: Sequence[int], layers: int) -> None:
    if missing:
        raise UserError(
            f"{model} is captured only in part: no attention was seen in layers {', '.join(map(str, missing))} of "
            f"{layers}, which its configuration does not declare to be of another kind; choose another model"
        )


def _forward(
    recorder: _LayerRecorder,
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    is_causal: bool | None = None,
    indices: Tensor | None = None,
    block_indices: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of one layer as transformers calls it: record the chosen queries, return the output (B, K, H, D).

    ``query`` is (B, H, K, D), ``key`` and ``value`` are (B, Hkv, K, D) and (B, Hkv, K, Dv), all after rotation;
    ``attention_mask`` is True where a key is visible, (B or 1, H or 1, K, K), or None for a plain causal mask;
    ``indices`` (B, K, N) and ``block_indices`` are the keys that an indexer chose for each query, in addition to the
    mask.
    """
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    refuse_part_of_the_keys(recorder.model, query, key, indices, block_indices)
    first = recorder.find_first_keys(module, attention_mask, is_causal, key)
    rows = recorder.copy_rows(query.device)
    how = Weighting(attention_mask, scale, softcap, s_aux)
    weights, sink = compute_query_weights(query, key, rows, how)
    if softcap is None and s_aux is None:
        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, is_causal=is_causal, **kwargs
        )
    else:
        output = attend(query, key, value, how)
    if recorder.buffers is None:
        given = {"scaling": scale, "softcap": softcap, "s_aux": s_aux, **kwargs}
        _verify(recorder.model, module, (query, key, value), attention_mask, weights, sink, output, rows, **given)
    measured = None if recorder.buffers is None else _measure_all_queries(recorder, query, key, value, how)
    sinks = None if sink is None else sink.transpose(1, 2)
    layer = getattr(module, "layer_idx", None)
    recorder.record(layer, weights.transpose(1, 2), value, sinks, first, measured)
    return output, None


def _measure_all_queries(
    recorder: _LayerRecorder, query: Tensor, key: Tensor, value: Tensor, how: Weighting
) -> tuple[Tensor | None, Patterns, Sequence[Tensor] | None]:
    """What keys receive, what heads look at, and what all queries select, as far as there is memory for it."""
    received = every = None
    if recorder.buffers is not None and "received_attention" in recorder.buffers.tensors:
        received = compute_received_attention(query, key, how)
    if recorder.every_query:
        positions = torch.arange(key.shape[2], device=key.device)
        first = [0] * len(positions) if how.mask is None else _find_first_key(recorder.model, how.mask, positions)
        every = EveryQuery.begin(len(query), query.shape[1], np.array(first, np.int64))
    measure = None if every is None else partial(every.add, value)
    patterns = compute_head_patterns(query, key, recorder.tokens.to(query.device), how, measure)
    return received, patterns, None if every is None else every.tensors


_replaced: ContextVar[tuple[Attend, str] | None] = ContextVar("_replaced", default=None)
"""What computes attention in this thread, and the implementation whose masks it gets; None if nothing is replaced."""


@contextmanager
def replace_attention(model: PreTrainedModel, attend: Attend, masks: str) -> Iterator[None]:
    """Let ``attend`` compute the attention of a model's layers in this thread, with the ``masks`` of an implementation.

    Everything is restored at the end, however the context is left. Other threads compute what they otherwise would.
    """
    token = _replaced.set((attend, masks))
    try:
        with restore_attention(model):
            model.set_attn_implementation(ATTENTION)
            yield
    finally:
        _replaced.reset(token)


def _dispatch(module: torch.nn.Module, *states: Any, **kwargs: Any) -> Any:
    """Attention of one layer: the replaced one in its thread, the model's own in any other."""
    if (replaced := _replaced.get()) is not None:
        return replaced[0](module, *states, **kwargs)
    source: Any = sys.modules[type(module).__module__]
    own: Any = find_own_attention(module.config)
    functions = getattr(source, "ALL_ATTENTION_FUNCTIONS", ALL_ATTENTION_FUNCTIONS)
    eager: Any = getattr(source, "eager_attention_forward", None)
    return functions.get_interface(own, eager)(module, *states, **kwargs)


def _make_mask(*args: Any, config: Any, **kwargs: Any) -> Any:
    """The mask that replaced attention gets in its thread, the model's own in any other."""
    replaced = _replaced.get()
    own = find_own_attention(config) if replaced is None else replaced[1]
    return ALL_MASK_ATTENTION_FUNCTIONS[own](*args, config=config, **kwargs)


AttentionInterface.register(ATTENTION, _dispatch)
AttentionMaskInterface.register(ATTENTION, _make_mask)  # without this line every mask would silently be None


def _refuse_other_masks(model: str, module: torch.nn.Module, mask: Tensor | None, is_causal: bool | None) -> None:
    """Refuse attention that is not causal, which shows at the first query: it may see only key 0."""
    if mask is None:
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    elif mask.dtype == torch.bool and mask.ndim == 4:
        causal = not mask[:, :, 0, 1:].any()
    else:
        raise UserError(
            f"{model} gives its attention a mask of type {mask.dtype}, which cannot be captured; choose another model"
        )
    if not causal:
        _refuse_bidirectional(model)


def _refuse_bidirectional(model: str) -> NoReturn:
    raise UserError(
        f"{model} is not a causal language model: its tokens attend to later ones; choose a decoder such as gpt2"
    )


def refuse_part_of_the_keys(
    model: str, query: Tensor, key: Tensor, indices: Tensor | None, blocks: Tensor | None
) -> None:
    """Refuse attention (``UserError``) with other positions of queries (B, H, Q, D) than of keys (B, Hkv, K, D).

    Also if an indexer chooses only some of the keys; in a short context, it may choose all of them.
    """
    keys = key.shape[2]
    if query.shape[2] != keys:
        raise UserError(
            f"{model} has {query.shape[2]} queries and {keys} keys in its attention; only self-attention over whole "
            "sequences can be captured, choose another model"
        )
    if blocks is not None:
        raise UserError(
            f"{model} chooses blocks of keys for each query, which cannot be captured; choose another model"
        )
    if indices is not None and (most := indices.shape[-1]) < keys:
        msg = f"{model} chooses {most} keys for each query, which cannot be captured; "
        raise UserError(msg + f"set context_length to {most} or less")


def _find_first_key(model: str, mask: Tensor, rows: Tensor) -> list[int]:
    """The first key seen by each query at the positions ``rows`` (Q,), which must see exactly the keys up to its own.

    This must hold equally in every sequence and head.
    """
    visible = find_visible_keys(mask, rows, mask.shape[3]).flatten(0, 1)  # (B * H, Q, K)
    positions = torch.arange(mask.shape[3], device=rows.device)
    first = visible[0].int().argmax(dim=-1)
    expected = (first[:, None] <= positions) & (positions <= rows[:, None])
    if (visible == expected).all():
        return [int(position) for position in first.tolist()]
    if (visible & (positions > rows[:, None])).any():
        _refuse_bidirectional(model)
    wrong = int(rows[(visible != expected).any(dim=-1).any(dim=0).int().argmax()])
    raise UserError(
        f"{model} hides keys other than the first ones from the query at {wrong}; such masks are not supported"
    )


def _verify(
    model: str,
    module: torch.nn.Module,
    states: tuple[Tensor, Tensor, Tensor],
    mask: Tensor | None,
    weights: Tensor,
    sink: Tensor | None,
    output: Tensor,
    rows: Tensor,
    **kwargs: Any,
) -> None:
    """Refuse a layer whose weights (B, H, Q, K) and output (B, K, H, D) differ from those of its own eager attention.

    Eager attention is computed in float32 from the same query, key and value ``states`` and the other arguments of the
    model. It may omit the learned ``sink`` (B, H, Q) from the weights that it returns, but not from its output. The
    output at the queries must also equal the weights times the value states.
    """
    query, key, value = (state.float() for state in states)
    ours = (group_by_kv_head(weights, value) @ value).reshape(*weights.shape[:3], -1).transpose(1, 2)  # (B, Q, H, D)
    visible = find_visible_keys(mask, torch.arange(key.shape[2], device=key.device), key.shape[2])
    added = torch.zeros_like(visible, dtype=torch.float32).masked_fill(~visible, torch.finfo(torch.float32).min)
    their_output, their_weights = find_eager_attention(model, module)(module, query, key, value, added, **kwargs)
    theirs, exact = their_weights[:, :, rows], TOLERANCE[torch.float32]
    same_weights = not is_different(weights, theirs, exact) or (
        sink is not None and not is_different(weights, theirs * (1 - sink[..., None]), exact)
    )
    if (
        not same_weights
        or is_different(ours, their_output[:, rows], exact)
        or is_different(output[:, rows], ours, TOLERANCE[states[2].dtype])
    ):
        raise UserError(
            f"{model} attends in layer {getattr(module, 'layer_idx', None)} in a way this program does not know: its "
            "output is not the product of the captured weights and the value states; choose another model"
        )


def find_eager_attention(model: str, module: torch.nn.Module) -> Callable[..., Any]:
    """The eager attention in the model's own source, which gives output (B, K, H, D) and weights (B, H, K, K)."""
    attend: Callable[..., Any] | None = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    if attend is None:
        msg = f"{model} has no eager attention in the source of its {type(module).__name__}, with which the captured "
        raise UserError(msg + "attention could be checked; choose another model")
    return attend


def is_different(ours: Tensor, theirs: Tensor, tolerance: float) -> bool:
    """Whether tensors differ by more than the tolerance, relative to the largest element; with NaN they never do."""
    if ours.shape != theirs.shape:
        return True
    return bool((ours.float() - theirs.float()).abs().max() > tolerance * theirs.float().abs().max())
