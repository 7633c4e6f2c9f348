"""Capture from models that do not call a replaceable attention function, which read a sequence in blocks of tokens.

Older models of transformers compute attention in their own code, but can return its weights: for a block of queries
after a filled cache these are some rows. Value states are read from the cache. Holds ``examine``, which finds out
whether this works for a model, and ``read``, which does it for a batch. Models that call ``AttentionInterface`` are
captured by ``extract.capture.one_pass``. ``read_rows`` hands over the weights of every query.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache, PreTrainedModel

from extract.capture.attention import EveryQuery, Patterns
from extract.models.architectures import find_first_keys, restore_attention
from extract.models.loading import MODEL_ERRORS, is_out_of_memory
from extract.stopping import check_stopped
from geometry.patterns import HIDDEN, count_rows, sum_patterns
from storage.errors import UserError
from storage.zarr.arrays import LayerSize

BLOCK_BYTES = 2**27
"""Bytes of the weights of a block of queries in all layers, in float32."""

TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-1}
"""Largest distance that ``examine`` accepts, by the type the model computes in: of rows of weights from those of one
plain forward pass (total variation, mean over the heads of a layer), and of hidden states from the usual ones
(relative). Rounding errors add up over the layers."""

_NO_WEIGHTS = "returns no attention weights of its layers"
_NO_CACHE = "keeps no cache of keys and values after which it can read on"


def examine(model: PreTrainedModel, input_ids: Tensor) -> tuple[list[LayerSize], torch.dtype]:
    """Find the sizes of all layers and the type of their value states on a short sequence (1, K).

    Out-of-memory errors are passed on.
    """
    with _translate_errors(model, _NO_WEIGHTS):
        whole = _run_plain(model, input_ids)
    blocks: dict[int, tuple[Tensor, ...]] = {}
    with _translate_errors(model, _NO_CACHE):
        cache = _read_blocks(
            model, input_ids, -(-input_ids.shape[1] // 2), lambda first, weights, _: blocks.update({first: weights})
        )
        values = [_read_values(model, cache, layer) for layer in range(len(whole))]
    for first, of_layers in blocks.items():
        for layer, weights in enumerate(whole):
            _check_rows(model, layer, of_layers[layer], weights[:, :, first : first + of_layers[layer].shape[2]])
    sizes = [LayerSize(w.shape[1], v.shape[1], v.shape[3]) for w, v in zip(whole, values, strict=True)]
    return sizes, values[0].dtype


def read(
    model: PreTrainedModel,
    layers: Sequence[LayerSize],
    input_ids: Tensor,
    queries: Sequence[int],
    put: Callable[..., None],
    *,
    every_query: bool = False,
) -> list[list[int]]:
    """Read a batch (B, K) in blocks of queries; ``put`` gets each layer's captured tensors as ``Buffers.put`` does.

    Returns, by layer, the first key that each query sees according to the configuration. The weights of a block in all
    layers are in memory at a time. ``every_query``: whether the measures of every query are among the tensors.
    """
    keys, device = input_ids.shape[1], input_ids.device
    first_keys = torch.tensor([find_first_keys(model.config, query) for query in range(keys)], device=device)  # (K, L)
    seen = [_SeenRows(model, layer, input_ids, queries, first) for layer, first in enumerate(first_keys.T)]
    if every_query:
        for one, size in zip(seen, layers, strict=True):
            one.every = EveryQuery.begin(len(input_ids), size.heads, one.first_keys.cpu().numpy())

    def add_block(first: int, of_layers: tuple[Tensor, ...], cache: DynamicCache) -> None:
        for one, weights in zip(seen, of_layers, strict=True):
            one.add(first, weights.float().to(device), cache)

    cache = _read_blocks(model, input_ids, _count_block_rows(layers, input_ids), add_block)
    for layer, one in enumerate(seen):
        weights = torch.stack([one.rows[query] for query in queries], dim=1)
        received = one.received / (keys - one.positions)
        every = one.every.tensors if one.every else None
        put(layer, weights, _read_values(model, cache, layer), None, received, one.average_patterns(), every)
    return first_keys[list(queries)].T.tolist()


def read_rows(
    model: PreTrainedModel,
    layers: Sequence[LayerSize],
    input_ids: Tensor,
    take: Callable[[int, Tensor, Tensor], None],
) -> None:
    """Read one sequence (1, K) in blocks of queries; ``take`` gets each layer's as ``extract.effects.rows.Take``."""

    def take_block(first: int, of_layers: tuple[Tensor, ...], _: DynamicCache) -> None:
        for layer, weights in enumerate(of_layers):
            take(layer, torch.arange(first, weights.shape[-1], device=weights.device), weights[0].float())

    _read_blocks(model, input_ids, _count_block_rows(layers, input_ids), take_block)


class _SeenRows:
    """What blocks of queries of a batch (B, K) look at in one layer: the rows of some queries, and sums over all."""

    every: EveryQuery | None = None
    """The measures of every query read so far; None if they are not wanted."""

    def __init__(
        self, model: PreTrainedModel, layer: int, tokens: Tensor, queries: Sequence[int], first_keys: Tensor
    ) -> None:
        self.model, self.layer, self.tokens = model, layer, tokens
        self.queries, self.first_keys = queries, first_keys
        self.positions = torch.arange(tokens.shape[1], device=tokens.device)
        self.rows: dict[int, Tensor] = {}
        """By query, weights (B, H, K)."""
        self.sums = torch.zeros(1, device=tokens.device)
        """Of the patterns of the heads, and of uniform weights, (B, H + 1, P)."""
        self.received = torch.zeros(1, device=tokens.device)
        """Sums of the weights that each key gets, (B, H, K)."""

    def add(self, first: int, weights: Tensor, cache: DynamicCache) -> None:
        """Add the weights (B, H, R, end) of the block of queries from ``first`` on."""
        end = weights.shape[-1]
        rows, seen, after = self.positions[first:end], self.positions[:end], (0, len(self.positions) - end)
        visible = (seen >= self.first_keys[first:end, None]) & (seen <= rows[:, None])
        _check_window(self.model, self.layer, first, weights, visible)
        for query in (query for query in self.queries if first <= query < end):
            self.rows[query] = pad(weights[:, :, query - first], after)
        self.received = self.received + pad(weights.sum(dim=2), after)
        later = slice(1 if first == 0 else 0, None)  # the first query sees one key only
        if not len(rows[later]):
            return
        uniform = torch.zeros(visible.shape, device=rows.device).masked_fill(~visible, HIDDEN)[None, later]
        texts = zip(weights[:, :, later].log().clamp(min=HIDDEN), self.tokens[:, :end], strict=True)
        sums = [sum_patterns(torch.cat([heads, uniform]), tokens, rows[later]) for heads, tokens in texts]
        self.sums = self.sums + torch.stack(sums)
        if self.every is not None:
            value = _read_values(self.model, cache, self.layer)
            for text, of_text in enumerate(weights[:, :, later]):
                self.every.add(value, text, of_text.clone(memory_format=torch.contiguous_format), rows[later])

    def average_patterns(self) -> Patterns:
        """What the heads look at."""
        counts = count_rows(self.tokens, (self.first_keys == 0)[None])
        return self.sums[:, :-1] / counts[:, None], self.sums[:, -1] / counts, counts


@contextmanager
def use_eager(model: PreTrainedModel) -> Iterator[None]:
    """Make the model compute eager attention inside the context; restore its own implementation afterwards."""
    with restore_attention(model):
        model.config._attn_implementation = "eager"  # set_attn_implementation has no effect on these models
        yield


def _count_block_rows(layers: Sequence[LayerSize], input_ids: Tensor) -> int:
    one = sum(size.heads for size in layers) * input_ids.numel() * torch.float32.itemsize
    return max(1, BLOCK_BYTES // one)


def _read_blocks(
    model: PreTrainedModel, input_ids: Tensor, rows: int, take: Callable[[int, tuple[Tensor, ...], DynamicCache], None]
) -> DynamicCache:
    """Let the model read blocks of tokens; ``take`` gets the first position of each, its weights in every layer, and
    the cache.

    Returns the cache of all keys.
    """
    cache = DynamicCache()  # without the configuration: with it, layers with a window would drop the first keys
    for first in range(0, input_ids.shape[1], rows):
        check_stopped()
        with torch.inference_mode(), use_eager(model):
            weights = _find_weights(model, _read_block(model, input_ids[:, first : first + rows], cache))
            take(first, weights, cache)
    return cache


def _read_block(model: PreTrainedModel, input_ids: Tensor, cache: DynamicCache) -> Any:
    """The model's output for tokens (B, R) after those in the cache, with attention weights."""
    return model.base_model(input_ids=input_ids, past_key_values=cache, use_cache=True, output_attentions=True)


def _find_weights(model: PreTrainedModel, output: Any) -> tuple[Tensor, ...]:
    """The attention weights of every layer in a model's output."""
    attentions = getattr(output, "attentions", None) or ()
    layers = model.config.get_text_config(decoder=True).num_hidden_layers
    if len(attentions) != layers or any(weights is None for weights in attentions):
        _refuse(model, _NO_WEIGHTS, None)
    return tuple(attentions)


def _read_values(model: PreTrainedModel, cache: DynamicCache, layer: int) -> Tensor:
    """The value states (B, Hkv, K, D) of a layer in the cache, once per KV head even if stored once per query head."""
    values = getattr(cache.layers[layer], "values", None)
    if not isinstance(values, Tensor):
        raise TypeError(f"layer {layer} keeps no value states")
    kv_heads: int = getattr(model.config, "num_kv_heads", values.shape[1])
    if kv_heads < values.shape[1]:
        grouped = values.unflatten(1, (kv_heads, -1))
        if torch.allclose(grouped, grouped[:, :, :1], rtol=0, atol=0, equal_nan=True):
            values = grouped[:, :, 0]
    return values


def _run_plain(model: PreTrainedModel, input_ids: Tensor) -> tuple[Tensor, ...]:
    """The weights (B, H, K, K) of every layer from an eager pass, whose hidden states must be the usual ones."""
    with torch.inference_mode():
        usual = model.base_model(input_ids=input_ids, use_cache=False)[0]
        with use_eager(model):
            output = model.base_model(input_ids=input_ids, use_cache=False, output_attentions=True)
    weights, states = _find_weights(model, output), output[0]
    if (states - usual).float().norm() > TOLERANCE[states.dtype] * usual.float().norm():
        raise UserError(
            f"{type(model).__name__} computes different hidden states with eager attention, which alone returns its "
            "weights, than with its usual attention; choose another model"
        )
    return weights


def _check_rows(model: PreTrainedModel, layer: int, block: Tensor, plain: Tensor) -> None:
    """Refuse weights of a block (B, H, R, end) that differ from those of one forward pass (B, H, R, K).

    Numbers that are not finite are let through; they are found elsewhere.
    """
    padded = pad(block.float().to(plain.device), (0, plain.shape[-1] - block.shape[-1]))
    distance = (padded - plain.float()).abs().sum(-1).mean(1).max() / 2
    if distance > TOLERANCE[plain.dtype]:
        raise UserError(
            f"{type(model).__name__} attends in layer {layer} in a way this program does not know: queries "
            "after a filled cache weigh the keys differently than in one forward pass; choose another model"
        )


def _check_window(model: PreTrainedModel, layer: int, first: int, weights: Tensor, visible: Tensor) -> None:
    """Refuse weights (B, H, R, K) of keys that are not visible, (R, K); those of visible keys may be 0 by underflow."""
    hidden = (weights.masked_fill(visible, 0) > 0).any(dim=-1).flatten(0, 1).any(dim=0)
    if hidden.any():
        query = first + int(hidden.int().argmax())
        raise UserError(
            f"{type(model).__name__} lets the query at {query} see other keys in layer {layer} than its configuration "
            "says; choose another model"
        )


@contextmanager
def _translate_errors(model: PreTrainedModel, lacking: str) -> Iterator[None]:
    try:
        yield
    except MODEL_ERRORS as error:
        if is_out_of_memory(error):
            raise
        _refuse(model, lacking, error)


def _refuse(model: PreTrainedModel, lacking: str, error: Exception | None) -> NoReturn:
    raise UserError(
        f"{type(model).__name__} has no softmax attention that can be read: it does not call transformers' "
        f"AttentionInterface and {lacking}; choose another model"
    ) from error
