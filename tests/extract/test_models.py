"""Finding, describing and loading models: what works, and the one line for each mistake."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from safetensors.torch import load_file, save_file

from extract import models
from extract.models import describe, load, token_texts
from extract.settings import ExtractionSettings, ModelSettings
from storage.errors import UserError
from tests.extract.fake_hub import COMMIT, REFUSALS, serve
from tests.extract.tiny import VOCABULARY, text, tiny_tokenizer, write_checkpoint


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def checkpoint(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "tiny"))


def settings(model: Path | str, **others: object) -> ExtractionSettings:
    return ExtractionSettings(model=str(model), corpus="embedded", **({"context_length": 32, "sequences": 1} | others))


def refusal(model: Path | str, **others: object) -> str:
    with pytest.raises(UserError) as caught:
        load(describe(settings(model, **others)))
    message = str(caught.value)
    assert "\n" not in message
    return message


def change_config(checkpoint: Path, **fields: object) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(config | fields))


def test_a_checkpoint_loads_as_asked_and_is_described(checkpoint: Path, capfd: pytest.CaptureFixture[str]) -> None:
    description = describe(settings(checkpoint, dtype="bfloat16", device="cpu"))
    model = load(description)
    assert not model.training
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert description.provenance["model"]["id"] == str(checkpoint)
    assert description.provenance["model"]["architecture"] == "LlamaForCausalLM"
    assert capfd.readouterr() == ("", "")  # no bars, no notices


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


def test_the_embedded_model_is_a_directory_of_the_package(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert models._embedded().parent == Path(models.__file__).parent / "embedded"
    monkeypatch.setattr(models, "_embedded", lambda: checkpoint)
    provenance = describe(settings("embedded")).provenance["model"]
    assert provenance["id"] == "embedded"
    assert str(checkpoint) not in str(provenance)


def test_a_path_with_a_tilde_is_local(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(checkpoint.parent))
    assert describe(settings("~/tiny")).source.location == str(checkpoint)


@pytest.mark.parametrize("name", ["/no/such", "./no-such", "~/no-such", "a/b/c", "no such"])
def test_a_missing_directory(name: str) -> None:
    assert f"There is no model directory '{name}'" in refusal(name)


def only_pickles(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    torch.save({}, checkpoint / "pytorch_model.bin")


def cut_short(checkpoint: Path) -> None:
    weights = checkpoint / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-5000])


def lacking_a_tensor(checkpoint: Path) -> None:
    weights = load_file(checkpoint / "model.safetensors")
    del weights["model.layers.1.self_attn.v_proj.weight"]
    save_file(weights, checkpoint / "model.safetensors", metadata={"format": "pt"})


MISTAKES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda path: (path / "config.json").unlink(), "has no config.json"),
    "broken config": (lambda path: (path / "config.json").write_text("{"), "config.json .* is not valid"),
    "no weights": (lambda path: (path / "model.safetensors").unlink(), "has no weights; write safetensors"),
    "pickles": (only_pickles, r"has pickled weights only \(pytorch_model.bin\), which may run code"),
    "cut short": (cut_short, "weights of the model .* cannot be loaded"),
    "a lacking tensor": (lacking_a_tensor, "lack 1 tensors, such as model.layers.1.self_attn.v_proj.weight"),
    "a lacking layer": (lambda path: change_config(path, num_hidden_layers=4), "lack 9 tensors"),
    "other shapes": (lambda path: change_config(path, intermediate_size=32), "cannot be loaded"),
    "own code": (
        lambda path: change_config(path, model_type="own", auto_map={"AutoConfig": "own.Config"}),
        r"needs code of its own \(trust_remote_code\), which is never run",
    ),
    "unknown type": (lambda path: change_config(path, model_type="own"), "is of type 'own', which transformers .* not"),
    "no decoder": (lambda path: change_config(path, model_type="t5"), "is of type 't5', which is no causal language"),
    "no tokenizer": (lambda path: (path / "tokenizer.json").unlink(), "has no tokenizer that can be read"),
    "broken tokenizer": (lambda path: (path / "tokenizer.json").write_text("{"), "has no tokenizer that can be read"),
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


def test_a_context_longer_than_the_model(checkpoint: Path) -> None:
    describe(settings(checkpoint, context_length=64))
    assert "at most 64 tokens, context_length asks for 65; set context_length to 64" in refusal(
        checkpoint, context_length=65
    )


@pytest.mark.parametrize(("device", "count"), [("cuda", 0), ("cuda:1", 1)])
def test_an_absent_cuda_device(device: str, count: int, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    said = refusal(checkpoint, device=device)
    assert f"The device '{device}' is asked for, but this machine has {count} CUDA devices" in said


def test_token_texts_keep_spaces_and_special_tokens(checkpoint: Path) -> None:
    ids = tiny_tokenizer()(text(50))["input_ids"]
    texts = token_texts(ModelSettings(id=str(checkpoint)), ids)
    assert texts[0] == "<s>"
    assert "".join(texts[1:]) == text(50)
    euro = tiny_tokenizer()("€", add_special_tokens=False)["input_ids"]
    assert token_texts(ModelSettings(id=str(checkpoint)), euro) == ["\ufffd"] * 3
    assert len(token_texts(ModelSettings(id=str(checkpoint)), range(VOCABULARY))) == VOCABULARY


IN_ANOTHER_PROCESS = """
import json, sys
from extract.models import describe, load
from extract.settings import ExtractionSettings
from storage.errors import UserError
said = {}
for name in sys.argv[1:]:
    try:
        asked = ExtractionSettings(model={"id": name}, corpus="embedded", context_length=32, sequences=1)
        description = describe(asked)
        said[name] = [description.source.commit, type(load(description)).__name__]
    except UserError as error:
        said[name] = str(error)
print(json.dumps(said))
"""


def ask_hub(names: list[str], home: Path, endpoint: str) -> dict[str, str | list[str]]:
    """What a fresh process, whose hub is ``endpoint``, makes of some ids."""
    python = [sys.executable, "-c", IN_ANOTHER_PROCESS, *names]
    source = str(Path(models.__file__).parents[1])
    variables = {**os.environ, "HF_HOME": str(home), "HF_ENDPOINT": endpoint, "PYTHONPATH": source}
    done = subprocess.run(python, env=variables, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_hub_ids_load_at_their_commit_or_say_what_to_do(checkpoint: Path, tmp_path: Path) -> None:
    pickled = Path(shutil.copytree(checkpoint, tmp_path / "pickled"))
    only_pickles(pickled)
    names = [*REFUSALS, "acme/tiny", "acme/pickled"]
    with serve({"acme/tiny": checkpoint, "acme/pickled": pickled}) as endpoint:
        said = ask_hub(names, tmp_path / "home", endpoint)
    assert said["acme/tiny"] == [COMMIT, "LlamaForCausalLM"]
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


def test_an_unreachable_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    said = refusal("acme/never-downloaded")
    assert "nor in the local cache, and the Hugging Face hub cannot be reached" in said
    assert "check the network and HF_HUB_OFFLINE" in said
