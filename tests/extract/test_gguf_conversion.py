"""A GGUF file is read as the same weights in safetensors, or refused: every entry and tensor of every architecture."""

from collections.abc import Callable
from pathlib import Path

import pytest

from extract.gguf_loading import list_architectures
from tests.extract.gguf_conversion import (
    WRITTEN,
    Entries,
    Trial,
    judge,
    list_entries,
    list_tensors,
    make_written,
    try_everything,
)

every_architecture = pytest.mark.parametrize("architecture", WRITTEN)


def make_trial(architecture: str, meant: dict[str, object], **entries: object) -> Trial:
    """The file of a model with some fields, and with entries in place of some of its own; ``__`` stands for dots."""
    model = make_written(architecture, **meant)
    changed: Entries = {name.replace("__", "."): value for name, value in entries.items()}
    own = list_entries(architecture, model.config) | changed
    return Trial("", own, list_tensors(architecture, model), model)


def test_all_architectures_are_tried() -> None:
    assert [*WRITTEN] == list_architectures()


@every_architecture
def test_a_file_is_read_as_the_same_weights_in_safetensors(architecture: str, tmp_path: Path) -> None:
    assert judge(make_trial(architecture, {}), architecture, tmp_path) == ("same", "0.0e+00")


ROTATION = {"rope_type": "default", "rope_theta": 999999.44}
SCALED = {"rope__scaling__type": "linear", "rope__scaling__factor": 8.0}
MEANT: dict[str, tuple[str, dict[str, object]]] = {
    "biases of LLaMA": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "base and window of StarCoder 2": ("starcoder2", {"rope_parameters": ROTATION, "sliding_window": 8}),
    "a head size of its own": ("qwen3", {"head_dim": 32}),
    "caps of Gemma 2": ("gemma2", {"attn_logit_softcapping": 1.0, "final_logit_softcapping": 1.0}),
    "a window of Phi 3": ("phi3", {"sliding_window": 8}),
    "scaled positions of the layers of Gemma 3 that see all keys": (
        "gemma3",
        {
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            }
        },
    ),
    "positions of GPT-2": ("gpt2", {"n_positions": 50}),
    "layers side by side": ("stablelm", {"use_parallel_residual": True}),
}


@pytest.mark.parametrize("what", MEANT)
def test_fields_that_the_reader_of_transformers_forgets_are_read(what: str, tmp_path: Path) -> None:
    architecture, meant = MEANT[what]
    trial = make_trial(architecture, meant, **SCALED if "scaled" in what else {})
    assert judge(trial, architecture, tmp_path)[0] == "same"
    other = Trial("", trial.entries, trial.tensors, make_written(architecture))
    if what not in {"biases of LLaMA", "a head size of its own", "positions of GPT-2"}:  # which random numbers follow
        assert judge(other, architecture, tmp_path)[0] == "silent"  # so that the comparison is one


REFUSED: dict[str, tuple[str, Callable[[], Trial], str]] = {
    "factor of attention": (
        "llama",
        lambda: make_trial("llama", {}, rope__scaling__attn_factor=4.0),
        "says llama.rope.scaling.attn_factor = 4.0, but the model that transformers builds has 1 in its place",
    ),
    "fewer layers": (
        "llama",
        lambda: make_trial("llama", {}, block_count=1),
        "does not read, blk.1.attn_q.weight, blk.1.attn_k.weight, blk.1.attn_v.weight and 6 more: layers beyond the 1",
    ),
    "window of a model without": (
        "qwen2",
        lambda: make_trial("qwen2", {}, attention__sliding_window=8),
        "says qwen2.attention.sliding_window = 8, but the model that transformers builds has 0 in its place",
    ),
    "unknown entry": (
        "llama",
        lambda: make_trial("llama", {}, attention__of_tomorrow=3),
        "says llama.attention.of_tomorrow = 3, but the model that transformers builds has nothing that reads it",
    ),
    "heads by layer": (
        "llama",
        lambda: make_trial("llama", {}, attention__head_count_kv=[2, 4]),
        "attention.head_count_kv = [2, 4], but the model that transformers builds has the same in all layers",
    ),
    "window that StarCoder 2 needs": (
        "starcoder2",
        lambda: make_trial("starcoder2", {"sliding_window": None}),
        "has no starcoder2.attention.sliding_window, without which the model is not known",
    ),
    "scale that Gemma needs": (
        "gemma3",
        lambda: make_trial("gemma3", {}, attention__scale=0.0),
        "does not say the scale of its logits, which is known for the published sizes of gemma3 (layers, width), (18",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_file_of_another_model_is_refused(what: str, tmp_path: Path) -> None:
    architecture, make, expected = REFUSED[what]
    end, said = judge(make(), architecture, tmp_path)
    assert end == "refused"
    assert "\n" not in said
    assert expected in said


@pytest.mark.long
@every_architecture
def test_no_entry_and_no_tensor_is_ignored(architecture: str, tmp_path: Path) -> None:
    ends, silent = try_everything(architecture, tmp_path)
    assert silent == []
    assert min(ends["same"], ends["refused"]) > 0
