"""Extraction end to end: what lands in the store, resuming, the overlap of work, and what is refused."""

import errno
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, BertConfig, MistralModel

from extract import extraction, models
from extract.capture import Captured
from extract.extraction import ExtractionReport, batch_bytes, extract
from extract.settings import ExtractionSettings
from storage.arrays import TENSORS
from storage.errors import UserError
from storage.sequences import SequenceStore
from tests.extract.tiny import VOCABULARY, text, tiny_tokenizer, write_checkpoint

SEQUENCES, KEYS, BATCH = 9, 24, 2
QUERIES, WINDOW = (6, 20, 23), 16
"""No key is hidden from the first query by the window."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoint ``tiny`` (windows of 16 keys) and the text ``book.txt``."""
    folder = tmp_path_factory.mktemp("inputs")
    write_checkpoint(folder / "tiny", "mistral")
    (folder / "book.txt").write_text(text(2000), encoding="utf-8")
    return folder


def settings(inputs: Path, **others: object) -> ExtractionSettings:
    standard = {
        "model": str(inputs / "tiny"),
        "corpus": str(inputs / "book.txt"),
        "context_length": KEYS,
        "sequences": SEQUENCES,
        "queries": QUERIES,
        "batch_size": BATCH,
    }
    return ExtractionSettings.model_validate(standard | others)


def run(inputs: Path, path: Path, **others: object) -> ExtractionReport:
    return extract(settings(inputs, **others), study="tiny", path=path)


def tree(path: Path) -> dict[str, bytes]:
    """All files of a store by name; a killed writer may leave a ``.partial`` file, which nothing reads."""
    found = {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    return {name: content for name, content in found.items() if not name.endswith(".partial")}


def refusal(inputs: Path, path: Path, **others: object) -> str:
    with pytest.raises(UserError) as caught:
        run(inputs, path, **others)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture(scope="module")
def uninterrupted(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("uninterrupted") / "store"
    run(inputs, path)
    return path


def test_the_store_holds_what_eager_attention_computes(inputs: Path, uninterrupted: Path) -> None:
    store = SequenceStore.open(uninterrupted, TENSORS)
    tokens = torch.from_numpy(store.array("tokens")[:]).long()
    model = AutoModelForCausalLM.from_pretrained(inputs / "tiny", attn_implementation="eager")
    with torch.inference_mode():
        found = model(input_ids=tokens, output_attentions=True)
    rows = torch.stack([layer[:, :, QUERIES].transpose(1, 2) for layer in found.attentions], dim=2)
    np.testing.assert_allclose(store.array("attention")[:], rows, atol=5e-6)
    assert (store.array("query_position")[:] == QUERIES).all()
    first = [max(0, query + 1 - WINDOW) for query in QUERIES]
    assert (store.array("first_key")[:] == np.array(first)[:, None]).all()
    assert first == [0, 5, 8]
    assert np.isfinite(store.array("values")[:]).all()
    assert (tokens[:, 0] == tiny_tokenizer().bos_token_id).all()
    assert store.missing() == []


def test_without_queries_the_last_position_is_stored(inputs: Path, uninterrupted: Path, tmp_path: Path) -> None:
    path = tmp_path / "store"
    run(inputs, path, queries=None)
    alone, store = SequenceStore.open(path, TENSORS), SequenceStore.open(uninterrupted, TENSORS)
    assert alone.sizes == store.sizes | {"query": 1}
    assert (alone.array("query_position")[:] == KEYS - 1).all()
    assert alone.provenance["settings"]["queries"] is None
    for name in ("attention", "first_key"):
        np.testing.assert_array_equal(alone.array(name)[:, 0], store.array(name)[:, -1])
    np.testing.assert_array_equal(alone.array("values")[:], store.array("values")[:])


@pytest.mark.parametrize("queries", [None, QUERIES])
def test_every_batch_takes_one_forward_pass(
    queries: tuple[int, ...] | None, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[tuple[int, ...]] = []
    original = MistralModel.forward

    def counted(self: MistralModel, input_ids: torch.Tensor, **others: object) -> object:
        passes.append(tuple(input_ids.shape))
        return original(self, input_ids, **others)

    monkeypatch.setattr(MistralModel, "forward", counted)
    run(inputs, tmp_path / "store", queries=queries)
    assert passes == [(1, KEYS), *[(BATCH, KEYS)] * 4, (1, KEYS)]  # the first is the probe


def test_the_report_and_the_provenance(inputs: Path, uninterrupted: Path, tmp_path: Path) -> None:
    report = run(inputs, tmp_path / "store")
    assert (report.sequences, report.written, report.path) == (SEQUENCES, SEQUENCES, tmp_path / "store")
    assert (report.documents_read, report.documents_skipped) == (1, 0)
    assert report.bytes == sum(file.stat().st_size for file in report.path.rglob("*") if file.is_file())
    assert 0 <= report.row_sum_deviation < 1e-6
    provenance = SequenceStore.open(report.path, TENSORS).provenance
    assert provenance == json.loads(json.dumps(provenance))
    assert provenance["settings"] == settings(inputs).model_dump(mode="json")
    assert set(provenance["inputs"]) == {"model", "tokenizer", "corpus"}
    assert {"torch", "transformers", "tokenizers", "zarr", "numpy", "python", "device"} < set(provenance["versions"])
    assert tree(report.path) == tree(uninterrupted)  # the same from anywhere, at any time


def test_nothing_is_printed_without_a_terminal(inputs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(inputs, tmp_path / "store")
    assert capfd.readouterr() == ("", "")


IN_ANOTHER_PROCESS = """
import os, signal, sys, time
from pathlib import Path
from extract.extraction import extract
from extract.settings import ExtractionSettings
from storage.sequences import SequenceStore

write, how = SequenceStore.write, sys.argv[3]

def slowly_or_by_half(self, sequence, arrays):
    if how == "half" and sequence == 3:
        self.array("values")[sequence] = arrays["values"]
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.1)
    write(self, sequence, arrays)

SequenceStore.write = slowly_or_by_half
extract(ExtractionSettings.model_validate_json(sys.argv[1]), study="tiny", path=Path(sys.argv[2]))
"""


def start(inputs: Path, path: Path, how: str) -> subprocess.Popen[bytes]:
    python = [sys.executable, "-c", IN_ANOTHER_PROCESS, settings(inputs).model_dump_json(), str(path), how]
    return subprocess.Popen(python, env={**os.environ, "PYTHONPATH": str(Path(extraction.__file__).parents[1])})


def finished(path: Path) -> int:
    return int(SequenceStore.open(path, TENSORS).finished().sum()) if path.exists() else 0


def test_killed_twice_it_ends_bit_identical(inputs: Path, uninterrupted: Path, tmp_path: Path) -> None:
    path = tmp_path / "store"
    assert start(inputs, path, "half").wait(timeout=120) == -signal.SIGKILL
    assert finished(path) == 3  # sequence 3 is written in part and does not count

    process = start(inputs, path, "slow")
    while finished(path) < 5 and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert 5 <= finished(path) < SEQUENCES

    left = SEQUENCES - finished(path)
    assert run(inputs, path).written == left
    assert tree(path) == tree(uninterrupted)


def test_a_batch_is_computed_whole_and_only_what_is_missing_is_written(
    inputs: Path, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    shutil.copytree(uninterrupted, path)
    store = SequenceStore.open(path, TENSORS)
    for name, spec in store.specs.items():
        store.array(name)[5] = spec.fill
    computed: list[int] = []
    original = extraction.capture
    monkeypatch.setattr(
        extraction, "capture", lambda model, ids, queries: computed.append(len(ids)) or original(model, ids, queries)
    )
    assert run(inputs, path).written == 1
    assert computed == [BATCH]
    assert tree(path) == tree(uninterrupted)


def test_a_finished_store_is_not_computed_again(
    inputs: Path, uninterrupted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(uninterrupted)
    monkeypatch.setattr(models, "load", lambda _: pytest.fail("the weights were loaded"))
    report = run(inputs, uninterrupted, queries=QUERIES[::-1])  # in another order, the same
    assert (report.written, report.documents_read) == (0, 1)
    assert 0 <= report.row_sum_deviation < 1e-6
    assert tree(uninterrupted) == before


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 1}, "settings.seed (stored 0, asked 1)"),
        ({"context_length": 25}, "settings.context_length (stored 24, asked 25)"),
        ({"dtype": "bfloat16"}, "settings.dtype (stored 'float32', asked 'bfloat16')"),
        ({"sequences": 10}, "settings.sequences (stored 9, asked 10)"),
        ({"queries": [6, 23]}, "settings.queries (stored [6, 20, 23], asked [6, 23])"),
        ({"queries": None}, "settings.queries (stored [6, 20, 23], asked None)"),
    ],
)
def test_a_store_of_other_settings_is_refused(
    change: dict[str, object], named: str, inputs: Path, uninterrupted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(uninterrupted)
    monkeypatch.setattr(models, "load", lambda _: pytest.fail("the weights were loaded"))
    said = refusal(inputs, uninterrupted, **change)
    assert named in said
    assert "--fresh" in said
    assert tree(uninterrupted) == before


def test_a_store_of_other_weights_or_text_is_refused(inputs: Path, tmp_path: Path) -> None:
    folder, path = tmp_path / "inputs", tmp_path / "store"
    shutil.copytree(inputs, folder)
    run(folder, path)
    write_checkpoint(folder / "tiny", "mistral", seed=1)
    assert "inputs.model.sha256" in refusal(folder, path)
    shutil.rmtree(folder / "tiny")
    shutil.copytree(inputs / "tiny", folder / "tiny")
    (folder / "book.txt").write_text(text(2001))
    assert "inputs.corpus.sha256" in refusal(folder, path)


def test_writing_overlaps_computing_and_holds_at_most_two_batches(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first write waits for the second forward pass to begin; every pass counts the batches still alive."""
    captures, writers = 0, set[int]()
    second_pass = threading.Event()
    alive: weakref.WeakSet[Captured] = weakref.WeakSet()
    most = 0
    capture, write = extraction.capture, SequenceStore.write

    def watched_capture(model: object, ids: torch.Tensor, queries: tuple[int, ...]) -> Captured:
        nonlocal captures, most
        captures += 1
        if captures == 2:
            second_pass.set()
        captured = capture(model, ids, queries)
        alive.add(captured)
        gc.collect()
        most = max(most, len(alive))
        return captured

    def watched_write(self: SequenceStore, sequence: int, arrays: dict[str, np.ndarray]) -> None:
        assert second_pass.wait(timeout=60), "nothing was computed while the first batch was written"
        writers.add(threading.get_ident())
        time.sleep(0.02)
        write(self, sequence, arrays)

    monkeypatch.setattr(extraction, "capture", watched_capture)
    monkeypatch.setattr(SequenceStore, "write", watched_write)
    monkeypatch.setattr(Captured, "__hash__", object.__hash__)
    monkeypatch.setattr(Captured, "__eq__", object.__eq__)
    run(inputs, tmp_path / "store")
    assert captures == 5
    assert most == 2
    assert len(writers) == 1
    assert threading.get_ident() not in writers


def test_batch_bytes_are_those_of_the_captured_tensors(
    inputs: Path, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    original = extraction.capture

    def measured(model: object, ids: torch.Tensor, queries: tuple[int, ...]) -> Captured:
        captured = original(model, ids, queries)
        tensors = [getattr(captured, part.name) for part in fields(captured)]
        taken.append(sum(tensor.untyped_storage().nbytes() for tensor in tensors))
        return captured

    monkeypatch.setattr(extraction, "capture", measured)
    run(inputs, tmp_path / "store")
    sizes = SequenceStore.open(uninterrupted, TENSORS).sizes
    assert taken == [batch_bytes(sizes, BATCH)] * 4 + [batch_bytes(sizes, 1)]


def spoil(inputs: Path, tmp_path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> Path:
    """A copy of the inputs whose weights are changed."""
    folder = Path(shutil.copytree(inputs, tmp_path / "inputs"))
    weights = load_file(folder / "tiny" / "model.safetensors")
    change(weights)
    save_file(weights, folder / "tiny" / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_a_model_with_nan_is_refused_before_anything_is_made(inputs: Path, tmp_path: Path) -> None:
    name = "model.layers.1.self_attn.v_proj.weight"
    folder = spoil(inputs, tmp_path, lambda weights: weights[name].fill_(float("nan")))
    said = refusal(folder, tmp_path / "data" / "store")
    assert "numbers that are not finite in layer 1: its weights are damaged" in said
    assert not (tmp_path / "data").exists()


def test_a_model_that_overflows_in_float16_is_told_of_bfloat16(inputs: Path, tmp_path: Path) -> None:
    name = "model.layers.2.self_attn.v_proj.weight"
    folder = spoil(inputs, tmp_path, lambda weights: weights[name].mul_(1e5))
    said = refusal(folder, tmp_path / "data" / "store", dtype="float16")
    assert "in layer 2: float16 overflows or is too coarse; set dtype to bfloat16 or float32" in said
    run(folder, tmp_path / "store", dtype="bfloat16")


def test_a_model_that_fails_on_its_first_batch_leaves_nothing(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extraction, "PROBE_TOKENS", 1)  # BOS alone, whose embedding is left whole
    name = "model.embed_tokens.weight"
    folder = spoil(inputs, tmp_path, lambda weights: weights[name][1:].fill_(float("inf")))
    assert "not finite in layer 0" in refusal(folder, tmp_path / "data" / "store")
    assert not (tmp_path / "data").exists()


def test_an_encoder_is_refused_before_anything_is_made(inputs: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(inputs, tmp_path / "inputs"))
    shutil.rmtree(folder / "tiny")
    config = BertConfig(vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=2, num_attention_heads=4)
    with models.quiet():
        AutoModelForCausalLM.from_config(config).save_pretrained(folder / "tiny")
    tiny_tokenizer().save_pretrained(folder / "tiny")
    assert "is no causal language model" in refusal(folder, tmp_path / "data" / "store")
    assert not (tmp_path / "data").exists()


def test_a_tokenizer_of_another_model_is_refused(inputs: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(inputs, tmp_path / "inputs"))
    write_checkpoint(folder / "tiny", vocab_size=100)
    said = refusal(folder, tmp_path / "data" / "store")
    assert "gives token id 3" in said
    assert "the model knows 100 tokens" in said
    assert not (tmp_path / "data").exists()


def test_a_full_disk_keeps_what_is_written_and_continues(
    inputs: Path, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = tmp_path / "store", SequenceStore.write

    def full(self: SequenceStore, sequence: int, arrays: dict[str, np.ndarray]) -> None:
        if sequence == 5:
            self.array("attention")[sequence] = arrays["attention"]
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(self, sequence, arrays)

    with monkeypatch.context() as patched:
        patched.setattr(SequenceStore, "write", full)
        said = refusal(inputs, path)
    assert f"The disk is full: {path} keeps 5 of {SEQUENCES} sequences; free space and run again" in said
    assert run(inputs, path).written == SEQUENCES - 5
    assert tree(path) == tree(uninterrupted)


def test_a_place_that_cannot_be_written(inputs: Path, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    assert "cannot be written (" in refusal(inputs, tmp_path / "data" / "store")
    assert (tmp_path / "data").read_text() == "a file"


def test_other_errors_of_the_system_keep_their_traceback(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(SequenceStore, "write", broken)
    with pytest.raises(OSError, match="Input/output error"):
        run(inputs, tmp_path / "store")


@pytest.mark.parametrize("query", range(len(QUERIES)))
def test_the_row_sums_of_every_query_are_checked(query: int, inputs: Path, uninterrupted: Path, tmp_path: Path) -> None:
    path = tmp_path / "store"
    shutil.copytree(uninterrupted, path)
    attention = SequenceStore.open(path, TENSORS).array("attention")
    attention[4, query] = np.asarray(attention[4, query]) * np.float32(0.5)
    assert run(inputs, path).row_sum_deviation == pytest.approx(0.5, abs=1e-6)
