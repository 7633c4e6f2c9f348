"""Every architecture that is read from GGUF: a small model of each, as llama.cpp's converter stores it.

``python -m tests.extract.gguf_conversion`` tries every entry and every tensor that GGUF knows in every architecture,
and prints how the files ended: read as the same model in safetensors would be, or refused.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import transformers
from gguf import GGUFValueType, GGUFWriter, get_tensor_name_map
from gguf.constants import MODEL_ARCH_NAMES, MODEL_TENSORS, TENSOR_NAMES, Keys
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from extract.hub import silence_libraries
from extract.models import describe, load
from extract.settings import ExtractionSettings
from storage.errors import UserError
from tests.extract.gguf_files import list_matrices, permute_rows, write_tokenizer
from tests.extract.tiny import VOCABULARY, tiny_tokenizer

Entries = dict[str, Any]
Tensors = dict[str, NDArray[np.float32]]
Sizes = Mapping[str, Any]

TOKENS = torch.arange(2 * 48).reshape(2, 48) * 7 % VOCABULARY
THETA = 5000.0
HARMLESS = {
    "context_length": "the limit alone",
    "rope.scaling.finetuned": "no scaling",
    "rope.scaling.original_context_length": "no scaling",
}
"""Entries that change nothing that is computed, and why; as the width of an MLP that no layer has, beside experts."""

_SIZES: Sizes = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "initializer_range": 0.15,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
    "tie_word_embeddings": False,
}
_ROTATION = {"rope_type": "default", "rope_theta": THETA}
_ROTARY: Sizes = {**_SIZES, "num_key_value_heads": 2, "rope_parameters": _ROTATION}
_PARTIAL: Sizes = {**_ROTARY, "rope_parameters": {**_ROTATION, "partial_rotary_factor": 0.5}}
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


@dataclass(frozen=True)
class Written:
    """An architecture with the fields of a small model of it."""

    config: str
    sizes: Sizes
    epsilon: str = "rms_norm_eps"
    biases: Sizes | None = None
    """Fields with which all of its optional biases are stored."""


WRITTEN: Mapping[str, Written] = {
    "bloom": Written(
        "BloomConfig",
        {"vocab_size": VOCABULARY, "hidden_size": 64, "n_layer": 2, "n_head": 4, "initializer_range": 0.15}
        | {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1},
        "layer_norm_epsilon",
    ),
    "falcon": Written(
        "FalconConfig",
        {
            **_SIZES,
            "rope_parameters": _ROTATION,
            "ffn_hidden_size": 96,
            "multi_query": True,
            "tie_word_embeddings": True,
        },
        "layer_norm_epsilon",
    ),
    "gemma2": Written(
        "Gemma2Config", {**_ROTARY, **_GEMMA, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}
    ),
    "gemma3": Written(
        "Gemma3TextConfig",
        {**_ROTARY, **_GEMMA, "num_hidden_layers": 6, "final_logit_softcapping": 3.0}
        | {"rope_parameters": {"full_attention": _ROTATION, "sliding_attention": {**_ROTATION, "rope_theta": 1e4}}},
    ),
    "gpt2": Written("GPT2Config", {**_SIZES, "n_inner": 96}, "layer_norm_epsilon"),
    "lfm2": Written(
        "Lfm2Config",
        {**_ROTARY, "layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False},
        "norm_eps",
    ),
    "llama": Written("LlamaConfig", _ROTARY, biases={"attention_bias": True, "mlp_bias": True}),
    "nemotron": Written("NemotronConfig", _PARTIAL, "norm_eps", {"attention_bias": True, "mlp_bias": True}),
    "phi3": Written("Phi3Config", {**_PARTIAL, "sliding_window": 16}),
    "qwen2": Written("Qwen2Config", {**_ROTARY, "head_dim": 32}),
    "qwen2moe": Written("Qwen2MoeConfig", {**_ROTARY, **_EXPERTS, "shared_expert_intermediate_size": 80}),
    "qwen3": Written("Qwen3Config", {**_ROTARY, "head_dim": 32}, biases={"attention_bias": True}),
    "qwen35": Written("Qwen3_5TextConfig", {**_ROTARY, **_LINEAR, "head_dim": 16}),
    "qwen3moe": Written(
        "Qwen3MoeConfig",
        {**_ROTARY, **_EXPERTS, "head_dim": 32, "norm_topk_prob": True},
        biases={"attention_bias": True},
    ),
    "stablelm": Written("StableLmConfig", _PARTIAL, "layer_norm_eps", {"use_qkv_bias": True}),
    "starcoder2": Written("Starcoder2Config", {**_ROTARY, "sliding_window": 16, "use_bias": True}, "norm_epsilon"),
}

BIASED = ("bloom", "falcon", "gpt2", "nemotron", "stablelm", "starcoder2")
"""Architectures with LayerNorm in place of RMS norms."""


def make_written(architecture: str, **changed: Any) -> PreTrainedModel:
    """A small random model of an architecture; biases and weights of norms are not those of new models."""
    written = WRITTEN[architecture]
    torch.manual_seed(0)
    config = getattr(transformers, written.config)(**{**written.sizes, **changed})
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
        f"attention.{norm}": getattr(config, WRITTEN[architecture].epsilon),
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


def list_tensors(architecture: str, model: PreTrainedModel) -> Tensors:
    """The tensors that llama.cpp's converter writes, by their names in GGUF."""
    arch = next(key for key, name in MODEL_ARCH_NAMES.items() if name == architecture)
    names, tensors = get_tensor_name_map(arch, model.config.num_hidden_layers), Tensors()
    for key, weights, _ in list_matrices(model):
        stem, _, suffix = key.rpartition(".")
        converted = _convert(architecture, key, weights, model.config)
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


def _convert(architecture: str, key: str, weights: NDArray[np.float32], config: Any) -> NDArray[np.float32]:
    """A tensor as llama.cpp's converter changes it."""
    if architecture == "llama" and (".q_proj" in key or ".k_proj" in key):
        heads = config.num_attention_heads if ".q_proj" in key else config.num_key_value_heads
        return permute_rows(weights, heads)
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


def write(path: Path, architecture: str, entries: Entries, tensors: Tensors) -> Path:
    """Write a file; entries without the architecture's name."""
    writer = GGUFWriter(path, architecture)
    for name, value in entries.items():
        kind = GGUFValueType.UINT32 if type(value) is int and value >= 0 else GGUFValueType.get_type(value)
        writer.add_key_value(f"{architecture}.{name}", value, kind)
    write_tokenizer(writer, tiny_tokenizer(), add_bos=None)
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def read(path: Path) -> Tensor:
    """The logits of the model that is built from a file."""
    given = {"model": str(path), "corpus": "embedded", "context_length": 48, "sequences": 1}
    model = load(describe(ExtractionSettings.model_validate(given)))
    with torch.inference_mode():
        logits: Tensor = model(TOKENS).logits
    return logits


@dataclass(frozen=True)
class Trial:
    """A file that differs in one thing from the plain one."""

    what: str
    entries: Entries
    tensors: Tensors
    model: PreTrainedModel | None = None
    """The model that it describes; None if transformers has no such model, or none of which this is known."""


def _turn(sizes: Sizes, part: str = "full_attention", **changed: Any) -> Sizes:
    """The field of the rotation with some changes, in one kind of layers if there are two."""
    rotation = sizes["rope_parameters"]
    own = {part: {**rotation[part], **changed}} if part in rotation else changed
    return {"rope_parameters": {**rotation, **own}}


def mean_entry(architecture: str, name: str) -> tuple[Any, Sizes | None]:
    """Another value of an entry, and the fields that say the same in transformers; None if there are none."""
    sizes = WRITTEN[architecture].sizes
    rotation = sizes.get("rope_parameters", {})
    if name == "rope.freq_base":
        return 777.0, _turn(sizes, rope_theta=777.0) if rotation else None
    if name == "rope.dimension_count":
        return 12, _turn(sizes, partial_rotary_factor=0.75) if "partial_rotary_factor" in rotation else None
    if name == "rope.dimension_sections" and architecture == "qwen35":
        return [1, 1, 2, 0], _turn(sizes, mrope_section=[1, 1, 2])
    if name == "rope.freq_base_swa" and architecture == "gemma3":
        return 777.0, _turn(sizes, "sliding_attention", rope_theta=777.0)
    if name in {"attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"}:
        own = (name == "attention.layer_norm_epsilon") == (architecture in BIASED)
        return 0.5, {WRITTEN[architecture].epsilon: 0.5} if own else None
    fields: Mapping[str, tuple[Any, str, Any]] = {
        "attention.sliding_window": (8, "sliding_window", 8),
        "attention.scale": (0.125, "query_pre_attn_scalar", 64),
        "attn_logit_softcapping": (0.5, "attn_logit_softcapping", 0.5),
        "final_logit_softcapping": (0.5, "final_logit_softcapping", 0.5),
        "expert_used_count": (1, "num_experts_per_tok", 1),
    }
    value, field, meant = fields.get(name, (_invent(name), "", None))
    return value, {field: meant} if field in sizes else None


def _invent(name: str) -> Any:
    """A value that matters, of an entry that the architecture may not have."""
    if name.endswith("causal"):
        return False
    if name.endswith(("swin_norm", "weights_norm", "use_parallel_residual", "finetuned", "b_c_rms")):
        return True
    if name.endswith("type"):
        return "linear" if "scaling" in name else 2
    if name == "tensor_data_layout":
        return "other"
    if name.endswith(("pattern", "sections")):
        return [2, 1, 1, 0]
    numbers = ("scale", "factor", "bias", "kqv", "epsilon", "base", "alpha", "capping", "slow")
    return 1.75 if name.endswith(numbers) else 3 if name == "ssm.state_size" else 5


def list_trials(architecture: str) -> Iterator[Trial]:
    """The plain file, one for each entry, for each entry left out, for each further tensor, and for each left out."""
    model = make_written(architecture)
    entries, tensors = list_entries(architecture, model.config), list_tensors(architecture, model)
    yield Trial("plain", entries, tensors, model)
    if biases := WRITTEN[architecture].biases:
        biased = make_written(architecture, **biases)
        yield Trial("all biases", entries, list_tensors(architecture, biased), biased)
    groups = [group for name, group in vars(Keys).items() if not name.startswith("_")]
    known = {
        text.removeprefix("{arch}.") for group in groups for text in vars(group).values() if "{arch}." in str(text)
    }
    for name in sorted({*known, "rope.scale_linear", "an_entry_of_tomorrow"}):
        value, fields = mean_entry(architecture, name)
        harmless = name in HARMLESS or (name == "feed_forward_length" and "expert_count" in entries)
        meant = model if harmless else None if fields is None else make_written(architecture, **fields)
        yield Trial(f"entry {name} = {value}", {**entries, name: value}, tensors, meant)
    for name in entries:
        yield Trial(
            f"without entry {name}",
            {k: v for k, v in entries.items() if k != name},
            tensors,
            find_usual(architecture, name),
        )
    yield from list_tensor_trials(architecture, model, entries, tensors)


def find_usual(architecture: str, name: str) -> PreTrainedModel | None:
    """The model that a file without an entry describes, as llama.cpp reads it; None if it does not."""
    sizes = WRITTEN[architecture].sizes
    fields: Mapping[str, Sizes] = {
        "attention.key_length": {},
        "attention.value_length": {},
        "vocab_size": {},
        **({} if sizes.get("sliding_window") else {"attention.sliding_window": {}}),
        "rope.freq_base": _turn(sizes, rope_theta=1e4) if "rope_parameters" in sizes else {},
        "rope.dimension_count": _turn(sizes, partial_rotary_factor=1.0)
        if "partial_rotary_factor" in str(sizes)
        else {},
    }
    if architecture == "gemma2":
        caps = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "sliding_window": 4096}
        fields |= {name: {field: value} for field, value in caps.items() for name in (field, f"attention.{field}")}
    if architecture == "gemma3":
        fields |= {"final_logit_softcapping": {"final_logit_softcapping": None}}
    if architecture == "bloom":
        fields |= {"context_length": {}, "feed_forward_length": {}}
    return make_written(architecture, **fields[name]) if name in fields else None


def untie(model: PreTrainedModel, head: NDArray[np.float32]) -> PreTrainedModel:
    """The model with a head of its own."""
    own = deepcopy(model)
    own.lm_head.weight = torch.nn.Parameter(torch.from_numpy(head))
    return own.eval()


def list_tensor_trials(
    architecture: str, model: PreTrainedModel, entries: Entries, tensors: Tensors
) -> Iterator[Trial]:
    """Files with one tensor more, of those that GGUF knows, or one less."""
    arch = next(key for key, name in MODEL_ARCH_NAMES.items() if name == architecture)
    rng = np.random.default_rng(0)
    stems = {TENSOR_NAMES[tensor].format(bid=0) for tensor in MODEL_TENSORS[arch]}
    stems |= {
        "output",
        "blk.0.attn_sinks",
        "blk.0.attn_q_norm",
        "blk.0.attn_rot_embd",
        "rope_freqs",
        "rope_factors_long",
        "blk.2.attn_q",
    }
    for name in sorted(f"{stem}.{suffix}" for stem in stems for suffix in ("weight", "bias", "scale")):
        if name not in tensors:
            head = name == "output.weight"
            more = rng.normal(0, 0.15, (VOCABULARY, 64) if head else 64).astype(np.float32)
            yield Trial(
                f"further tensor {name}", entries, {**tensors, name: more}, untie(model, more) if head else None
            )
    for name in tensors:
        own = deepcopy(model) if name == "output.weight" else None
        if own is not None:
            own.lm_head.weight = own.get_input_embeddings().weight
        yield Trial(f"without tensor {name}", entries, {k: v for k, v in tensors.items() if k != name}, own)


def judge(trial: Trial, architecture: str, folder: Path) -> tuple[str, str]:
    """How a file ended: ``same``, ``refused`` or ``silent``, and what was said of it or how far it was off."""
    path = write(folder / "tried.gguf", architecture, trial.entries, trial.tensors)
    try:
        found = read(path)
    except UserError as error:
        return "refused", str(error).replace(str(path), "FILE")
    finally:
        path.unlink()
    if trial.model is None:
        return "silent", "read, though transformers has no such model"
    with torch.inference_mode():
        expected = trial.model(TOKENS).logits
    off = float((found - expected).abs().max() / expected.abs().max())
    return "same" if off <= 1e-5 else "silent", f"{off:.1e}"


def try_everything(architecture: str, folder: Path) -> tuple[Counter[str], list[str]]:
    """How many files of an architecture ended in which way, and those that were read as another model."""
    ends: Counter[str] = Counter()
    silent = []
    for trial in list_trials(architecture):
        end, said = judge(trial, architecture, folder)
        ends[end] += 1
        silent += [f"{trial.what}: {said}"] * (end == "silent")
    return ends, silent


def main() -> None:
    """Write the table of docs/inputs.md to standard output."""
    sys.stdout.write(
        "| architecture | files | read as in safetensors | refused | another model |\n|---|---|---|---|---|\n"
    )
    for architecture in WRITTEN:
        with TemporaryDirectory() as folder:
            ends, silent = try_everything(architecture, Path(folder))
        counts = " | ".join(str(ends[end]) for end in ("same", "refused", "silent"))
        sys.stdout.write(f"| {architecture} | {ends.total()} | {counts} |\n" + "".join(f"{line}\n" for line in silent))


if __name__ == "__main__":
    main()
