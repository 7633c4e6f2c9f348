"""What is refused before anything heavy is imported, and what that loads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dagster_project.study.studies import parse_study
from extract import checks
from extract.checks import check_inputs
from extract.settings import ExtractionSettings
from storage.errors import escape_unprintable
from tests.extract.tiny import text, write_checkpoint
from tests.refusals import read_refusal


def settings(**others: object) -> ExtractionSettings:
    standard = {"model": "embedded", "corpus": "embedded", "context_length": 32, "sequences": 1}
    return ExtractionSettings.model_validate(standard | others)


def refusal(**others: object) -> str:
    return read_refusal(check_inputs, settings(**others))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoint ``tiny`` and the text ``book.txt``."""
    folder = tmp_path_factory.mktemp("inputs")
    write_checkpoint(folder / "tiny")
    (folder / "book.txt").write_text(text(200), encoding="utf-8")
    return folder


def test_sound_inputs_are_accepted(inputs: Path) -> None:
    check_inputs(settings())
    check_inputs(settings(model="synthetic", corpus=None))
    check_inputs(settings(model="openai-community/gpt2", corpus="acme/no-such"))  # ids of the hub are left alone
    check_inputs(settings(model=str(inputs / "tiny"), corpus=str(inputs / "book.txt")))
    check_inputs(settings(model=str(inputs / "tiny"), corpus=str(inputs)))


@pytest.mark.parametrize("name", ["/no/such", "./no-such", "~/no-such", "~nobody-here/x", "a/b/c", "a\0b", "no such"])
def test_missing_inputs_of_any_name(name: str) -> None:
    shown = escape_unprintable(name)
    assert refusal(model=name).startswith(f"There is no model directory '{shown}'; give a directory, a hub id")
    assert refusal(corpus=name).startswith(f"There is no corpus file '{shown}'; give a .txt/.jsonl/.parquet file")


def test_what_is_no_device() -> None:
    given = {"model": "embedded", "corpus": "embedded", "context_length": 64, "sequences": 1}
    for device in ("gpu", "cuda:", "CPU", "cuda:-1", "cpu\x1b[2J", "cuda:1\n", ""):
        said = read_refusal(parse_study, "one", given | {"device": device}, "studies.yaml")
        assert "field 'device': string should match pattern" in said


@pytest.mark.parametrize(
    "model", ["embedded", "synthetic", "./somewhere", "inputs", "no-such/a.gguf", "package:acme/a.gguf"]
)
def test_a_local_model_has_no_revisions(model: str, inputs: Path) -> None:
    name = str(inputs / "tiny") if model == "inputs" else model
    given = {"model": {"id": name, "revision": "v2"}, "context_length": 64, "sequences": 1}
    given |= {} if model == "synthetic" else {"corpus": "embedded"}
    assert read_refusal(parse_study, "one", given, "studies.yaml").startswith(
        "studies.yaml: study 'one', field 'model.revision': input is only allowed with a hub id, but the model "
        f"'{name}' is local; leave it out, found 'v2'"
    )


def test_a_model_of_the_hub_has_revisions(inputs: Path) -> None:
    assert settings(model={"id": "acme/tiny", "revision": "v2"}).model.revision == "v2"
    assert settings(model={"id": str(inputs / "tiny"), "revision": "main"}).model.revision == "main"


def test_telemetry_is_off_wherever_models_are_loaded() -> None:
    code = "import extract.hub; from huggingface_hub import constants; print(constants.HF_HUB_DISABLE_TELEMETRY)"
    kept = {name: value for name, value in os.environ.items() if "TELEMETRY" not in name and name != "DO_NOT_TRACK"}
    root = str(Path(checks.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code], env=kept | {"PYTHONPATH": root}, capture_output=True, check=True
    )
    assert done.stdout == b"True\n"
