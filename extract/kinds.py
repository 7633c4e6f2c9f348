"""Kinds of a model's layers, and the keys that their windows show, from its configuration alone."""

from typing import Any

from transformers import PreTrainedConfig

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
