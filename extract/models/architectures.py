"""Kinds of a model's layers, its attention implementations, and what is no causal language model by itself."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, RLock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from extract.hub import summarise_error
from extract.models.checks import count_positions
from storage.errors import UserError

OTHER_KINDS = frozenset({"conv", "linear_attention", "mamba", "mlp", "moe", "recurrent"})
"""Kinds of layers without softmax attention, as configurations name them."""

SLIDING = "sliding_attention"

_OLD_NAMES = {"attention": "full_attention", "global": "full_attention", "local": SLIDING}


def list_layer_kinds(config: PreTrainedConfig) -> tuple[str, ...]:
    """The kind of each layer, such as full_attention, sliding_attention or linear_attention.

    If the configuration does not list single layers, all are full_attention, or sliding_attention if it has a window.
    """
    text: Any = config.get_text_config(decoder=True)
    layers: int = text.num_hidden_layers
    for name in ("layer_types", "layers_block_type", "attention_layers"):
        kinds = getattr(text, name, None)
        if kinds is not None and len(kinds) == layers:
            return tuple(_OLD_NAMES.get(kind, kind) for kind in kinds)
    kind = SLIDING if getattr(text, "sliding_window", None) else "full_attention"
    return (kind,) * layers


def find_first_keys(config: PreTrainedConfig, query: int) -> list[int]:
    """The first key that a query at a position sees in each layer, if only sliding windows hide keys from it."""
    text: Any = config.get_text_config(decoder=True)
    window = getattr(text, "window_size", None) or getattr(text, "sliding_window", None)
    hidden = 0 if window is None else max(0, query + 1 - window)
    return [hidden if kind == SLIDING else 0 for kind in list_layer_kinds(config)]


_locks: "WeakKeyDictionary[nn.Module, RLock]" = WeakKeyDictionary()
_changing = Lock()
"""Held while locks are made, and while the implementations and what is known of them differ."""

_own: dict[int, str | None] = {}
"""Own implementations of the configurations that have another one now, by the id of the configuration."""


def lock_model(model: PreTrainedModel) -> "RLock":
    """The lock of a model: whoever changes how it computes holds it, and may take it again."""
    with _changing:
        return _locks.setdefault(model, RLock())


@contextmanager
def restore_attention(model: PreTrainedModel) -> Iterator[None]:
    """Restore the attention implementations of the model and all its parts at the end, however the context is left.

    Other threads wait for the context of the same model to end.
    """
    with lock_model(model):
        before = [(config, config._attn_implementation) for config in _list_configs(model)]
        with _changing:
            mine = {id(config): own for config, own in before if id(config) not in _own}
            _own.update(mine)
        try:
            yield
        finally:
            with _changing:
                for config, own in before:  # one passes its implementation on to its parts, which follow it
                    config._attn_implementation = own
                for key in mine:
                    del _own[key]


def find_own_attention(config: Any) -> Any:
    """The implementation that a configuration has outside ``restore_attention``."""
    with _changing:
        return _own.get(id(config), config._attn_implementation)


def _list_configs(model: PreTrainedModel) -> list[PreTrainedConfig]:
    """The configurations of the model and its parts, each once, before those of its own parts."""
    waiting = [module.config for module in model.modules() if isinstance(module, PreTrainedModel)]
    configs: dict[int, PreTrainedConfig] = {}
    while waiting:
        config = waiting.pop(0)
        configs.setdefault(id(config), config)
        parts = (getattr(config, name, None) for name in config.sub_configs)
        waiting += [part for part in parts if part is not None and id(part) not in configs]
    return list(configs.values())


OTHER_HALF = frozenset(
    {"encoder_attn", "cross_attn", "crossattention", "cross_attention", "EncDecAttention", "encoder_decoder_attention"}
)
"""Names of the attention of a decoder to the states of an encoder."""

ADDED_KEYS = re.compile(r"(^|\.)(adaption_prompt|prompt_encoder|prefix_encoder)\b")
"""Parameters of adapters that give attention further keys, beside the softmax over those of the text."""

TABLES = re.compile(r"(^|[._])(wpe|pos|position|positions|positional)([._]|$)")
"""Names of learned tables of positions."""

TOLERANCE = 1e-3
"""Largest difference of a wrapper's numbers from those of the model inside, relative to the largest number."""


def unwrap(model: torch.nn.Module) -> PreTrainedModel:
    """The model of transformers inside a wrapper of another library; ``check_wrapper`` compares both."""
    name = type(model).__name__
    inner = next((module for module in model.modules() if isinstance(module, PreTrainedModel)), None)
    if inner is None:
        raise UserError(f"{name} has no model of transformers inside; give one that transformers has loaded")
    if added := next((key for key, _ in inner.named_parameters() if ADDED_KEYS.search(key)), None):
        raise UserError(
            f"{name} has learned keys beside those of the text ({added}), which cannot be captured; give its base"
        )
    return inner


@torch.inference_mode()
def check_wrapper(wrapper: torch.nn.Module, inner: PreTrainedModel, input_ids: Tensor) -> None:
    """Refuse a wrapper (``UserError``) that computes something else than the model inside from tokens (1, K).

    An adapter of weights, such as LoRA, changes the model inside as well; a learned prompt or prefix does not.
    """
    if wrapper is inner:
        return
    name, given = type(wrapper).__name__, input_ids.to(inner.device)
    try:
        outer, own = (model(input_ids=given)[0].float() for model in (wrapper, inner))
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(
            f"{name} cannot read plain tokens: {summarise_error(error)}; give the model inside it"
        ) from error
    if outer.shape != own.shape or (outer - own).abs().max() > TOLERANCE * own.abs().max():
        raise UserError(
            f"{name} computes other numbers than the {type(inner).__name__} inside it, as with a learned prompt or "
            "prefix, which is no part of the text; give the model inside it to measure that one"
        )


def check_both_halves(config: PreTrainedConfig, name: str, model: PreTrainedModel | None = None) -> None:
    """Refuse an encoder–decoder (``UserError``) or its decoder, which attends to more than its text."""
    parts = {part.rpartition(".")[-1] for part, _ in model.named_modules()} if model else set()
    if getattr(config, "is_encoder_decoder", False) or OTHER_HALF & parts:
        raise UserError(
            f"{name} is an encoder–decoder or its decoder alone, which attends to the states of an encoder that a text "
            "does not give; choose a model that only decodes, such as gpt2"
        )


def find_most_tokens(model: PreTrainedModel) -> int | None:
    """Largest number of tokens that a model reads, from its configuration and its learned tables; None if unlimited."""
    text: Any = model.config.get_text_config(decoder=True)
    rows = [
        module.num_embeddings
        for name, module in model.base_model.named_modules()
        if isinstance(module, torch.nn.Embedding) and TABLES.search(name)
    ]
    known = [most for most in (count_positions(text.to_dict()), *rows) if most is not None]
    return min(known, default=None)
