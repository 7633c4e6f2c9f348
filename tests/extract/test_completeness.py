"""A model is the one in its safetensors: no stored tensor stays unread, and no tensor of the model is made up."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.extract.tiny import (
    change_config,
    read_logits,
    split_weights,
    write_checkpoint,
)
from tests.refusals import read_refusal

Weights = dict[str, Tensor]
LAYER = "model.layers.1"


def change(checkpoint: Path, weights: Callable[[Weights], object] = dict, **config: object) -> Path:
    """Change the stored tensors, and fields of the configuration."""
    tensors = load_file(checkpoint / "model.safetensors")
    weights(tensors)
    save_file(tensors, checkpoint / "model.safetensors", metadata={"format": "pt"})
    change_config(checkpoint, **config)
    return checkpoint


def add(**tensors: Tensor) -> Callable[[Weights], None]:
    """Store further tensors, whose names have ``__`` for dots."""
    return lambda weights: weights.update({name.replace("__", "."): value for name, value in tensors.items()})


def store_biases(weights: Weights) -> None:
    weights |= {f"{LAYER}.self_attn.{name}_proj.bias": torch.ones(64) for name in "qo"}


def store_scaled(weights: Weights) -> None:
    """Block fp8 with a scale for each block."""
    name = f"{LAYER}.mlp.up_proj.weight"
    weights[f"{name}_scale_inv"] = torch.full((1, 1), 8.0)
    weights[name] = (weights[name] / 8).to(torch.float8_e4m3fn)


def store_twice(weights: Weights) -> None:
    weights["layers.1.self_attn.q_proj.weight"] = weights[f"{LAYER}.self_attn.q_proj.weight"] + 1


ATTENTION = "model__layers__0__self_attn"
MISTAKES: dict[str, tuple[Callable[[Weights], object], Mapping[str, object], str]] = {
    "biases": (store_biases, {}, f"does not read, {LAYER}.self_attn.o_proj.bias, .*: biases that the config.json"),
    "a layer too many": (dict, {"num_hidden_layers": 2}, "layers beyond the 2 of the config.json"),
    "norms of queries": (add(**{f"{ATTENTION}__q_norm__weight": torch.ones(16)}), {}, "q_norm.weight: parts of anoth"),
    "learned sinks": (add(**{f"{ATTENTION}__sinks": torch.ones(4)}), {}, "layers.0.self_attn.sinks: parts of another"),
    "a tower of a model without pictures": (add(vision_tower__weight=torch.ones(4)), {}, "not read, vision_tower."),
    "an adapter": (add(**{f"{ATTENTION}__q_proj__lora_A__weight": torch.ones(2, 64)}), {}, "adapter that is not"),
    "scales": (add(model__layers__0__mlp__up_proj__weight_scale=torch.ones(1)), {}, "scales of quantised weights"),
    "fp8 without its configuration": (store_scaled, {}, "up_proj.weight as F8_E4M3, but its config.json has no"),
    "no head": (lambda weights: weights.pop("lm_head.weight"), {}, "lack 1 tensors, such as lm_head.weight"),
    "a tensor under two names": (store_twice, {}, "under two names, layers.1.self_attn.q_proj.weight and model.layers"),
    "another base of rotation": (
        add(**{f"{ATTENTION}__rotary_emb__inv_freq": 500000 ** -(torch.arange(0, 16, 2) / 16)}),
        {},
        "holds rotary frequencies that are not those of its config.json",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_tensors_that_are_not_those_of_the_model_are_refused(mistake: str, checkpoint: Path) -> None:
    weights, config, said = MISTAKES[mistake]
    change(checkpoint, weights, **config)
    found = read_refusal(read_logits, checkpoint)
    assert str(checkpoint) in found
    assert re.search(said, found), found


def test_a_tensor_in_two_files_is_refused(checkpoint: Path) -> None:
    split_weights(checkpoint, "a.safetensors", "b.safetensors")
    first, second = (load_file(checkpoint / f"{name}.safetensors") for name in "ab")
    name = next(iter(first))
    save_file(second | {name: first[name] + 1}, checkpoint / "b.safetensors", metadata={"format": "pt"})
    assert f"has the tensor {name} in two of its weights files" in read_refusal(read_logits, checkpoint)


def test_a_part_that_is_not_read_is_refused(checkpoint: Path) -> None:
    more = {"model.layers.3.self_attn.q_proj.weight": torch.ones(64, 64)}
    save_file(more, checkpoint / "model-00002-of-00002.safetensors", metadata={"format": "pt"})
    said = "has a part of weights that is not read, 'model-00002-of-00002.safetensors', beside model.safetensors"
    assert said in read_refusal(read_logits, checkpoint)


def store_rests(weights: Weights) -> None:
    """What older versions of transformers stored."""
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = (10000 ** -(torch.arange(0, 16, 2) / 16)).bfloat16()
    weights["mtp.layers.0.self_attn.q_proj.weight"] = torch.ones(4)


def test_rests_of_older_versions_do_not_matter(checkpoint: Path, tmp_path: Path) -> None:
    before = read_logits(checkpoint)
    assert torch.equal(read_logits(change(checkpoint, store_rests)), before)
    gpt2 = write_checkpoint(tmp_path / "gpt2", "gpt2")
    before, mask = read_logits(gpt2), torch.ones(1, 1, 64, 64, dtype=torch.bool).tril()
    masks = add(transformer__h__0__attn__bias=mask, transformer__h__0__attn__masked_bias=torch.tensor(-1e4))
    assert torch.equal(read_logits(change(gpt2, masks)), before)
    change(gpt2, add(transformer__h__0__attn__bias=torch.ones(64)))
    assert "does not read, transformer.h.0.attn.bias: biases" in read_refusal(read_logits, gpt2)


def test_embeddings_stored_twice_are_as_they_are_stored(tmp_path: Path) -> None:
    """A file that holds a head is believed, whatever its configuration says about tying."""
    own = write_checkpoint(tmp_path / "own", tie_word_embeddings=False)
    before = read_logits(own)
    assert torch.equal(read_logits(change(own, tie_word_embeddings=True)), before)
