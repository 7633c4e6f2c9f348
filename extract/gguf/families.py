"""What the metadata of a GGUF file means for each architecture: every entry becomes a field, or the file is refused.

transformers' reader skips entries that it does not know, and then builds another model without a word. Here each family
says which fields of its configuration follow from which entries, what an absent entry means, and what GGUF leaves out.
An entry of the architecture that no field follows from must have the value that changes nothing. Importing this module
loads neither torch nor transformers.

Entries: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Meanings of absent entries and of what GGUF leaves
out are those of llama.cpp (``src/llama-model.cpp``, ``load_hparams``).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import isclose
from typing import Any

from extract.gguf.header import Header, HeaderError

_ZERO = (
    "activation_sparsity_scale attention.clamp_kqv attention.max_alibi_bias attention.scale "
    "attention.shared_kv_layers attention.sliding_window attention.sliding_window_pattern "
    "attention.temperature_length attn_logit_softcapping embedding_length_per_layer_input expert_count "
    "expert_shared_count expert_used_count final_logit_softcapping leading_dense_block_count nextn_predict_layers "
    "pooling_type rope.scaling.yarn_ext_factor "
)
_ZERO_OR_ONE = (
    "attention.output_scale attention.temperature_scale embedding_scale expert_group_count "
    "expert_group_used_count expert_weights_scale logit_scale residual_scale rope.scale_linear "
    "rope.scaling.factor "
)
WITHOUT_EFFECT: Mapping[str, tuple[object, ...]] = {
    **dict.fromkeys(_ZERO.split(), (0,)),
    **dict.fromkeys(_ZERO_OR_ONE.split(), (0, 1)),
    **dict.fromkeys(("rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"), (1,)),
    "attention.causal": (True,),
    "rope.scaling.type": ("none",),
    "tensor_data_layout": ("Meta AI original pth", "jploski"),
}
"""Entries, after the architecture's name, and the values with which they change nothing."""

WITHOUT_SCALING = ("rope.scaling.finetuned", "rope.scaling.original_context_length")
"""Entries that describe a scaling of positions, and mean nothing where there is none."""

OF_A_MODEL = re.compile(r"[^.]+\.(attention|rope|ssm)\.|[^.]+\.(block_count|context_length|embedding_length)$")
"""Entries that begin with the name of an architecture."""

ABSENT = object()
"""The value of an entry that a file must have."""

SIZES = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
}
RMS = {**SIZES, "attention.layer_norm_rms_epsilon": "rms_norm_eps"}
EXPERTS = {
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
}
WINDOW = {"attention.sliding_window": "sliding_window"}

Fields = dict[str, Any]


class _Entries:
    """The entries of a file's architecture, of which each must be read."""

    def __init__(self, header: Header) -> None:
        self.architecture: str = header.metadata["general.architecture"]
        prefix = f"{self.architecture}."
        self.values = {
            name.removeprefix(prefix): value for name, value in header.metadata.items() if name.startswith(prefix)
        }
        foreign = (name for name in header.metadata if OF_A_MODEL.match(name) and not name.startswith(prefix))
        if name := next(foreign, None):
            raise HeaderError(
                f"has {name}, an entry of another architecture than its own, {self.architecture}; get the file again"
            )
        self.tensors = header.tensors
        self._unread = dict(self.values)

    def read(self, name: str, absent: object = ABSENT) -> Any:
        """The value of an entry, one for all layers; ``absent`` if there is none, which is an error by default."""
        value = self.take(name, absent)
        if isinstance(value, list) and value and all(one == value[0] for one in value):
            return value[0]
        if isinstance(value, list):
            self.refuse(name, "the same in all layers")
        if isinstance(value, str) and name != "rope.scaling.type":
            self.refuse(name, "a number")
        return value

    def read_count(self, name: str) -> int:
        """The value of an entry that counts something."""
        value = self.read(name)
        if type(value) is not int or value < 1:
            self.refuse(name, "a number from 1 on")
        return int(value)

    def take(self, name: str, absent: object = ABSENT) -> Any:
        """As ``read``, but a value of any kind."""
        self._unread.pop(name, None)
        value = self.values.get(name, absent)
        if value is ABSENT:
            raise HeaderError(
                f"has no {self.architecture}.{name}, without which the model is not known; measure its safetensors"
            )
        return value

    def expect(self, name: str, value: object, absent: object = None) -> None:
        """Refuse another value of an entry than the one that the model has; absent, it is as given here."""
        stated = self.read(name, value if absent is None else absent)
        if stated != value and not (isinstance(value, float) and isclose(stated, value, rel_tol=1e-6)):
            self.refuse(name, value)

    def refuse(self, name: str, value: object) -> None:
        """Raise the error that an entry has another value than the model that would be built."""
        shown = str(self.values.get(name))[:60]
        raise HeaderError(
            f"says {self.architecture}.{name} = {shown}, but the model that transformers builds has {value}; "
            "measure its safetensors"
        )

    def check_rest(self) -> None:
        """Refuse entries that were not read and change something, or that are not known."""
        for name, value in self._unread.items():
            if name in WITHOUT_SCALING:
                continue
            if name not in WITHOUT_EFFECT:
                self.refuse(name, "nothing that reads it")
            if value not in WITHOUT_EFFECT[name]:
                self.refuse(name, f"{WITHOUT_EFFECT[name][-1]} in its place")

    def has(self, suffix: str) -> bool:
        """Whether a tensor of a layer has this name."""
        return any(name.startswith("blk.") and name.endswith(f".{suffix}") for name in self.tensors)


@dataclass(frozen=True)
class Family:
    """How the configuration of an architecture follows from entries and tensors."""

    model_type: str
    """The name in transformers."""
    fields: Mapping[str, str]
    """Fields of the configuration by entry."""
    rotary: bool = True
    """Whether positions are rotary embeddings."""
    partial: bool = False
    """Whether the rotation may be of a part of each head."""
    own_head_size: bool = True
    """Whether the heads may have another size than the width divided by their number."""
    biases: Mapping[str, str] = field(default_factory=dict)
    """Fields that say whether there are biases, and the tensor that shows it."""
    fixed: Mapping[str, object] = field(default_factory=dict)
    """Fields that GGUF leaves out, as llama.cpp computes the architecture."""
    absent: Mapping[str, object] = field(default_factory=dict)
    """What absent entries mean."""
    complete: Callable[[_Entries, Fields], None] = lambda *_: None
    """Adds to the fields what follows in another way."""


def read_fields(header: Header) -> tuple[str, Fields]:
    """The name in transformers and the fields of the configuration of a file whose architecture is in ``FAMILIES``.

    ``HeaderError`` if an entry contradicts the architecture as transformers computes it, is not read, or is needed and
    absent.
    """
    entries = _Entries(header)
    family = FAMILIES[entries.architecture]
    fields: Fields = {
        name: entries.read(entry, family.absent.get(entry, ABSENT)) for entry, name in family.fields.items()
    }
    fields |= family.fixed
    fields |= {name: entries.has(tensor) for name, tensor in family.biases.items()}
    heads, width = entries.read_count("attention.head_count"), entries.read_count("embedding_length")
    size = entries.read("attention.key_length", width // max(heads, 1))
    if family.own_head_size:
        fields["head_dim"] = size
    elif size * heads != width:
        entries.refuse("attention.key_length", width // max(heads, 1))
    entries.expect("attention.value_length", size)
    if family.rotary:
        base, rotated = entries.read("rope.freq_base", 10000.0), entries.read("rope.dimension_count", size)
        fields["rope_parameters"] = {"rope_type": "default", "rope_theta": float(base)}
        if family.partial:
            fields["rope_parameters"]["partial_rotary_factor"] = rotated / size
        elif rotated != size:
            entries.refuse("rope.dimension_count", size)
    fields["vocab_size"] = _count_tokens(header)
    entries.expect("vocab_size", fields["vocab_size"])
    fields["tie_word_embeddings"] = "output.weight" not in header.tensors
    family.complete(entries, fields)
    entries.check_rest()
    return family.model_type, fields


def check_entries(header: Header) -> None:
    """Refuse (``HeaderError``) entries that the built model would not have; other architectures are let through."""
    architecture = header.metadata["general.architecture"]
    if architecture in FAMILIES:
        read_fields(header)
    elif architecture in NEWER:
        entries = _Entries(header)
        for name in NEWER[architecture]:
            entries.take(name)
        if architecture == "qwen35":  # which leaves these layers out
            entries.take("nextn_predict_layers", 0)
        size = entries.values.get(
            "attention.key_length", entries.take("embedding_length") // entries.take("attention.head_count")
        )
        entries.expect("attention.key_length", size)
        entries.expect("attention.value_length", size)
        if "rope.dimension_count" not in NEWER[architecture]:
            entries.expect("rope.dimension_count", size)
        entries.expect("vocab_size", _count_tokens(header))
        entries.check_rest()


def _count_tokens(header: Header) -> int:
    """Rows of the embedding, of which the tokenizer may leave some unused."""
    rows = header.tensors["token_embd.weight"].shape[0] if "token_embd.weight" in header.tensors else 0
    if rows < (tokens := len(header.metadata["tokenizer.ggml.tokens"])):
        raise HeaderError(
            f"has {tokens:,} tokens, but an embedding of {rows:,} (token_embd.weight); get a complete file"
        )
    return rows


def _read_scale(entries: _Entries, fields: Fields, sizes: Mapping[tuple[int, int], int]) -> None:
    """The scale of the logits of Gemma, which GGUF leaves out and which depends on the size of the model."""
    size = fields["num_hidden_layers"], fields["hidden_size"]
    if scale := entries.read("attention.scale", 0):
        fields["query_pre_attn_scalar"] = scalar = max(1, round(scale**-2))
        entries.expect("attention.scale", scalar**-0.5)
    elif size in sizes:
        fields["query_pre_attn_scalar"] = sizes[size]
    else:
        raise HeaderError(
            f"does not say the scale of its logits, which is known for the published sizes of {entries.architecture} "
            f"(layers, width), {', '.join(map(str, sizes))}, but not for {size}; measure its safetensors"
        )


def _complete_gemma3(entries: _Entries, fields: Fields) -> None:
    """Sizes and scales: config.json of google/gemma-3-270m, -1b, -4b, -12b, -27b; each sixth layer sees all keys."""
    sizes = {(18, 640): 256, (26, 1152): 256, (34, 2560): 256, (48, 3840): 256, (62, 5376): 168}
    _read_scale(entries, fields, sizes)
    entries.expect("attention.sliding_window_pattern", 6)
    whole = fields.pop("rope_parameters")
    if entries.read("rope.scaling.type", "none") == "linear":
        whole |= {"rope_type": "linear", "factor": float(entries.read("rope.scaling.factor"))}
    elif entries.values.get("rope.scaling.type", "none") != "none":
        entries.refuse("rope.scaling.type", "none or linear")
    local = {"rope_type": "default", "rope_theta": float(entries.read("rope.freq_base_swa", 10000.0))}
    fields["rope_parameters"] = {"full_attention": whole, "sliding_attention": local}
    fields["final_logit_softcapping"] = entries.read("final_logit_softcapping", 0) or None


def _complete_stablelm(entries: _Entries, fields: Fields) -> None:
    """Layers without a second norm compute attention and MLP side by side."""
    fields["use_parallel_residual"] = not entries.has("ffn_norm.weight")
    entries.expect("use_parallel_residual", fields["use_parallel_residual"])


def _complete_falcon(entries: _Entries, fields: Fields) -> None:
    """With more than one KV head the file holds queries, keys and values in another order than transformers."""
    entries.expect("attention.head_count_kv", 1, absent=fields["num_attention_heads"])
    fields |= {"multi_query": True, "num_kv_heads": 1}


def _complete_even(entries: _Entries, fields: Fields) -> None:
    """As many KV heads as heads, and the width of the MLP four times that of the model."""
    entries.expect("attention.head_count_kv", fields["num_attention_heads"])
    entries.expect("feed_forward_length", 4 * fields["hidden_size"])


def _complete_bloom(entries: _Entries, fields: Fields) -> None:
    """As ``_complete_even``; the slopes of ALiBi are fixed, and positions have no limit."""
    _complete_even(entries, fields)
    entries.read("context_length", None)
    entries.expect("attention.max_alibi_bias", 8.0)


def _complete_windows(_: _Entries, fields: Fields) -> None:
    """A window of 0 is none."""
    fields["sliding_window"] = fields["sliding_window"] or None


_SCALES_OF_GEMMA_2 = {(26, 2304): 256, (42, 3584): 256, (46, 4608): 144}
"""By layers and width: config.json of google/gemma-2-2b, -9b and -27b."""

_QKV = {"attention_bias": "attn_q.bias"}
_EVEN = {name: value for name, value in SIZES.items() if name not in {"attention.head_count_kv", "feed_forward_length"}}
_UNLIMITED = {name: value for name, value in _EVEN.items() if name != "context_length"}
_NORM = "attention.layer_norm_epsilon"
_NORMS = {_NORM: "layer_norm_epsilon"}
_GEMMA = {**RMS, **WINDOW}
_CAPS = {name: name for name in ("attn_logit_softcapping", "final_logit_softcapping")}
_BIASES = {**_QKV, "mlp_bias": "ffn_up.bias"}
_SPARSE = {"decoder_sparse_step": 1}

FAMILIES: Mapping[str, Family] = {
    "bloom": Family("bloom", {**_UNLIMITED, **_NORMS}, rotary=False, own_head_size=False, complete=_complete_bloom),
    "falcon": Family(
        "falcon",
        {**_EVEN, "feed_forward_length": "ffn_hidden_size", **_NORMS},
        own_head_size=False,
        fixed={"new_decoder_architecture": False, "parallel_attn": True, "alibi": False, "bias": False},
        complete=_complete_falcon,
    ),
    "gemma2": Family(
        "gemma2",
        {**_GEMMA, **_CAPS},
        absent={"attention.sliding_window": 4096, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        complete=partial(_read_scale, sizes=_SCALES_OF_GEMMA_2),
    ),
    "gemma3": Family("gemma3_text", _GEMMA, complete=_complete_gemma3),
    "gpt2": Family(
        "gpt2",
        {**_EVEN, "feed_forward_length": "n_inner", **_NORMS},
        rotary=False,
        own_head_size=False,
        complete=lambda entries, fields: entries.expect("attention.head_count_kv", fields["num_attention_heads"]),
    ),
    "llama": Family("llama", RMS, biases=_BIASES),
    "nemotron": Family("nemotron", {**SIZES, _NORM: "norm_eps"}, partial=True, biases=_BIASES),
    "phi3": Family("phi3", {**RMS, **WINDOW}, partial=True, own_head_size=False, complete=_complete_windows),
    "qwen2": Family("qwen2", RMS),
    "qwen2moe": Family(
        "qwen2_moe",
        {**RMS, **EXPERTS, "expert_shared_feed_forward_length": "shared_expert_intermediate_size"},
        fixed={**_SPARSE, "norm_topk_prob": False},
    ),
    "qwen3": Family("qwen3", RMS, biases=_QKV),
    "qwen3moe": Family("qwen3_moe", {**RMS, **EXPERTS}, biases=_QKV, fixed={**_SPARSE, "norm_topk_prob": True}),
    "stablelm": Family(
        "stablelm",
        {**SIZES, _NORM: "layer_norm_eps"},
        partial=True,
        own_head_size=False,
        biases={"use_qkv_bias": "attn_q.bias"},
        complete=_complete_stablelm,
    ),
    "starcoder2": Family(
        "starcoder2",
        {**SIZES, **WINDOW, _NORM: "norm_epsilon"},
        own_head_size=False,
        biases={"use_bias": "attn_q.bias"},
        complete=_complete_windows,
    ),
}
"""Architectures whose configuration is made here, by their names in GGUF."""

NEWER: Mapping[str, frozenset[str]] = {
    "lfm2": frozenset({*RMS, "shortconv.l_cache", "rope.freq_base"}),
    "qwen35": frozenset(
        {*RMS, "attention.key_length", "full_attention_interval", "rope.freq_base"}
        | {"rope.dimension_sections", "rope.dimension_count"}
        | {f"ssm.{name}" for name in ("conv_kernel", "state_size", "group_count", "time_step_rank", "inner_size")}
    ),
}
"""Architectures whose configuration transformers makes, and the entries that it reads, all of which must be there."""
