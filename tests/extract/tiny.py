"""Small random models, tokenizers and complete checkpoint directories for tests; nothing is downloaded."""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from extract.hub import silence_libraries
from extract.models.loading import describe, load
from extract.settings import ExtractionSettings

BOS, EOS = "<s>", "</s>"
VOCABULARY = 320
WINDOW = 16

PLAIN: Mapping[str, object] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "initializer_range": 0.15,  # wide enough that weights differ between keys, narrow enough that none takes it all
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
}
"""Sizes of a small model with as many KV heads as heads."""

GROUPED: Mapping[str, object] = {**PLAIN, "num_key_value_heads": 2, "head_dim": 16}

_WINDOWED = {"sliding_window": WINDOW}
_HALF_WINDOWED = {**_WINDOWED, "use_sliding_window": True, "max_window_layers": 1}  # layer 0 sees everything

_CONFIGS: dict[str, tuple[str, Mapping[str, object]]] = {
    "llama": ("LlamaConfig", GROUPED),
    "mistral": ("MistralConfig", {**GROUPED, **_WINDOWED}),
    "gemma": ("GemmaConfig", GROUPED),
    "gemma2": ("Gemma2Config", {**GROUPED, **_WINDOWED, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 16}),
    "gpt2": ("GPT2Config", PLAIN),
    "qwen3": ("Qwen3Config", {**GROUPED, **_HALF_WINDOWED}),
    "gpt_oss": ("GptOssConfig", {**GROUPED, **_WINDOWED, "num_local_experts": 4}),
}


def tiny_model(architecture: str = "llama", seed: int = 0, **overrides: object) -> PreTrainedModel:
    """A seeded random model of 3 layers of width 64, with windows of ``WINDOW`` keys if its family has any."""
    config, settings = _CONFIGS[architecture]
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(getattr(transformers, config)(**{**settings, **overrides})).eval()


def text(words: int, seed: int = 0) -> str:
    """Made-up English-looking text: lines of seeded random words."""
    generator = random.Random(seed)
    stems = ["".join(generator.choices("abcdefghijklmnoprstuvw", k=generator.randint(2, 7))) for _ in range(200)]
    chosen = generator.choices(stems, k=words)
    return "\n".join(" ".join(chosen[start : start + 12]) + "." for start in range(0, words, 12)) + "\n"


def make_byte_level(
    pre: Any = None, normalizer: Any = None, special: Sequence[str] = (BOS, EOS), more: str = ""
) -> Tokenizer:
    """A byte-level BPE tokenizer of ``VOCABULARY`` tokens, the first of them special, trained on ``text`` and more."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre or pre_tokenizers.ByteLevel(add_prefix_space=False)
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text(2000) + more], trainer)
    return tokenizer


def tiny_tokenizer(*, bos: bool = True, eos: bool = True) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer, with or without BOS and EOS."""
    tokenizer = make_byte_level()
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, 0)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BOS if bos else None, eos_token=EOS if eos else None, model_max_length=64
    )


def spread_out(checkpoint: Path) -> PreTrainedModel:
    """A model of three layers of which the last two stay on the disk, and come when they are needed."""
    places = {"model.embed_tokens": "cpu", "model.rotary_emb": "cpu", "model.layers.0": "cpu", "model.norm": "disk"}
    places |= {"model.layers.1": "disk", "model.layers.2": "disk", "lm_head": "cpu"}
    folder = checkpoint.parent / "offloaded"
    with silence_libraries():
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            checkpoint, device_map=places, offload_folder=folder
        )
    return model


def split_weights(checkpoint: Path, *names: str, more: Mapping[str, object] = MappingProxyType({})) -> Path:
    """Write the weights of a checkpoint in turn to files of these names, and an index that also has ``more``."""
    weights = load_file(checkpoint / "model.safetensors")
    (checkpoint / "model.safetensors").unlink()
    places = {key: names[number % len(names)] for number, key in enumerate(weights)}
    for name in names:
        (checkpoint / name).parent.mkdir(exist_ok=True)
        save_file({key: weights[key] for key in weights if places[key] == name}, checkpoint / name, {"format": "pt"})
    index = {"metadata": {}, "weight_map": places | dict(more)}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))
    return checkpoint


def only_pickles(checkpoint: Path) -> None:
    """Replace the weights of a checkpoint by a pickle."""
    (checkpoint / "model.safetensors").unlink()
    torch.save({}, checkpoint / "pytorch_model.bin")


def write_checkpoint(directory: Path, architecture: str = "llama", seed: int = 0, **overrides: object) -> Path:
    """Write a complete Hugging Face checkpoint (config, safetensors, tokenizer) and return its directory."""
    with silence_libraries():
        return save(tiny_model(architecture, seed, **overrides), directory)


def save(model: PreTrainedModel, folder: Path) -> Path:
    """Write a model and the tokenizer of the tests, and return the folder."""
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def tree(path: Path) -> dict[str, bytes]:
    """All files of a store by name; a killed writer may leave a ``.partial`` file, which nothing reads."""
    found = {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    return {name: content for name, content in found.items() if not name.endswith(".partial")}


def settings(model: object, **others: object) -> ExtractionSettings:
    """Settings of a study of one short sequence."""
    named = model if isinstance(model, dict) else str(model)
    standard = {"model": named, "corpus": "embedded", "context_length": 32, "sequences": 1}
    return ExtractionSettings.model_validate(standard | others)


TOKENS = torch.arange(2 * 32).reshape(2, 32) * 7 % VOCABULARY


def compute_logits(model: PreTrainedModel) -> torch.Tensor:
    """The logits of ``TOKENS``."""
    with torch.inference_mode():
        return model(TOKENS).logits


def read_logits(model: object, **others: object) -> torch.Tensor:
    """The logits of the model that is loaded from files."""
    return compute_logits(load(describe(settings(model, **others))))


def change_config(checkpoint: Path, **fields: object) -> None:
    """Change fields of the configuration of a checkpoint."""
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(config | fields))
