"""Small GGUF files for tests: of random models in any type of tensor, and of raw bytes that break the format."""

import json
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import MODEL_ARCH, GGUFValueType, GGUFWriter, get_tensor_name_map, quantize
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, Lfm2Config, PreTrainedModel, PreTrainedTokenizerFast
from transformers.pytorch_utils import Conv1D

from extract.checks import check_inputs
from extract.models import describe, load
from extract.settings import ExtractionSettings
from storage.errors import UserError, escape_unprintable
from tests.extract.tiny import tiny_config, tiny_model, tiny_tokenizer

ARCHITECTURES = {"llama": MODEL_ARCH.LLAMA, "gpt2": MODEL_ARCH.GPT2, "qwen2": MODEL_ARCH.QWEN2, "lfm2": MODEL_ARCH.LFM2}

SIZES = {
    "llama": {"hidden_size": 64, "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}},
    "gpt2": {"max_position_embeddings": 1024},  # transformers does not read their number from GGUF
    "qwen2": {"sliding_window": None, "use_sliding_window": False, "attention_bias": True},
}
"""What the configurations must have to be described by a GGUF file."""


def make_model(architecture: str, seed: int = 0, **overrides: object) -> PreTrainedModel:
    """A small model that a GGUF file can describe; biases are not 0."""
    if architecture == "lfm2":
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(make_mixed_config(**overrides)).eval()
    model = tiny_model(architecture, seed, **(SIZES[architecture] | overrides))
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.data.normal_(0, 0.1)
    return model


def make_mixed_config(**overrides: object) -> Lfm2Config:
    """The configuration of a small LFM2: a convolution, and two layers of attention."""
    shared = ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
    sizes = {name: getattr(tiny_config("llama"), name) for name in (*shared, "max_position_embeddings")}
    kinds = ["conv", "full_attention", "full_attention"]
    own = {"num_hidden_layers": 3, "layer_types": kinds, "block_auto_adjust_ff_dim": False, "initializer_range": 0.15}
    return Lfm2Config(**(sizes | own | {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}} | overrides))


def write_gguf(
    path: Path,
    architecture: str = "llama",
    kind: str = "F32",
    *,
    model: PreTrainedModel | None = None,
    metadata: Mapping[str, Any] | None = None,
    permuted: bool = True,
    add_bos: bool | None = None,
    tokenizer: PreTrainedTokenizerFast | None = None,
) -> Path:
    """Write a model and the tokenizer of the tests as llama.cpp does; matrices are stored as ``kind``.

    ``metadata``: further entries, or others in place of the true ones (None: no such entry); ``permuted``: whether the
    rows of queries and keys of LLaMA are in the order of GGUF, as they must be.
    """
    model = model or make_model(architecture)
    writer = GGUFWriter(path, architecture)
    _write_config(writer, model)
    write_tokenizer(writer, tokenizer or tiny_tokenizer(), add_bos=add_bos)
    for name, value in (metadata or {}).items():
        writer.kv_data[0].pop(name, None)
        if value is not None:
            writer.add_key_value(name, value, GGUFValueType.get_type(value))
    names = get_tensor_name_map(ARCHITECTURES[architecture], model.config.num_hidden_layers)
    for key, weights, _ in list_matrices(model):
        stored = store(key, weights, kind)
        if architecture == "llama" and permuted and (".q_proj" in key or ".k_proj" in key):
            heads = model.config.num_attention_heads if ".q_proj" in key else model.config.num_key_value_heads
            stored = permute_rows(stored, heads)
        stem, _, suffix = key.rpartition(".")
        raw = GGMLQuantizationType[choose_kind(key, weights, kind)]
        writer.add_tensor(f"{names.get_name(stem)}.{suffix}", np.ascontiguousarray(stored), raw_dtype=raw)
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
        yield (
            key,
            weights.T
            if turned
            else weights.squeeze(1)
            if weights.shape[1:2] == (1,) and weights.ndim == 3
            else weights,
            turned,
        )


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
        if choose_kind(key, weights, kind) in READERS:
            read = torch.from_numpy(read_blocks(store(key, weights, kind), kind)).float()
            parameters[key].data = read.T.contiguous() if turned else read
    return model


def permute_rows(stored: NDArray[Any], heads: int) -> NDArray[Any]:
    """Rows of each head in GGUF's order: the two halves that rotate together alternate."""
    halves = stored.reshape(heads, 2, -1, *stored.shape[1:])
    return halves.swapaxes(1, 2).reshape(stored.shape)


def _write_config(writer: GGUFWriter, model: PreTrainedModel) -> None:
    config = model.config
    writer.add_name("Tiny <b>model</b>")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    if config.model_type == "gpt2":
        writer.add_feed_forward_length(4 * config.hidden_size)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
        return
    writer.add_feed_forward_length(config.intermediate_size)
    if config.model_type == "lfm2":
        writer.add_head_count_kv([config.num_key_value_heads * (kind != "conv") for kind in config.layer_types])
        writer.add_shortconv_l_cache(config.conv_L_cache)
    else:
        writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.norm_eps if config.model_type == "lfm2" else config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    if config.model_type == "llama":
        writer.add_rope_dimension_count(config.head_dim)


def write_tokenizer(writer: GGUFWriter, tokenizer: PreTrainedTokenizerFast, *, add_bos: bool | None) -> None:
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
    if add_bos is not None:
        writer.add_add_bos_token(add_bos)


# --- what the bytes of a type mean, read slowly and in float64 ---


def read_q4_1(block: bytes) -> list[float]:
    """32 weights: scale d and offset m in half precision, then 16 bytes, low nibbles first."""
    d, m = struct.unpack("<ee", block[:4])
    return [d * (byte & 15) + m for byte in block[4:]] + [d * (byte >> 4) + m for byte in block[4:]]


def read_q8_0(block: bytes) -> list[float]:
    """32 weights: a scale in half precision, then signed bytes."""
    (d,) = struct.unpack("<e", block[:2])
    return [d * value for value in struct.unpack("<32b", block[2:])]


def read_q4_k(block: bytes) -> list[float]:
    """256 weights in 8 parts of 32, each with a scale and a minimum of 6 bits, which two half floats multiply."""
    d, dmin = struct.unpack("<ee", block[:4])
    packed, nibbles, weights = block[4:16], block[16:], []
    for part in range(8):
        if part < 4:
            scale, least = packed[part] & 63, packed[part + 4] & 63
        else:
            scale = (packed[part + 4] & 15) | (packed[part - 4] >> 6 << 4)
            least = (packed[part + 4] >> 4) | (packed[part] >> 6 << 4)
        shift, start = 4 * (part % 2), 32 * (part // 2)
        weights += [d * scale * (byte >> shift & 15) - dmin * least for byte in nibbles[start : start + 32]]
    return weights


def read_f16(block: bytes) -> list[float]:
    """One weight in half precision."""
    return [*struct.unpack("<e", block)]


READERS: dict[str, Callable[[bytes], list[float]]] = {
    "F16": read_f16,
    "Q4_1": read_q4_1,
    "Q8_0": read_q8_0,
    "Q4_K": read_q4_k,
}


def read_blocks(stored: NDArray[Any], kind: str) -> NDArray[np.float64]:
    """The weights that a matrix stored as ``kind`` means, float64."""
    size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]][1]
    rows = [row.tobytes() for row in np.ascontiguousarray(stored)]
    return np.array(
        [[w for at in range(0, len(row), size) for w in READERS[kind](row[at : at + size])] for row in rows]
    )


# --- what becomes of a file ---


def outcome(path: Path) -> str | None:
    """The one line by which a file is refused, at any stage; None if it is read."""
    settings = ExtractionSettings(model=str(path), corpus="embedded", context_length=8, sequences=1, device="cpu")
    try:
        check_inputs(settings)
        load(describe(settings))
    except UserError as error:
        said = str(error)
    else:
        return None
    assert "\n" not in said
    assert escape_unprintable(str(path)) in said
    return said


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
