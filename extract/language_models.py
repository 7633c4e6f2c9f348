"""The causal language model in what is given: without its wrapper, with both halves, and with enough positions."""

import re
from typing import Any, NoReturn

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from extract.hub import summarise_error
from extract.tensors import count_positions
from storage.errors import UserError

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
    """The model of transformers inside a wrapper of another library; ``check_wrapper`` compares both.

    ``UserError`` if there is none inside, or if adapters give attention further keys inside it.
    """
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


def check_both_halves(config: PreTrainedConfig, name: str) -> None:
    """Refuse an encoder–decoder (``UserError``), whose decoder reads more than its text."""
    if getattr(config, "is_encoder_decoder", False):
        refuse_decoder(name)


def check_modules(model: PreTrainedModel) -> None:
    """Refuse a decoder (``UserError``) that attends to an encoder's states, which a text alone does not give."""
    check_both_halves(model.config, type(model).__name__)
    if any(OTHER_HALF.intersection(name.split(".")[-1:]) for name, _ in model.named_modules()):
        refuse_decoder(type(model).__name__)


def refuse_decoder(name: str) -> NoReturn:
    """Raise the error that a model is half of an encoder–decoder."""
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
