"""Finding, describing and loading models: no tensor stays unread or is made up; one line for each mistake."""

import logging
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    BartConfig,
    MptConfig,
    PreTrainedModel,
)

from attention_geometry import analyze
from extract.hub import silence_libraries
from extract.models import loading as models
from extract.models.architectures import find_most_tokens
from extract.models.loading import describe, is_out_of_memory, load, round_weights
from extract.settings import ExtractionSettings
from storage.errors import UserError
from tests.extract.fake_hub import COMMIT, REFUSALS, reach
from tests.extract.families import Family, every_kind
from tests.extract.gguf_files import write_gguf
from tests.extract.tiny import (
    VOCABULARY,
    change_config,
    compute_logits,
    only_pickles,
    read_logits,
    save,
    settings,
    split_weights,
    text,
    tiny_model,
    tiny_tokenizer,
    write_checkpoint,
)
from tests.refusals import read_refusal


def refusal(model: Path | str | dict[str, object], **others: object) -> str:
    return read_refusal(lambda: load(describe(settings(model, **others))))


def test_a_checkpoint_loads_as_asked_and_is_described(checkpoint: Path, capfd: pytest.CaptureFixture[str]) -> None:
    description = describe(settings(checkpoint, dtype="bfloat16", device="cpu"))
    for model in (load(description), load(describe(random_settings(checkpoint, dtype="bfloat16")))):
        assert not model.training
        assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert description.provenance["model"]["id"] == str(checkpoint)
    assert description.provenance["model"]["architecture"] == "LlamaForCausalLM"
    assert capfd.readouterr() == ("", "")  # no bars, no notices


def test_a_vocabulary_of_special_tokens_is_no_tokenizer(tmp_path: Path) -> None:
    """Where there are no files, some tokenizers of transformers make do with none."""
    checkpoint = write_checkpoint(tmp_path / "gpt2", "gpt2")
    (checkpoint / "tokenizer.json").unlink()
    (checkpoint / "tokenizer_config.json").unlink()
    (checkpoint / "dict.txt").write_text("of another tokenizer")
    assert "has no tokenizer that can be read; save one in its directory with" in refusal(checkpoint)


def cut_short(checkpoint: Path) -> None:
    weights = checkpoint / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-5000])


def test_code_beside_a_known_architecture_is_not_run(checkpoint: Path) -> None:
    trap = checkpoint / "trap.py"
    trap.write_text(f"open({str(checkpoint / 'sprung')!r}, 'w')")
    change_config(checkpoint, auto_map={"AutoConfig": "trap.C", "AutoModelForCausalLM": "trap.M"})
    load(describe(settings(checkpoint)))
    assert not (checkpoint / "sprung").exists()


@pytest.mark.parametrize(("device", "count"), [("cuda", 0), ("cuda:1", 1)])
def test_an_absent_cuda_device(device: str, count: int, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    said = refusal(checkpoint, device=device)
    assert f"The device '{device}' is requested, but this machine has {count} CUDA devices" in said


def test_weights_are_read_once_to_where_they_stay(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    original = AutoModelForCausalLM.from_pretrained

    def recorder(*arguments: object, **others: object) -> object:
        asked.append(others["device_map"])
        return original(*arguments, **others)

    monkeypatch.setattr(models.AutoModelForCausalLM, "from_pretrained", recorder)
    monkeypatch.setattr(torch.nn.Module, "to", lambda *_, **__: pytest.fail("the weights were moved"))
    load(describe(settings(checkpoint)))
    load(describe(settings(checkpoint, device_map="balanced")))
    assert asked == [{"": torch.device("cpu")}, "balanced"]


def test_a_model_larger_than_the_memory(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")
    monkeypatch.setattr(models.AutoModelForCausalLM, "from_pretrained", Mock(side_effect=full))
    said = "cannot be loaded: CUDA out of memory. Tried .*; set dtype: bfloat16 or device_map: auto"
    assert re.search(said, refusal(checkpoint))


def find_error_of_this_machine() -> Exception:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.float32)
    return caught.value


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), True),
        (find_error_of_this_machine(), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"), False),
        (RuntimeError("expected scalar type Half"), False),
        (OSError("out of memory"), False),
    ],
)
def test_what_lack_of_memory_looks_like(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


# --- random weights ---


def random_settings(model: Path | str, seed: int | None = None, **others: object) -> ExtractionSettings:
    return settings({"id": str(model), "weights": "random", "weights_seed": seed}, **others)


def parameters(described: models.Description) -> dict[str, torch.Tensor]:
    return load(described).state_dict()


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_random_weights_follow_the_seed_and_nothing_else(checkpoint: Path) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = parameters(describe(random_settings(checkpoint, seed=3)))
    assert torch.equal(torch.get_rng_state(), before)  # whoever else draws is not disturbed
    torch.manual_seed(6)
    assert equal(parameters(describe(random_settings(checkpoint, 3))), first)
    assert equal(parameters(describe(random_settings(checkpoint, seed=None).model_copy(update={"seed": 3}))), first)
    assert equal(parameters(describe(random_settings(checkpoint, 3).model_copy(update={"seed": 9}))), first)
    assert not equal(parameters(describe(random_settings(checkpoint, 4))), first)
    trained = parameters(describe(settings(checkpoint)))
    assert trained.keys() == first.keys()
    assert {name: weight.shape for name, weight in trained.items()} == {n: weight.shape for n, weight in first.items()}
    assert not any(torch.equal(first[name], trained[name]) for name in first if name.endswith("proj.weight"))


def test_random_weights_may_be_spread(checkpoint: Path) -> None:
    plain = load(describe(random_settings(checkpoint)))
    for device_map in ("auto", "balanced_low_0", "sequential"):
        spread = load(describe(random_settings(checkpoint, device_map=device_map)))
        with torch.inference_mode():
            assert torch.equal(spread(torch.arange(9)[None]).logits, plain(torch.arange(9)[None]).logits)


@pytest.mark.slow
def test_hub_ids_load_at_their_commit_or_say_what_to_do(
    checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And the token is sent, but neither told nor stored."""
    said: dict[str, Any] = {}
    token = "hf_NobodyShallEverReadThis"
    monkeypatch.setenv("HF_TOKEN", token)
    caplog.set_level(logging.DEBUG)
    pickled, sharded, evil, damaged, other, bare = (
        Path(shutil.copytree(checkpoint, tmp_path / name))
        for name in ("pickled", "sharded", "evil", "damaged", "other", "bare")
    )
    (tmp_path / "file").mkdir()
    write_gguf(tmp_path / "file" / "tiny.gguf")  # which needs nothing else
    (bare / "model.safetensors").unlink()
    only_pickles(pickled)
    split_weights(sharded, "a.safetensors", "b.safetensors")
    split_weights(evil, "a.safetensors", "b.safetensors", more={"evil.bin": "evil.bin"})
    cut_short(damaged)
    change_config(other, intermediate_size=32)
    names = [*REFUSALS, "acme/tiny", "acme/pickled", "acme/sharded", "acme/evil", "acme/damaged", "acme/other"]
    asked = (
        {name: {} for name in names}
        | {"acme/bare": {"weights": "random"}, "acme/file": {"gguf": "tiny.gguf"}}
        | {"acme/empty": {"gguf": "tiny.gguf"}}
    )
    (tmp_path / "empty").mkdir()
    served = {name: tmp_path / name.removeprefix("acme/") for name in asked if name not in REFUSALS}
    with reach(served, tmp_path / "cache", monkeypatch) as hub:
        for name, more in asked.items():
            try:
                found = describe(settings({"id": name, **more}))
                said[name] = [found.source.commit, type(load(found)).__name__, str(found.provenance)]
            except UserError as error:
                said[name] = str(error)
    assert hub.tokens - {None} == {f"Bearer {token}"}  # whether there is a hub is asked without one
    assert token not in str(said) + caplog.text
    assert not any(token.encode() in file.read_bytes() for file in (tmp_path / "cache").rglob("*") if file.is_file())
    assert capfd.readouterr() == ("", "")
    assert said["acme/tiny"][:2] == said["acme/sharded"][:2] == [COMMIT, "LlamaForCausalLM"]
    assert "names the weights 'evil.bin'; only safetensors files are read" in said["acme/evil"]
    downloaded = {file.name for file in (tmp_path / "cache" / "hub" / "models--acme--evil").glob("snapshots/*/*")}
    assert "model.safetensors.index.json" in downloaded
    assert not downloaded & {"evil.bin", "a.safetensors", "b.safetensors"}
    assert "has weights that are not valid safetensors, 'model.safetensors'" in said["acme/damaged"]
    assert "has the shape [64, 64], expected [64, 32]" in said["acme/other"]
    gated = said["acme/gated"]
    assert "accept its licence at https://huggingface.co/acme/gated, then log in with `hf auth login`" in gated
    assert "set HF_TOKEN" in gated
    for name in ("acme/missing", "acme/private"):
        assert "is neither a local directory nor on the Hugging Face hub" in said[name]
    assert "no such revision" in said["acme/no-such-revision"]
    assert "no config.json" in said["acme/no-config"]
    assert "safetensors" in said["acme/pickled"]
    assert said["acme/bare"][:2] == [COMMIT, "LlamaForCausalLM"]
    assert said["acme/file"][:2] == [COMMIT, "LlamaForCausalLM"]
    assert "F32, converted to float32" in said["acme/file"][2]
    assert said["acme/empty"].endswith("has no tiny.gguf on the Hugging Face hub; check its name")
    assert "'weights': 'random'" in said["acme/bare"][2], "no weights are downloaded for random ones"


@pytest.mark.one_case
@every_kind
def test_every_family_is_drawn_whole_and_read_back_whole(family: Family, tmp_path: Path) -> None:
    """Memory that nobody writes is filled with NaN, so that a weight left out is found."""
    torch.use_deterministic_algorithms(True)
    try:
        config = getattr(transformers, family.config)(**family.settings)
        asked = random_settings(Path("nowhere"), seed=1)
        source = models.Source(family.name, "nowhere", None)
        described = models.Description(source, config, tiny_tokenizer(), torch.device("cpu"), asked, {})
        model, second = load(described), load(described).state_dict()
    finally:
        torch.use_deterministic_algorithms(False)
    assert equal(model.state_dict(), second)
    assert all(weight.isfinite().all() for weight in second.values())
    with silence_libraries():
        assert torch.equal(read_logits(save(model, tmp_path)), compute_logits(model))


Weights = dict[str, Tensor]
LAYER = "model.layers.1"


def change(checkpoint: Path, weights: Callable[[Weights], object] = dict, **config: object) -> Path:
    """Change the stored tensors, and fields of the configuration."""
    tensors = load_file(checkpoint / "model.safetensors")
    weights(tensors)
    save_file(tensors, checkpoint / "model.safetensors", metadata={"format": "pt"})
    change_config(checkpoint, **config)
    return checkpoint


def add(name: str, tensor: Tensor) -> Callable[[Weights], None]:
    """Store a further tensor."""
    return lambda weights: weights.update({name: tensor})


def store_scaled(weights: Weights) -> None:
    """Block fp8 with a scale for each block."""
    weights[f"{UP}_scale_inv"] = torch.full((1, 1), 8.0)
    weights[UP] = (weights[UP] / 8).to(torch.float8_e4m3fn)


ATTENTION = "model.layers.0.self_attn"
UP = f"{LAYER}.mlp.up_proj.weight"
BASE = 500000 ** -(torch.arange(0, 16, 2) / 16)
OTHER_TENSORS: dict[str, tuple[Callable[[Weights], object], Mapping[str, object], str]] = {
    "biases": (add(f"{LAYER}.self_attn.q_proj.bias", torch.ones(64)), {}, "q_proj.bias: biases that the config.json"),
    "a layer too many": (dict, {"num_hidden_layers": 2}, "layers beyond the 2 of the config.json"),
    "norms of queries": (add(f"{ATTENTION}.q_norm.weight", torch.ones(16)), {}, "q_norm.weight: parts of another"),
    "learned sinks": (add(f"{ATTENTION}.sinks", torch.ones(4)), {}, "layers.0.self_attn.sinks: parts of another"),
    "a tower of a model without pictures": (add("vision_tower.weight", torch.ones(4)), {}, "not read, vision_tower."),
    "an adapter": (add(f"{ATTENTION}.q_proj.lora_A.weight", torch.ones(2, 64)), {}, "an adapter that is not merged"),
    "scales": (add(f"{UP}_scale", torch.ones(1)), {}, "scales of quantised weights"),
    "fp8 without its configuration": (store_scaled, {}, "up_proj.weight as F8_E4M3, but its config.json has no"),
    "no head": (lambda weights: weights.pop("lm_head.weight"), {}, "lack 1 tensors, such as lm_head.weight"),
    "a tensor under two names": (
        lambda weights: add(UP.removeprefix("model."), weights[UP] + 1)(weights),
        {},
        "under two names, layers.1.mlp.up_proj.weight and model.layers",
    ),
    "another base of rotation": (
        add(f"{ATTENTION}.rotary_emb.inv_freq", BASE),
        {},
        "holds rotary frequencies that are not those of its config",
    ),
}


@pytest.mark.parametrize("mistake", OTHER_TENSORS)
def test_tensors_that_are_not_those_of_the_model_are_refused(mistake: str, checkpoint: Path) -> None:
    weights, config, said = OTHER_TENSORS[mistake]
    change(checkpoint, weights, **config)
    found = read_refusal(read_logits, checkpoint)
    assert str(checkpoint) in found
    assert re.search(said, found), found


def test_tensors_in_two_files_and_files_that_are_not_read_are_refused(checkpoint: Path) -> None:
    stray = checkpoint / "model-00002-of-00002.safetensors"
    save_file({"model.layers.3.self_attn.q_proj.weight": torch.ones(64, 64)}, stray, metadata={"format": "pt"})
    said = "has a part of weights that is not read, 'model-00002-of-00002.safetensors', beside model.safetensors"
    assert said in read_refusal(read_logits, checkpoint)
    stray.unlink()
    split_weights(checkpoint, "a.safetensors", "b.safetensors")
    first, second = (load_file(checkpoint / f"{name}.safetensors") for name in "ab")
    name = next(iter(first))
    save_file(second | {name: first[name] + 1}, checkpoint / "b.safetensors", metadata={"format": "pt"})
    assert f"has the tensor {name} in two of its weights files" in read_refusal(read_logits, checkpoint)


def test_rests_of_older_versions_do_not_matter(checkpoint: Path, tmp_path: Path) -> None:
    """What older versions of transformers stored."""
    before = read_logits(checkpoint)
    change(
        checkpoint,
        add("model.layers.0.self_attn.rotary_emb.inv_freq", (10000 ** -(torch.arange(0, 16, 2) / 16)).bfloat16()),
    )
    change(checkpoint, add("mtp.layers.0.self_attn.q_proj.weight", torch.ones(4)))
    assert torch.equal(read_logits(checkpoint), before)
    gpt2 = write_checkpoint(tmp_path / "gpt2", "gpt2")
    before, mask = read_logits(gpt2), torch.ones(1, 1, 64, 64, dtype=torch.bool).tril()
    change(gpt2, add("transformer.h.0.attn.masked_bias", torch.tensor(-1e4)))
    assert torch.equal(read_logits(change(gpt2, add("transformer.h.0.attn.bias", mask))), before)
    change(gpt2, add("transformer.h.0.attn.bias", torch.ones(64)))
    assert "does not read, transformer.h.0.attn.bias: biases" in read_refusal(read_logits, gpt2)


def round_blocks(rows: np.ndarray, kind: str) -> np.ndarray:
    """The definition: blocks of 32 numbers, each a scale, perhaps a minimum, and whole numbers.

    Scales and minima are stored as float16, and the numbers are rounded with those before they were.
    """
    blocks = rows.astype(np.float32).reshape(-1, 32)
    if kind == "Q8_0":
        scale, least = np.abs(blocks).max(1, keepdims=True) / 127, np.zeros((len(blocks), 1))
    else:
        least = blocks.min(1, keepdims=True)
        scale = (blocks.max(1, keepdims=True) - least) / 15
    numbers = (blocks - least) / np.where(scale == 0, 1, scale)  # the row of the padding token is zero
    half = np.copysign(np.floor(np.abs(numbers) + 0.5), numbers)  # halves away from 0
    stored = scale.astype(np.float16).astype(np.float64), least.astype(np.float16).astype(np.float64)
    return (half * stored[0] + stored[1]).reshape(rows.shape)


@pytest.mark.parametrize(("kind", "architecture"), [("Q8_0", "llama"), ("Q4_1", "gpt2")])
def test_matrices_are_rounded_by_blocks_and_vectors_are_not(kind: str, architecture: str) -> None:
    model, rounded = tiny_model(architecture), tiny_model(architecture)
    round_weights(rounded, kind)
    after = dict(rounded.named_parameters())
    for name, weight in model.named_parameters():
        if weight.ndim < 2:
            assert torch.equal(after[name], weight)
            continue
        transposed = "c_" in name  # GPT-2 multiplies by the transposed matrix
        given, found = ((one.T if transposed else one).detach().numpy() for one in (weight, after[name]))
        assert np.abs(found - given).max() > 0
        close = np.isclose(found, round_blocks(given, kind), rtol=1e-5, atol=1e-6)
        assert close.mean() > 0.999, (name, close.mean())  # numbers halfway between two may go either way
        if transposed:
            assert not np.allclose(found, round_blocks(given.T, kind).T, atol=1e-6), "blocks along the other axis"


def test_a_study_says_what_its_weights_were_rounded_to_and_what_cannot_be_is_refused(checkpoint: Path) -> None:
    rounded, plain = (describe(settings({"id": str(checkpoint)} | more)) for more in ({"quantised": "Q4_1"}, {}))
    assert rounded.provenance["model"]["quantisation"].startswith("rounded to Q4_1, dequantised to float32")
    assert "quantisation" not in plain.provenance["model"]
    exact = load(plain).get_input_embeddings().weight.detach().numpy()
    found = load(rounded).get_input_embeddings().weight.detach().numpy()
    np.testing.assert_allclose(found, round_blocks(exact, "Q4_1"), atol=1e-5)
    with pytest.raises(UserError, match="has rows of 40, no multiple of 32"):
        round_weights(tiny_model("llama", intermediate_size=40), "Q8_0")
    for model in ({"id": str(checkpoint), "weights": "random"}, {"id": "synthetic"}):
        with pytest.raises(ValueError, match="only allowed with trained weights"):
            settings({**model, "quantised": "Q8_0"})


# --- wrappers around a model, as those of PEFT 0.21, and models that read more than their text ---

TEXT = text(6)


class Wrapper(nn.Module):
    """What passes its input on to a model, whose attributes it also has."""

    def __init__(self, base_model: nn.Module) -> None:
        super().__init__()
        self.base_model = base_model

    def __getattr__(self, name: str) -> object:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.base_model, name)

    def forward(self, input_ids: Tensor, **given: object) -> object:
        """The output of the model."""
        return self.base_model(input_ids=input_ids, **given)


class PromptTuning(Wrapper):
    """A learned prompt before the embeddings of the text."""

    def forward(self, input_ids: Tensor, **given: object) -> object:
        """The output of the model, also at the prompt."""
        own = self.base_model.get_input_embeddings()(input_ids)
        return self.base_model(inputs_embeds=torch.cat([torch.ones(1, 5, 64), own], dim=1), **given)


class AdaptedAttention(Wrapper):
    """Attention and, after a softmax of its own, learned keys."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.adaption_prompt = nn.Parameter(torch.ones(1, 4, 64))


def give_prompts(model: PreTrainedModel) -> nn.Module:
    """A model with PEFT's ``AdaptedAttention``."""
    model.model.layers[1].self_attn = AdaptedAttention(model.model.layers[1].self_attn)
    return Wrapper(model)


def measure(model: nn.Module) -> pa.Table:
    """What ``analyze`` finds the heads of a model to select."""
    return analyze(model, tiny_tokenizer(), TEXT).selection


def test_a_wrapper_that_changes_weights_is_measured_with_its_changes() -> None:
    inner = tiny_model()
    before = measure(inner)
    for layer in inner.model.layers:
        layer.self_attn.q_proj = nn.Sequential(layer.self_attn.q_proj, nn.Linear(64, 64))
    after = measure(Wrapper(Wrapper(inner)).eval())  # as PEFT's ``PeftModel(LoraModel(model))``
    assert after.equals(measure(inner))  # which the adapter has changed
    assert not after.equals(before)


@pytest.mark.parametrize(
    ("wrap", "said"),
    [
        (PromptTuning, "computes other numbers than the LlamaForCausalLM inside it, as with a learned prompt"),
        (give_prompts, r"learned keys beside those of the text (model.layers.1.self_attn.adaption_prompt)"),
        (lambda _: nn.Linear(2, 2), "Linear has no model of transformers inside"),
        (lambda model: nn.Sequential(nn.Linear(2, 2), model), "Sequential cannot read plain tokens"),
    ],
)
def test_a_wrapper_that_computes_something_else_is_refused(wrap: Callable[[nn.Module], nn.Module], said: str) -> None:
    assert said in read_refusal(measure, wrap(tiny_model()))


def test_a_checkpoint_of_an_encoder_decoder_is_refused_before_its_weights(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "bart")
    BartConfig(vocab_size=VOCABULARY, d_model=64).save_pretrained(path)
    said = read_refusal(describe, settings(path))
    assert f"The model '{path}' of type 'bart' is an encoder–decoder" in said


def test_the_most_tokens_are_those_of_the_configuration_or_of_a_learned_table() -> None:
    gpt2 = tiny_model("gpt2")
    assert find_most_tokens(gpt2) == 64
    gpt2.transformer.wpe = nn.Embedding(8, 64)
    assert find_most_tokens(gpt2) == 8
    assert "but GPT2LMHeadModel reads at most 8; give a shorter text" in read_refusal(measure, gpt2)
    mpt = MptConfig(d_model=64, n_heads=4, n_layers=1, vocab_size=VOCABULARY, max_seq_len=8)
    assert "but MptForCausalLM reads at most 8" in read_refusal(measure, AutoModelForCausalLM.from_config(mpt).eval())
