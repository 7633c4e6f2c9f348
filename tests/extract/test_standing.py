"""Whether a store is still what would be made: what is noticed, what does not matter, and what asking loads."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from extract.extraction import extract
from extract.settings import ExtractionSettings
from extract.standing import explain_replacement, explain_staleness
from extract.versions import list_versions
from storage.files.places import LocalPlace
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore
from tests.extract.tiny import split_weights, text, write_checkpoint
from tests.storage.earlier import rewrite


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoint ``tiny``, one of its two weights files in a folder, and the text ``book.txt``."""
    folder = tmp_path_factory.mktemp("inputs")
    split_weights(write_checkpoint(folder / "tiny"), "part/0.safetensors", "part/1.safetensors")
    (folder / "book.txt").write_text(text(500), encoding="utf-8")
    return folder


def settings(inputs: Path, **others: object) -> ExtractionSettings:
    standard = {
        "model": str(inputs / "tiny"),
        "corpus": str(inputs / "book.txt"),
        "context_length": 24,
        "sequences": 2,
        "device": "cpu",
    }
    return ExtractionSettings.model_validate(standard | others)


@pytest.fixture(scope="module")
def made(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "store"
    extract(settings(inputs), study="tiny", path=LocalPlace(path))
    return path


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "store"))


@pytest.fixture
def copied(inputs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(inputs, tmp_path / "inputs"))


def stale(inputs: Path, store: Path, **others: object) -> str | None:
    return explain_staleness(settings(inputs, **others), study="tiny", path=LocalPlace(store))


def rewrite_provenance(store: Path, provenance: dict[str, Any]) -> None:
    rewrite(store, provenance=provenance)


def provenance(store: Path) -> dict[str, Any]:
    return SequenceStore.open(LocalPlace(store), TENSORS).provenance


def test_what_was_made_of_these_inputs_is_current_wherever_they_are(inputs: Path, copied: Path, store: Path) -> None:
    assert stale(inputs, store) is None
    assert stale(copied, store) is None
    assert stale(copied, store.with_name("none")) == "missing"
    assert explain_replacement(settings(copied), study="tiny", path=LocalPlace(store.with_name("none"))) is None


CHANGES = {
    "part/0.safetensors": "the model's weights have changed",
    "config.json": "the model's weights have changed",
    "model.safetensors.index.json": "the index of the model's weights or its generation configuration has changed",
    "generation_config.json": "the index of the model's weights or its generation configuration has changed",
    "tokenizer.json": "the model's tokenizer has changed",
    "tokenizer_config.json": "the model's tokenizer has changed",
    "chat_template.jinja": "the model's tokenizer has changed",
    "README.md": None,
}


@pytest.fixture
def of_copied(copied: Path, store: Path) -> Path:
    """The store as if it had been made of the copied inputs, so that their paths are not what has changed."""
    was = provenance(store)
    was["settings"]["model"]["id"] = was["inputs"]["model"]["id"] = str(copied / "tiny")
    was["settings"]["corpus"]["id"] = str(copied / "book.txt")
    rewrite_provenance(store, was)
    return store


@pytest.mark.parametrize("name", CHANGES)
def test_each_file_that_was_read_is_noticed(name: str, copied: Path, of_copied: Path) -> None:
    assert stale(copied, of_copied) is None
    file = copied / "tiny" / name
    if name.endswith(".safetensors"):
        save_file({key: tensor + 1 for key, tensor in load_file(file).items()}, file, {"format": "pt"})
    else:
        file.write_bytes((file.read_bytes() if file.exists() else b"") + b"\n")
    assert stale(copied, of_copied) == CHANGES[name]


def test_other_text_is_noticed(copied: Path, of_copied: Path) -> None:
    (copied / "book.txt").write_text("other text")
    assert stale(copied, of_copied) == "the corpus file has changed"


def test_versions_of_libraries_do_not_matter_to_a_finished_store(inputs: Path, store: Path) -> None:
    was = provenance(store)
    rewrite_provenance(store, was | {"versions": was["versions"] | {"torch": "1.0"}})
    assert stale(inputs, store) is None


def test_the_versions_are_those_of_the_imported_libraries() -> None:
    found = list_versions("cpu")
    libraries = ("numpy", "tokenizers", "torch", "transformers", "zarr")
    assert {name: found[name] for name in libraries} == {name: __import__(name).__version__ for name in libraries}
    assert list(found) == sorted(found)
