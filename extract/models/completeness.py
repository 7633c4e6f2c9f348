"""Whether a model is the one in its checkpoint: every stored tensor is read, and every tensor of the model is stored.

transformers drops tensors that the built model has no place for, and some of them without a word. What may stay unread
is decided here: caches and masks that follow from the configuration, and parts that read no text.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, NoReturn

import torch
from safetensors import safe_open
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

from extract.checkpoints import CONFIG, Checkpoint
from extract.models.checks import Shapes
from storage.errors import UserError

FREQUENCIES = re.compile(r"(^|\.)rotary_emb\.inv_freq$")
"""Frequencies of rotary embeddings, which older versions of transformers stored; they must be the model's."""

FREQUENCY_TOLERANCE = 2**-7
"""Largest relative difference of stored frequencies from the model's: the rounding of bfloat16, twice."""

DERIVED = re.compile(
    r"(^|\.)(position_ids|rotary_emb\.(cos|sin)_cached|(encoder|decoder)\.version)$"
    r"|\.(attn|attention|self_attn|self_attention)\.(masked_bias|causal_mask)$"
)
"""Tensors that follow from the configuration, and that older versions of transformers stored."""

MASKS = re.compile(r"\.(attn|attention)\.bias$")
"""Masks of GPT-2, GPT-Neo, GPT-J and GPT-NeoX, if they have four axes; otherwise biases."""

LOOKAHEAD = re.compile(r"(^|\.)mtp(_\w+)?\.")
"""Layers that predict later tokens; they read the model's output, and no layer reads theirs."""

TOWERS = re.compile(
    r"(^|\.)(visual|(vision|audio|image|speech|video)_?\w*|embed_(vision|audio)|multi_modal_projector|mm_projector)\."
)
"""Parts that read pictures or sound, whose output takes the place of some tokens; of composite models alone."""

TOWER_CONFIGS = ("vision_config", "audio_config", "speech_config")

SCALES = re.compile(r"scale|zero|qweight|absmax|quant|g_idx")
ADAPTERS = re.compile(r"lora|adapter|base_layer|modules_to_save|prompt_encoder|ia3")
LAYER = re.compile(r"(^|\.)(layers|h|blocks|blk|block)\.(\d+)\.")


@contextmanager
def report_all_tensors() -> Iterator[None]:
    """Within it, ``from_pretrained`` reports all tensors that were not read, also those that it does not mention."""
    name = "_adjust_missing_and_unexpected_keys"
    before = getattr(PreTrainedModel, name)
    setattr(PreTrainedModel, name, lambda *_: None)
    try:
        yield
    finally:
        setattr(PreTrainedModel, name, before)


def check_tensors(
    name: str, config_name: str, model: PreTrainedModel, report: Mapping[str, Any], shapes: Shapes
) -> None:
    """Refuse (``UserError``) weights that are not exactly those of the model.

    These are shapes that contradict the configuration, tensors of the model that are not stored, and stored ones that
    are neither read nor known not to matter. ``report`` is what ``from_pretrained`` reports within
    ``report_all_tensors``; ``shapes`` are those of the stored tensors by name.
    """
    if mismatched := sorted(report["mismatched_keys"]):
        first, shape, wanted = mismatched[0]
        more = f" (and {len(mismatched) - 1} more)" if len(mismatched) > 1 else ""
        raise UserError(
            f"The weights of the model '{name}' do not match its {config_name}: {first} has the shape "
            f"{list(shape)}, expected {list(wanted)}{more}; get the configuration that belongs to them"
        )
    made_up = re.compile("|".join(model._keys_to_ignore_on_load_missing or ["(?!)"]))
    if lacking := sorted(key for key in report["missing_keys"] if not made_up.search(key)):
        raise UserError(
            f"The weights of the model '{name}' lack {len(lacking)} tensors, such as {lacking[0]}; "
            "get a complete checkpoint"
        )
    if unread := sorted(key for key in report["unexpected_keys"] if not is_dispensable(model, key, shapes.get(key))):
        refuse_unread(name, config_name, model, unread)
    if twice := _find_doubled(model, shapes):
        raise UserError(
            f"The weights of the model '{name}' hold one tensor under two names, {twice[0]} and {twice[1]}; remove one"
        )


def refuse_unread(name: str, config_name: str, model: PreTrainedModel, unread: list[str]) -> NoReturn:
    """Raise the error that stored tensors are not read, with the first and what they suggest."""
    more = f" and {len(unread) - 3} more" if len(unread) > 3 else ""
    raise UserError(
        f"The weights of the model '{name}' hold tensors that {type(model).__name__} with its {config_name} does not "
        f"read, {', '.join(unread[:3])}{more}: {_explain(model, config_name, unread)}"
    )


def _explain(model: PreTrainedModel, config_name: str, unread: Iterable[str]) -> str:
    """What tensors that are not read suggest."""
    layers = model.config.get_text_config(decoder=True).num_hidden_layers
    for key in unread:
        if ADAPTERS.search(key):
            return "an adapter that is not merged into the weights; merge it"
        if SCALES.search(key):
            return f"scales of quantised weights that the {config_name} does not describe; restore quantization_config"
        if (match := LAYER.search(key)) and int(match[3]) >= layers:
            return f"layers beyond the {layers} of the {config_name}; get the configuration that belongs to them"
        if key.endswith("bias"):
            return f"biases that the {config_name} switches off; get the configuration that belongs to them"
    return "parts of another architecture; get the configuration that belongs to them"


def is_dispensable(model: PreTrainedModel, key: str, shape: tuple[int, ...] | None) -> bool:
    """Whether a stored tensor need not be read; ``shape`` is None if it is not known."""
    config: Any = model.config
    if DERIVED.search(key) or LOOKAHEAD.search(key) or FREQUENCIES.search(key):
        return True
    if MASKS.search(key) and shape is not None and len(shape) == 4:
        return True
    if TOWERS.search(key) and any(getattr(config, part, None) is not None for part in TOWER_CONFIGS):
        return True
    text = config.get_text_config(decoder=True)
    further = getattr(text, "num_nextn_predict_layers", None) or 0
    layer = LAYER.search(key)
    return layer is not None and 0 <= int(layer[3]) - text.num_hidden_layers < further


def check_frequencies(checkpoint: Checkpoint, model: PreTrainedModel, stored: Iterable[str]) -> None:
    """Refuse (``UserError``) stored rotary frequencies that are not those of the model, if it does not scale them.

    They show what the model was trained with where its configuration has lost the base.
    """
    rope = getattr(model.config.get_text_config(decoder=True), "rope_parameters", None) or {}
    if rope.get("rope_type", "default") != "default":
        return
    own = [buffer.float().cpu() for key, buffer in model.named_buffers() if key.endswith("inv_freq")]
    for key in filter(FREQUENCIES.search, stored):
        there = _read_tensor(checkpoint, key).float()
        if not any(there.shape == mine.shape and torch.allclose(there, mine, FREQUENCY_TOLERANCE, 0) for mine in own):
            checkpoint.files.refuse(
                f"holds rotary frequencies that are not those of its {CONFIG} (rope_theta), {key}; "
                "get the configuration that belongs to them"
            )


def _read_tensor(checkpoint: Checkpoint, key: str) -> torch.Tensor:
    for name in checkpoint.weights:
        with safe_open(checkpoint.files.path / name, framework="pt") as opened:
            if key in opened.keys():  # noqa: SIM118 (not a mapping)
                tensor: torch.Tensor = opened.get_tensor(key)
                return tensor
    raise KeyError(key)


def _find_doubled(model: PreTrainedModel, stored: Iterable[str]) -> tuple[str, str] | None:
    """The first two stored names that are read as the same tensor, of which transformers reads one."""
    mapping = deepcopy(get_model_conversion_mapping(model, None, getattr(model, "hf_quantizer", None)))
    renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
    converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]
    own: dict[str, Any] = model.state_dict()
    taken: dict[str, str] = {}
    for key in sorted(stored):
        read_as, of_several = rename_source_key(key, renamings, converters, model.base_model_prefix, own)
        if of_several is None and read_as in own and taken.setdefault(read_as, key) != key:
            return taken[read_as], key
    return None
