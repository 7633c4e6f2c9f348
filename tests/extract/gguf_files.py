"""Small GGUF files for tests: of random models in any type of tensor, as llama.cpp's converter writes them, and of raw
bytes that break the format.
"""

import json
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
import transformers
from gguf import GGUFValueType, GGUFWriter, dequantize, get_tensor_name_map, quantize
from gguf.constants import GGML_QUANT_SIZES, MODEL_ARCH_NAMES, GGMLQuantizationType
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast
from transformers.pytorch_utils import Conv1D

from extract.hub import silence_libraries
from extract.models.checks import check_inputs
from extract.models.loading import describe, load
from storage.errors import UserError, escape_unprintable
from tests.extract.tiny import PLAIN, settings, tiny_tokenizer

Entries = dict[str, Any]
Tensors = dict[str, NDArray[Any]]
Sizes = Mapping[str, Any]

_SIZES: Sizes = {**PLAIN, "intermediate_size": 96, "num_hidden_layers": 2, "tie_word_embeddings": False}
_ROTATION = {"rope_type": "default", "rope_theta": 5000.0}
_ROTARY: Sizes = {**_SIZES, "num_key_value_heads": 2, "rope_parameters": _ROTATION}
_PARTIAL: Sizes = {**_ROTARY, "rope_parameters": {**_ROTATION, "partial_rotary_factor": 0.5}}
_TIED: Sizes = {"multi_query": True, "tie_word_embeddings": True}
_EXPERTS: Sizes = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "decoder_sparse_step": 1}
_GEMMA: Sizes = {"head_dim": 32, "sliding_window": 16, "query_pre_attn_scalar": 16, "tie_word_embeddings": True}
_LINEAR: Sizes = {f"linear_{name}": size for name, size in [("num_key_heads", 2), ("num_value_heads", 2)]} | {
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "layer_types": ["linear_attention", "full_attention"],
    "full_attention_interval": 2,
    "rope_parameters": {**_ROTATION, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1]}
    | {"mrope_interleaved": True},
}


WRITTEN: Mapping[str, tuple[str, Sizes]] = {
    "bloom": ("BloomConfig", {**_SIZES, "intermediate_size": 4 * 64, "tie_word_embeddings": True}),
    "falcon": ("FalconConfig", {**_SIZES, **_TIED, "rope_parameters": _ROTATION, "ffn_hidden_size": 96}),
    "gemma2": ("Gemma2Config", {**_ROTARY, **_GEMMA, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}),
    "gemma3": (
        "Gemma3TextConfig",
        {**_ROTARY, **_GEMMA, "num_hidden_layers": 6, "final_logit_softcapping": 3.0}
        | {"rope_parameters": {"full_attention": _ROTATION, "sliding_attention": {**_ROTATION, "rope_theta": 1e4}}},
    ),
    "gpt2": ("GPT2Config", {**_SIZES, "n_inner": 96}),
    "lfm2": ("Lfm2Config", {**_ROTARY, "layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False}),
    "llama": ("LlamaConfig", _ROTARY),
    "nemotron": ("NemotronConfig", _PARTIAL),
    "phi3": ("Phi3Config", {**_PARTIAL, "sliding_window": 16}),
    "qwen2": ("Qwen2Config", {**_ROTARY, "head_dim": 32}),
    "qwen2moe": ("Qwen2MoeConfig", {**_ROTARY, **_EXPERTS, "shared_expert_intermediate_size": 80}),
    "qwen3": ("Qwen3Config", {**_ROTARY, "head_dim": 32}),
    "qwen35": ("Qwen3_5TextConfig", {**_ROTARY, **_LINEAR, "head_dim": 16}),
    "qwen3moe": ("Qwen3MoeConfig", {**_ROTARY, **_EXPERTS, "head_dim": 32, "norm_topk_prob": True}),
    "stablelm": ("StableLmConfig", _PARTIAL),
    "starcoder2": ("Starcoder2Config", {**_ROTARY, "sliding_window": 16, "use_bias": True}),
}
"""The configuration and the fields of a small model, by architecture."""

EPSILONS = ("rms_norm_eps", "layer_norm_epsilon", "norm_eps", "layer_norm_eps", "norm_epsilon")

BIASED = ("bloom", "falcon", "gpt2", "nemotron", "stablelm", "starcoder2")
"""Architectures with LayerNorm in place of RMS norms."""


def make_model(architecture: str, seed: int = 0, **changed: Any) -> PreTrainedModel:
    """A small random model that a GGUF file can describe; biases and weights of norms are not those of new models."""
    name, sizes = WRITTEN[architecture]
    torch.manual_seed(seed)
    config = getattr(transformers, name)(**{**sizes, **changed})
    with silence_libraries():
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            parameter.data += 0.2 * torch.randn_like(parameter)
    return model


def list_entries(architecture: str, config: Any) -> Entries:
    """The entries that llama.cpp's converter writes for a configuration, without the architecture's name."""
    get = lambda *names: next((v for v in (getattr(config, n, None) for n in names) if v is not None), None)  # noqa: E731
    heads, kv_heads = config.num_attention_heads, get("num_key_value_heads")
    size = get("head_dim") or config.hidden_size // heads
    norm = "layer_norm_epsilon" if architecture in BIASED else "layer_norm_rms_epsilon"
    entries: Entries = {
        "context_length": get("max_position_embeddings") or 64,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": get("ffn_hidden_size", "n_inner", "intermediate_size") or 4 * config.hidden_size,
        "attention.head_count": heads,
        "attention.head_count_kv": 1 if architecture == "falcon" else kv_heads,
        f"attention.{norm}": get(*EPSILONS),
        "attention.key_length": size if get("head_dim") else None,
        "attention.value_length": size if get("head_dim") else None,
        "attention.sliding_window": get("sliding_window"),
        "attn_logit_softcapping": get("attn_logit_softcapping"),
        "final_logit_softcapping": get("final_logit_softcapping"),
        "expert_count": get("num_experts"),
        "expert_used_count": get("num_experts_per_tok"),
        "expert_feed_forward_length": get("moe_intermediate_size"),
        "expert_shared_feed_forward_length": get("shared_expert_intermediate_size"),
        "vocab_size": config.vocab_size,
    }
    if scalar := get("query_pre_attn_scalar"):
        entries["attention.scale"] = scalar**-0.5
    if rotation := get("rope_parameters"):
        whole = rotation.get("full_attention", rotation)
        entries["rope.freq_base"] = float(whole["rope_theta"])
        entries["rope.dimension_count"] = int(size * whole.get("partial_rotary_factor", 1))
    if architecture == "lfm2":
        entries |= {"shortconv.l_cache": config.conv_L_cache}
        entries["attention.head_count_kv"] = [kv_heads * (kind != "conv") for kind in config.layer_types]
    if architecture == "qwen35":
        entries |= {"full_attention_interval": 2, "rope.dimension_sections": [*whole["mrope_section"], 0]}
        entries |= {"ssm.conv_kernel": config.linear_conv_kernel_dim, "ssm.state_size": config.linear_key_head_dim}
        entries |= {"ssm.group_count": 2, "ssm.time_step_rank": 2, "ssm.inner_size": 2 * config.linear_value_head_dim}
    return {name: value for name, value in entries.items() if value is not None}


def list_tensors(architecture: str, model: PreTrainedModel, kind: str = "F32", *, permuted: bool = True) -> Tensors:
    """The tensors that llama.cpp's converter writes, by their names in GGUF, with matrices stored as ``kind``.

    ``permuted``: whether the rows of queries and keys of LLaMA are in the order of GGUF, as they must be.
    """
    number = next(key for key, known in MODEL_ARCH_NAMES.items() if known == architecture)
    names = get_tensor_name_map(number, model.config.num_hidden_layers)
    tensors = Tensors()
    for key, weights, _ in list_matrices(model):
        stem, _, suffix = key.rpartition(".")
        stored = store(key, weights, kind)
        converted = _convert(architecture, key, stored, model.config) if permuted else stored
        if key.endswith("experts.gate_up_proj"):
            block = f"blk.{key.split('.')[2]}"
            gate, up = np.split(converted, 2, axis=1)
            tensors |= {f"{block}.ffn_gate_exps.weight": gate, f"{block}.ffn_up_exps.weight": up}
        elif key.endswith(("A_log", "dt_bias")):
            tensors[f"blk.{key.split('.')[2]}.{'ssm_a' if key.endswith('A_log') else 'ssm_dt.bias'}"] = converted
        else:
            name = names.get_name(key) or names.get_name(stem) or names.get_name(stem.partition(".")[2])
            tensors[f"{name}.{suffix if suffix == 'bias' else 'weight'}"] = converted
    return {name: np.ascontiguousarray(values) for name, values in tensors.items()}


def _convert(architecture: str, key: str, weights: NDArray[Any], config: Any) -> NDArray[Any]:
    """A tensor as llama.cpp's converter changes it."""
    if architecture == "llama" and (".q_proj" in key or ".k_proj" in key):
        heads = config.num_attention_heads if ".q_proj" in key else config.num_key_value_heads
        halves = weights.reshape(heads, 2, -1, *weights.shape[1:])  # which rotate together, and alternate in GGUF
        return halves.swapaxes(1, 2).reshape(weights.shape)
    if architecture == "bloom" and "query_key_value" in key:
        grouped = weights.reshape(config.n_head, 3, -1, *weights.shape[1:])
        return grouped.swapaxes(0, 1).reshape(weights.shape)
    if architecture in {"gemma2", "gemma3", "nemotron"} and key.endswith("norm.weight"):
        return weights + 1
    if architecture == "qwen35":
        if key.endswith("norm.weight") and "linear_attn" not in key:
            return weights + 1
        return -np.exp(weights) if key.endswith("A_log") else weights
    return weights[0] if key.endswith("shared_expert_gate.weight") else weights


def write_gguf(
    path: Path,
    architecture: str = "llama",
    kind: str = "F32",
    *,
    model: PreTrainedModel | None = None,
    tensors: Tensors | None = None,
    metadata: Mapping[str, Any] = MappingProxyType({}),
    permuted: bool = True,
    tokenizer: PreTrainedTokenizerFast | None = None,
) -> Path:
    """Write a model and the tokenizer of the tests as llama.cpp does; matrices are stored as ``kind``.

    ``tensors``: others than the model's; ``metadata``: further entries, or others in place of the true ones (None: no
    such entry); ``permuted``: as ``list_tensors``.
    """
    model = model or make_model(architecture)
    if tensors is None:
        tensors = list_tensors(architecture, model, kind, permuted=permuted)
    writer = GGUFWriter(path, architecture)
    writer.add_name("Tiny <b>model</b>")
    for name, value in list_entries(architecture, model.config).items():
        number = GGUFValueType.UINT32 if type(value) is int and value >= 0 else GGUFValueType.get_type(value)
        writer.add_key_value(f"{architecture}.{name}", value, number)
    write_tokenizer(writer, tokenizer or tiny_tokenizer())
    for name, value in metadata.items():
        writer.kv_data[0].pop(name, None)
        if value is not None:
            writer.add_key_value(name, value, GGUFValueType.get_type(value))
    for name, values in tensors.items():
        raw = GGMLQuantizationType[kind] if values.dtype != np.float32 else None
        writer.add_tensor(name, values, raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def list_matrices(model: PreTrainedModel) -> Iterable[tuple[str, NDArray[np.float32], bool]]:
    """Names and values of a model's tensors, with matrices as (outputs, inputs), and whether they had to be turned.

    Kernels of convolutions are (channels, length).
    """
    for key, tensor in model.state_dict().items():
        if model.config.tie_word_embeddings and key == "lm_head.weight":
            continue
        turned = isinstance(model.get_submodule(key.rpartition(".")[0]), Conv1D) and tensor.ndim == 2
        weights = tensor.float().numpy()
        kernel = weights.shape[1:2] == (1,) and weights.ndim == 3
        yield key, weights.T if turned else weights.squeeze(1) if kernel else weights, turned


def choose_kind(key: str, weights: NDArray[np.float32], kind: str) -> str:
    """The type that a tensor is stored in: only matrices are quantised."""
    return kind if weights.ndim > 1 and not any(part in key for part in ("wpe", "conv.conv")) else "F32"


def store(key: str, weights: NDArray[np.float32], kind: str) -> NDArray[Any]:
    """A tensor as it is stored; for Q4_K, which ``gguf`` does not quantise, made-up blocks in place of its values."""
    chosen = GGMLQuantizationType[choose_kind(key, weights, kind)]
    if chosen.name != "Q4_K":
        return quantize(np.ascontiguousarray(weights), chosen)
    elements, size = GGML_QUANT_SIZES[chosen]
    rng = np.random.default_rng(zlib.crc32(key.encode()))
    blocks = rng.integers(0, 256, (weights.size // elements, size), np.uint8)
    blocks[:, :4] = rng.uniform(1e-4, 4e-4, (len(blocks), 2)).astype(np.float16).view(np.uint8)
    return blocks.reshape(len(weights), -1)


def replace_weights(model: PreTrainedModel, kind: str) -> PreTrainedModel:
    """The model with the weights that its tensors, stored as ``kind``, mean."""
    parameters = dict(model.named_parameters())
    for key, weights, turned in list_matrices(model):
        if choose_kind(key, weights, kind) == kind:
            read = torch.from_numpy(dequantize(store(key, weights, kind), GGMLQuantizationType[kind]))
            parameters[key].data = read.T.contiguous() if turned else read
    return model


def write_tokenizer(writer: GGUFWriter, tokenizer: PreTrainedTokenizerFast) -> None:
    """Write a tokenizer's entries."""
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary = sorted(state["model"]["vocab"], key=state["model"]["vocab"].__getitem__)
    kinds = {token["id"]: 3 if token["special"] else 4 for token in state["added_tokens"]}
    if state["model"]["byte_fallback"]:
        ranks = {"".join(pair): float(-rank) for rank, pair in enumerate(state["model"]["merges"])}
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_scores([ranks.get(token, -1e6) for token in vocabulary])
    else:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_merges([" ".join(pair) for pair in state["model"]["merges"]])
    writer.add_token_list(vocabulary)
    writer.add_token_types([kinds.get(index, 6 if name[:3] == "<0x" else 1) for index, name in enumerate(vocabulary)])
    for role in ("bos", "eos"):
        if (index := getattr(tokenizer, f"{role}_token_id")) is not None:
            getattr(writer, f"add_{role}_token_id")(index)


# --- what becomes of a file ---


def outcome(path: Path) -> str | None:
    """The one line by which a file is refused, at any stage; None if it is read."""
    asked = settings(path, context_length=8, device="cpu")
    try:
        check_inputs(asked)
        load(describe(asked))
    except UserError as error:
        said = str(error)
        assert "\n" not in said
        assert escape_unprintable(str(path)) in said
        return said
    return None


# --- raw bytes ---


def text(value: str | bytes) -> bytes:
    """A string after its length."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def entry(name: str | bytes, kind: int, value: bytes) -> bytes:
    """A metadata entry."""
    return text(name) + struct.pack("<I", kind) + value


def array(kind: int, count: int, values: bytes = b"") -> bytes:
    """The value of an array that says it has ``count`` elements."""
    return struct.pack("<IQ", kind, count) + values


def tensor(name: str | bytes, shape: Sequence[int] = (4,), kind: int = 0, offset: int = 0) -> bytes:
    """The description of a tensor; the shape in GGUF's order."""
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def raw_gguf(
    entries: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    counts: tuple[int, int] | None = None,
    data: int = 64,
) -> bytes:
    """A file from parts; ``counts`` of tensors and entries are the true ones unless given."""
    said = counts or (len(tensors), len(entries))
    header = magic + struct.pack("<IQQ", version, *said) + b"".join(entries) + b"".join(tensors)
    return header + b"\0" * (-len(header) % 32) + b"\0" * data
