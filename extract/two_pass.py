"""Capture from models that do not call a replaceable attention function: fill the cache, then run each query alone.

Older models of transformers compute attention in their own code, but can return its weights: for one query after a
filled cache these are one row. Value states are read from the cache. Holds ``examine``, which finds out whether this
works for a model, and ``read``, which does it for a batch. Models that call ``AttentionInterface`` are captured by
``extract.capture``.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from extract.implementations import restore_attention
from extract.kinds import find_first_keys
from extract.models import is_out_of_memory
from storage.errors import UserError
from storage.zarr.arrays import LayerSize

TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-1}
"""Largest distance that ``examine`` accepts, by the type the model computes in: of rows of weights from those of one
plain forward pass (total variation, mean over the heads of a layer), and of hidden states from the usual ones
(relative). Rounding errors add up over the layers."""

MODEL_ERRORS = (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)
"""Errors of models that cannot read a plain sequence, or cannot read one in two passes."""

_NO_WEIGHTS = "returns no attention weights of its layers"
_NO_CACHE = "keeps no cache of keys and values after which single queries can be run"


def examine(model: PreTrainedModel, input_ids: Tensor, queries: Sequence[int]) -> tuple[list[LayerSize], torch.dtype]:
    """Find the sizes of all layers and the type of their value states on a short sequence (1, K).

    Raises
    ------
    UserError
        If the model returns no weights or keeps no cache after which single queries can be run, if its eager attention
        differs from its usual one, or if the rows of the queries differ from those of one plain forward pass.
        Out-of-memory errors are passed on.
    """
    with _translate_errors(model, _NO_WEIGHTS):
        whole = _run_plain(model, input_ids)
    with _translate_errors(model, _NO_CACHE):
        rows, cache = _read_rows(model, input_ids, queries)
        values = [_read_values(model, cache, layer) for layer in range(len(whole))]
    for layer, weights in enumerate(whole):
        for query in queries:
            _check_row(model, layer, rows[query][layer][:, :, 0].to(weights.device), weights[:, :, query])
    sizes = [LayerSize(w.shape[1], v.shape[1], v.shape[3]) for w, v in zip(whole, values, strict=True)]
    return sizes, values[0].dtype


def read(
    model: PreTrainedModel,
    input_ids: Tensor,
    queries: Sequence[int],
    put: Callable[[int, Tensor, Tensor], None],
) -> list[list[int]]:
    """Read a batch (B, K); ``put`` gets each layer's weights, float32 (B, Q, H, K), and value states (B, Hkv, K, D).

    Returns
    -------
    list of list of int
        By layer, the first key that each query sees according to the configuration.

    Raises
    ------
    UserError
        If a layer gives weight to a key that is hidden according to the configuration.
    """
    rows, cache = _read_rows(model, input_ids, queries)
    keys = input_ids.shape[1]
    first = [find_first_keys(model.config, query) for query in queries]
    for layer in range(len(rows[queries[0]])):
        example = rows[queries[0]][layer]
        weights = torch.zeros(len(example), len(queries), example.shape[1], keys, device=example.device)
        for q, query in enumerate(queries):
            weights[:, q, :, : query + 1] = rows[query][layer][:, :, 0].float()
            _check_window(model, layer, query, weights[:, q], first[q][layer])
        put(layer, weights, _read_values(model, cache, layer))
    return [list(of_layer) for of_layer in zip(*first, strict=True)]


@contextmanager
def use_eager(model: PreTrainedModel) -> Iterator[None]:
    """Make the model compute eager attention inside the context; restore its own implementation afterwards."""
    with restore_attention(model):
        model.config._attn_implementation = "eager"  # set_attn_implementation has no effect on these models
        yield


def _read_rows(
    model: PreTrainedModel, input_ids: Tensor, queries: Sequence[int]
) -> tuple[dict[int, tuple[Tensor, ...]], DynamicCache]:
    """By query, the weights of each layer (B, H, 1, query + 1); and the cache of all keys."""
    cache = DynamicCache()  # without the configuration: with it, layers with a window would drop the first keys
    rows: dict[int, tuple[Tensor, ...]] = {}
    done = 0
    with torch.inference_mode():
        for query in sorted(set(queries)):
            _fill(model, input_ids[:, done:query], cache)
            with use_eager(model):
                rows[query] = _find_weights(model, _read_token(model, input_ids[:, query : query + 1], cache))
            done = query + 1
        _fill(model, input_ids[:, done:], cache)
    return rows, cache


def _fill(model: PreTrainedModel, input_ids: Tensor, cache: DynamicCache) -> None:
    """Let the model read tokens into the cache."""
    if input_ids.shape[1]:
        model.base_model(input_ids=input_ids, past_key_values=cache, use_cache=True)


def _read_token(model: PreTrainedModel, input_ids: Tensor, cache: DynamicCache) -> Any:
    """The model's output for one token (B, 1) after those in the cache, with attention weights."""
    return model.base_model(input_ids=input_ids, past_key_values=cache, use_cache=True, output_attentions=True)


def _find_weights(model: PreTrainedModel, output: Any) -> tuple[Tensor, ...]:
    """The attention weights of every layer in a model's output.

    Raises
    ------
    UserError
        If a layer returned none.
    """
    attentions = getattr(output, "attentions", None) or ()
    layers = model.config.get_text_config(decoder=True).num_hidden_layers
    if len(attentions) != layers or any(weights is None for weights in attentions):
        _refuse(model, _NO_WEIGHTS, None)
    return tuple(attentions)


def _read_values(model: PreTrainedModel, cache: DynamicCache, layer: int) -> Tensor:
    """The value states (B, Hkv, K, D) of a layer in the cache, once per KV head even if stored once per query head."""
    values = getattr(cache.layers[layer], "values", None)
    if not isinstance(values, Tensor):
        msg = f"layer {layer} keeps no value states"
        raise TypeError(msg)
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
        msg = (
            f"{type(model).__name__} computes different hidden states with eager attention, which alone returns its "
            "weights, than with its usual attention; choose another model"
        )
        raise UserError(msg)
    return weights


def _check_row(model: PreTrainedModel, layer: int, row: Tensor, plain: Tensor) -> None:
    """Refuse weights of a query (B, H, query + 1) that differ from those of one forward pass (B, H, K).

    Numbers that are not finite are let through; they are found elsewhere.
    """
    padded = torch.zeros_like(plain, dtype=torch.float32)
    padded[..., : row.shape[-1]] = row
    distance = (padded - plain.float()).abs().sum(-1).mean() / 2
    if distance > TOLERANCE[plain.dtype]:
        msg = (
            f"{type(model).__name__} attends in layer {layer} in a way this program does not know: a single query "
            "after a filled cache weighs the keys differently than in one forward pass; choose another model"
        )
        raise UserError(msg)


def _check_window(model: PreTrainedModel, layer: int, query: int, weights: Tensor, first: int) -> None:
    """Refuse weights (B, H, K) that are not 0 before the window; weights inside it may be 0 by underflow."""
    if (weights[..., :first] > 0).any():
        msg = (
            f"{type(model).__name__} lets the query at {query} see other keys in layer {layer} than its configuration "
            f"says (those from {first} on); choose another model"
        )
        raise UserError(msg)


@contextmanager
def _translate_errors(model: PreTrainedModel, lacking: str) -> Iterator[None]:
    """Raise an error of the model as a refusal for what it is ``lacking``, unless memory ran out."""
    try:
        yield
    except MODEL_ERRORS as error:
        if is_out_of_memory(error):
            raise
        _refuse(model, lacking, error)


def _refuse(model: PreTrainedModel, lacking: str, error: Exception | None) -> NoReturn:
    """Refuse a model whose attention cannot be read."""
    msg = (
        f"{type(model).__name__} has no softmax attention that can be read: it does not call transformers' "
        f"AttentionInterface and {lacking}; choose another model"
    )
    raise UserError(msg) from error
