"""Finding, describing and loading models: what works, and the one line for each mistake."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM

from extract import models
from extract.capture import capture, probe
from extract.hub import silence_libraries
from extract.models import describe, is_out_of_memory, load
from extract.settings import ExtractionSettings
from tests.extract.fake_hub import COMMIT, REFUSALS, ask_hub, serve
from tests.extract.families import Family, every_kind
from tests.extract.tiny import (
    change_config,
    compute_logits,
    read_logits,
    settings,
    split_weights,
    spread_out,
    tiny_tokenizer,
    write_checkpoint,
)
from tests.refusals import read_refusal


def refusal(model: Path | str | dict[str, object], **others: object) -> str:
    return read_refusal(lambda: load(describe(settings(model, **others))))


def test_the_hashes_tell_weights_configuration_and_tokenizer_apart(checkpoint: Path) -> None:
    first = describe(settings(checkpoint)).provenance
    assert describe(settings(checkpoint)).provenance == first
    tiny_tokenizer(bos=False).save_pretrained(checkpoint)
    second = describe(settings(checkpoint)).provenance
    assert second["model"] == first["model"]
    assert second["tokenizer"] != first["tokenizer"]
    write_checkpoint(checkpoint, seed=1)
    third = describe(settings(checkpoint)).provenance
    assert third["model"]["sha256"] != first["model"]["sha256"]
    assert third["tokenizer"] == first["tokenizer"]
    change_config(checkpoint, rms_norm_eps=1e-3)
    assert describe(settings(checkpoint)).provenance["model"]["sha256"] != third["model"]["sha256"]


def test_a_checkpoint_loads_as_asked_and_is_described(checkpoint: Path, capfd: pytest.CaptureFixture[str]) -> None:
    description = describe(settings(checkpoint, dtype="bfloat16", device="cpu"))
    model = load(description)
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


def only_pickles(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    torch.save({}, checkpoint / "pytorch_model.bin")


def cut_short(checkpoint: Path) -> None:
    weights = checkpoint / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-5000])


MISTAKES: dict[str, tuple[Callable[[Path], object], str]] = {
    "pickles": (only_pickles, r"has only pickled weights \(pytorch_model.bin\), which may run code"),
    "own code": (
        lambda path: change_config(path, model_type="own", auto_map={"AutoConfig": "own.Config"}),
        r"needs its own code \(trust_remote_code\), which is never run",
    ),
    "unknown type": (lambda path: change_config(path, model_type="own"), "is of type 'own', which transformers .* not"),
    "no decoder": (
        lambda path: change_config(path, model_type="t5"),
        "is of type 't5', which is not a causal language",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_broken_checkpoints_are_refused(mistake: str, checkpoint: Path) -> None:
    spoil, message = MISTAKES[mistake]
    spoil(checkpoint)
    said = refusal(checkpoint)
    assert str(checkpoint) in said
    assert re.search(message, said), said


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


def test_layers_on_several_devices_are_captured(checkpoint: Path) -> None:
    """The last layers stay on the disk and come when they are needed, as those of another device would."""
    spread = spread_out(checkpoint)
    assert {parameter.device.type for parameter in spread.parameters()} == {"cpu", "meta"}
    plain, ids = load(describe(settings(checkpoint))), torch.arange(40).reshape(2, 20)
    found, expected = (capture(model, probe(model, ids[:1]), ids, [7, 19]) for model in (spread, plain))
    assert torch.equal(found.weights, expected.weights)
    assert torch.equal(found.values, expected.values)


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
    def full(*_: object, **__: object) -> object:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")

    monkeypatch.setattr(models.AutoModelForCausalLM, "from_pretrained", full)
    said = "cannot be loaded: CUDA out of memory. Tried .*; set dtype: bfloat16 or device_map: auto"
    assert re.search(said, refusal(checkpoint))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"), False),
        (RuntimeError("expected scalar type Half"), False),
        (OSError("out of memory"), False),
    ],
)
def test_what_lack_of_memory_looks_like(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


def test_the_allocator_of_this_machine_is_understood() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.float32)
    assert is_out_of_memory(caught.value)


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


def test_random_weights_have_the_dtype_asked_for_and_may_be_spread(checkpoint: Path) -> None:
    model = load(describe(random_settings(checkpoint, dtype="bfloat16")))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert not model.training
    plain = load(describe(random_settings(checkpoint)))
    for device_map in ("auto", "balanced_low_0", "sequential"):
        spread = load(describe(random_settings(checkpoint, device_map=device_map)))
        with torch.inference_mode():
            assert torch.equal(spread(torch.arange(9)[None]).logits, plain(torch.arange(9)[None]).logits)


@pytest.mark.slow
def test_hub_ids_load_at_their_commit_or_say_what_to_do(checkpoint: Path, tmp_path: Path) -> None:
    pickled, sharded, evil, damaged, other, bare = (
        Path(shutil.copytree(checkpoint, tmp_path / name))
        for name in ("pickled", "sharded", "evil", "damaged", "other", "bare")
    )
    (bare / "model.safetensors").unlink()
    only_pickles(pickled)
    split_weights(sharded, "a.safetensors", "b.safetensors")
    split_weights(evil, "a.safetensors", "b.safetensors", more={"evil.bin": "evil.bin"})
    cut_short(damaged)
    change_config(other, intermediate_size=32)
    names = [*REFUSALS, "acme/tiny", "acme/pickled", "acme/sharded", "acme/evil", "acme/damaged", "acme/other"]
    served = {name: tmp_path / name.removeprefix("acme/") for name in (*names, "acme/bare") if name not in REFUSALS}
    with serve(served) as hub:
        asked = {name: {} for name in names} | {"acme/bare": {"weights": "random"}}
        said = ask_hub(asked, tmp_path / "home", hub.address)
    assert said["acme/tiny"][:2] == said["acme/sharded"][:2] == [COMMIT, "LlamaForCausalLM"]
    assert "names the weights 'evil.bin'; only safetensors files are read" in said["acme/evil"]
    downloaded = {file.name for file in (tmp_path / "home" / "hub" / "models--acme--evil").glob("snapshots/*/*")}
    assert "model.safetensors.index.json" in downloaded
    assert not downloaded & {"evil.bin", "a.safetensors", "b.safetensors"}
    assert "has weights that are not valid safetensors, 'model.safetensors'" in said["acme/damaged"]
    assert "has the shape [64, 64], expected [64, 32]" in said["acme/other"]
    assert (
        "accept its licence at https://huggingface.co/acme/gated, then log in with `hf auth login`"
        in said["acme/gated"]
    )
    assert "set HF_TOKEN" in said["acme/gated"]
    for name in ("acme/missing", "acme/private"):
        assert "is neither a local directory nor on the Hugging Face hub" in said[name]
    assert "no such revision" in said["acme/no-such-revision"]
    assert "no config.json" in said["acme/no-config"]
    assert "safetensors" in said["acme/pickled"]
    assert said["acme/bare"][:2] == [COMMIT, "LlamaForCausalLM"]
    assert "'weights': 'random'" in said["acme/bare"][2], "no weights are downloaded for random ones"


def test_an_unreachable_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    said = refusal("acme/never-downloaded")
    assert "nor in the local cache, and the Hugging Face hub cannot be reached" in said
    assert "check the network and HF_HUB_OFFLINE" in said


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
        model.save_pretrained(tmp_path)
        tiny_tokenizer().save_pretrained(tmp_path)
    assert torch.equal(read_logits(tmp_path), compute_logits(model))
