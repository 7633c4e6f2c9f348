"""Extraction end to end: what lands in the store, resuming, the overlap of work, and what is refused."""

import copy
import errno
import gc
import json
import os
import re
import shutil
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, MistralModel, PreTrainedModel

from extract import identity, standing
from extract.capture import batches
from extract.capture.batches import choose_batch_size
from extract.capture.buffers import Buffers
from extract.capture.one_pass import Attention, Capture, capture, probe
from extract.extraction import ExtractionReport, extract
from extract.models import loading as models
from extract.settings import CorpusSettings, ExtractionSettings
from extract.texts import corpora
from extract.texts.corpora import Windows
from storage.files.places import LocalPlace
from storage.zarr.arrays import READ_SEQUENCES, TENSORS, LayerSize
from storage.zarr.sequences import SequenceStore
from tests.extract.families import attention_of, model_of
from tests.extract.tiny import save, text, tiny_tokenizer, tree, write_checkpoint
from tests.refusals import read_refusal

SEQUENCES, KEYS, BATCH = 9, 24, 2
ROUNDED = (KEYS + 1) * 2.0**-23
"""Largest distance from 1 of the sum of a row: a rounding of each weight, and one of each addition."""
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
    return extract(settings(inputs, **others), study="tiny", path=LocalPlace(path))


def opened(path: Path | LocalPlace) -> SequenceStore:
    return SequenceStore.open(LocalPlace(Path(path)), TENSORS)


def refusal(inputs: Path, path: Path, **others: object) -> str:
    return read_refusal(run, inputs, path, **others)


@pytest.fixture(scope="module")
def uninterrupted(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("uninterrupted") / "store"
    run(inputs, path)
    return path


def test_the_store_holds_what_eager_attention_computes(inputs: Path, uninterrupted: Path) -> None:
    store = opened(uninterrupted)
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
    assert store.find_missing() == []


def test_one_pass_a_batch_the_report_and_the_provenance(
    inputs: Path, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[tuple[int, ...]] = []
    forward = MistralModel.forward

    def counted(self: MistralModel, input_ids: torch.Tensor, **others: object) -> object:
        passes.append(tuple(input_ids.shape))
        return forward(self, input_ids, **others)

    monkeypatch.setattr(MistralModel, "forward", counted)
    report = run(inputs, tmp_path / "store")
    alone = (1, QUERIES[0] + 1)  # whose row must be that of the whole text
    assert passes == [(1, KEYS), alone, *[(BATCH, KEYS)] * 4, (1, KEYS)]  # the first is the probe
    assert (report.sequences, report.written, report.path) == (SEQUENCES, SEQUENCES, LocalPlace(tmp_path / "store"))
    assert (report.documents_read, report.documents_skipped) == (1, 0)
    assert report.bytes == sum(file.stat().st_size for file in Path(report.path).rglob("*") if file.is_file())
    assert 0 <= report.row_sum_deviation < ROUNDED
    provenance = opened(report.path).provenance
    assert provenance == json.loads(json.dumps(provenance))
    assert provenance["settings"] == settings(inputs).model_dump(mode="json")
    assert provenance["inputs"]["model"]["attention"] == "AttentionInterface"
    assert provenance["inputs"]["model"]["layer_kinds"] == ["sliding_attention"] * 3
    assert set(provenance["inputs"]) == {"model", "tokenizer", "corpus"}
    assert {"torch", "transformers", "tokenizers", "zarr", "numpy", "python", "device"} < set(provenance["versions"])
    assert tree(Path(report.path)) == tree(uninterrupted)  # the same from anywhere, at any time
    monkeypatch.setattr(models, "load", lambda _: pytest.fail("the weights were loaded"))
    report = run(inputs, Path(report.path), queries=QUERIES[::-1])  # finished, and asked for in another order
    assert (report.written, report.documents_read) == (0, 1)


def finished(path: Path) -> int:
    return int(opened(path).read_ledger().sum()) if path.exists() else 0


def test_a_store_of_other_settings_weights_or_text_is_refused(
    inputs: Path, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, folder = tree(uninterrupted), Path(shutil.copytree(inputs, tmp_path / "inputs"))
    monkeypatch.setattr(models, "load", lambda _: pytest.fail("the weights were loaded"))
    for change, named in (
        ({"seed": 1}, "settings.seed (stored 0, requested 1)"),
        ({"queries": None}, "settings.queries (stored [6, 20, 23], requested None)"),
    ):
        said = refusal(inputs, uninterrupted, **change)
        assert named in said
        assert "--fresh" in said
    (folder / "book.txt").write_text(text(2001))
    assert "inputs.corpus.sha256" in refusal(folder, uninterrupted)
    shutil.copy(inputs / "book.txt", folder)
    write_checkpoint(folder / "tiny", "mistral", seed=1)
    assert "inputs.model.sha256" in refusal(folder, uninterrupted)
    assert tree(uninterrupted) == before


def test_a_study_of_random_weights_says_so_and_knows_when_it_is_stale(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, path = Path(shutil.copytree(inputs, tmp_path / "inputs")), tmp_path / "store"
    (folder / "tiny" / "model.safetensors").unlink()
    drawn = {"model": {"id": str(folder / "tiny"), "weights": "random"}}
    run(folder, path, **drawn)
    provenance = opened(path).provenance
    assert provenance["settings"]["model"]["weights"] == "random"
    drawn_by = f"torch {version('torch')}, transformers {version('transformers')}"
    known = {"weights": "random", "weights_seed": 0, "initialised_by": drawn_by}
    assert known.items() <= provenance["inputs"]["model"].items()
    assert run(folder, path, **drawn).written == 0

    def why(**others: object) -> str | None:
        return standing.explain_staleness(settings(folder, **drawn | others), study="tiny", path=LocalPlace(path))

    assert why() is None
    assert why(seed=1) == "setting 'seed' is 1, was 0"
    monkeypatch.setattr(identity, "version", lambda _: "9.9")
    assert why() == "the libraries that draw the model's random weights have changed"
    monkeypatch.setattr(standing, "is_local_model", lambda _: False)  # as if it were of the hub
    assert why() == "the libraries that draw the model's random weights have changed"
    monkeypatch.undo()
    monkeypatch.setattr(identity, "version", lambda _: "9.9")
    assert "inputs.model.initialised_by (stored 'torch " in refusal(folder, path, **drawn)


@pytest.mark.slow
def test_writing_overlaps_computing_and_holds_at_most_two_batches(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first write waits for the second forward pass to begin; every pass counts the batches still alive."""
    second_pass, alive, seen, most = threading.Event(), list[weakref.ref[Capture]](), list[torch.Tensor](), 0
    original, write = batches.capture, SequenceStore.write

    def watched_capture(*arguments: object, **named: object) -> Capture:
        nonlocal most
        if seen:
            second_pass.set()
        captured = original(*arguments, **named)
        alive.append(weakref.ref(captured))
        seen.append(captured["attention"].clone())
        gc.collect()
        most = max(most, sum(each() is not None for each in alive))
        return captured

    def watched_write(self: SequenceStore, sequence: int, arrays: dict[str, np.ndarray]) -> None:
        assert second_pass.wait(timeout=60), "nothing was computed while the first batch was written"
        time.sleep(0.02)
        write(self, sequence, arrays)

    monkeypatch.setattr(batches, "capture", watched_capture)
    monkeypatch.setattr(SequenceStore, "write", watched_write)
    run(inputs, tmp_path / "store", queries=None)
    stored = opened(tmp_path / "store").read("attention", ...)
    np.testing.assert_array_equal(stored, torch.cat(seen, dim=1).permute(1, 2, 0, 3, 4))  # none was captured over
    assert (len(seen), most) == (5, 2)


def test_numbers_beyond_a_type_and_tokens_beyond_the_model_are_refused(inputs: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(inputs, tmp_path / "inputs"))
    weights = load_file(folder / "tiny" / "model.safetensors")
    weights["model.layers.2.self_attn.v_proj.weight"].mul_(1e5)
    save_file(weights, folder / "tiny" / "model.safetensors", metadata={"format": "pt"})
    said = refusal(folder, tmp_path / "data" / "store", dtype="float16")
    assert "in layer 2: float16 overflows or is too coarse; set dtype to bfloat16 or float32" in said
    said = refusal(folder, tmp_path / "data" / "store", values="float16")
    assert re.search(r"value states of up to \S+ in layer 2, too large for float16; set values: float32", said)
    assert not (tmp_path / "data").exists()
    run(folder, tmp_path / "store", dtype="bfloat16")
    write_checkpoint(folder / "tiny", vocab_size=100)
    said = refusal(folder, tmp_path / "data" / "store")
    assert "gives token id 3" in said
    assert "the model knows 100 tokens" in said
    assert not (tmp_path / "data").exists()


def with_model(model: PreTrainedModel, inputs: Path, tmp_path: Path) -> Path:
    """A copy of the inputs with another model."""
    folder = Path(shutil.copytree(inputs, tmp_path / "inputs"))
    shutil.rmtree(folder / "tiny")
    return save(model, folder / "tiny").parent


@pytest.mark.parametrize("family", ["Mistral", "gpt-oss", "GPT-J"])
def test_nan_in_mid_study_is_refused_by_its_layer_and_what_is_written_stays(
    family: str, inputs: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    tokens = opened(uninterrupted).read("tokens", ...)
    sequence, position = next(place for place in np.argwhere(~np.isin(tokens, tokens[: 2 * BATCH])) if place[1] < KEYS)
    model = copy.deepcopy(model_of(family))
    model.get_input_embeddings().weight.data[tokens[sequence, position]] = torch.nan
    path = tmp_path / "store"
    said = refusal(with_model(model, inputs, tmp_path), path)
    assert "computes numbers that are not finite in layer 0: " in said
    assert finished(path) == sequence // BATCH * BATCH


def full_at(at: int) -> Callable[..., None]:
    """``SequenceStore.write`` on a disk that is full in the middle of a sequence."""
    write = SequenceStore.write

    def full(self: SequenceStore, sequence: int, arrays: dict[str, np.ndarray]) -> None:
        if sequence == at:
            self.array("attention")[sequence] = arrays["attention"]
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(self, sequence, arrays)

    return full


def test_a_full_disk_keeps_what_is_written_and_continues(
    inputs: Path, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    with monkeypatch.context() as patched:
        patched.setattr(SequenceStore, "write", full_at(5))
        said = refusal(inputs, path)
    assert f"The disk is full: {path} keeps 5 of {SEQUENCES} sequences; free space and run again" in said
    assert run(inputs, path).written == SEQUENCES - 5
    assert tree(path) == tree(uninterrupted)


@pytest.mark.slow
def test_a_hub_dataset_is_read_on_at_the_commit_where_it_was_begun(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []
    windows, path = corpora.select_windows, tmp_path / "store"

    def moved(corpus: CorpusSettings, *others: Any) -> Windows:
        """As if the branch had another commit each time one asks."""
        asked.append(corpus.revision)
        return replace(windows(corpus, *others), revision=corpus.revision or f"commit-{len(asked)}")

    monkeypatch.setattr(corpora, "select_windows", moved)
    with monkeypatch.context() as patched:
        patched.setattr(SequenceStore, "write", full_at(5))
        refusal(inputs, path)
    run(inputs, path)
    assert asked == [None, "commit-1"]
    assert opened(path).require_complete().provenance["inputs"]["corpus"]["revision"] == "commit-1"


def test_row_sums_are_checked_unless_weights_are_dropped(inputs: Path, uninterrupted: Path, tmp_path: Path) -> None:
    path = tmp_path / "store"
    shutil.copytree(uninterrupted, path)
    attention = opened(path).array("attention")
    attention[4, 1] = np.asarray(attention[4, 1]) * np.float32(0.5)
    assert run(inputs, path).row_sum_deviation == pytest.approx(0.5, abs=ROUNDED)
    opened(path).drop(["attention", "values"])
    report = run(inputs, path)
    assert (report.written, report.row_sum_deviation) == (0, None)


# --- memory that does not suffice ---


def narrow(most: int) -> Callable[..., Capture]:
    """``capture`` in a memory that has room for ``most`` sequences."""
    original = batches.capture

    def fails(model: object, how: object, ids: torch.Tensor, *others: object, **named: object) -> Capture:
        if len(ids) > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return original(model, how, ids, *others, **named)

    return fails


SAID = "out of memory with {} sequences at a time; continuing with {}"
FULL = "[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory"


SMALL, LARGE = [LayerSize(12, 12, 64)] * 12, [LayerSize(32, 8, 128)] * 32


@pytest.mark.parametrize(
    ("layers", "device", "others", "size"),
    [
        (SMALL, "cuda", {"sequences": 9}, 9),  # never more than there are
        (SMALL, "cuda", {}, 16),
        (LARGE, "cuda", {}, 7),  # 4 * 32 * (32 * 1025 + 8 * 1024 * 128) bytes each, of 2**30
        (LARGE, "cuda", {"context_length": 16384}, 1),
        (LARGE, "cuda", {"batch_size": 24}, 24),
        (SMALL, "cpu", {}, 2),
        (SMALL, "cpu", {"context_length": 64}, 16),
        (SMALL, "cpu", {"context_length": 4096}, 1),
    ],
)
def test_without_a_batch_size_one_is_found_from_sizes_alone(
    layers: list[LayerSize], device: str, others: dict[str, object], size: int, inputs: Path
) -> None:
    asked = settings(
        inputs, **{"batch_size": "auto", "queries": None, "context_length": 1024, "sequences": 99} | others
    )
    attention = Attention("AttentionInterface", tuple(layers), (), torch.float32)
    assert choose_batch_size(asked, attention, torch.device(device)) == size


def test_out_of_memory_halves_the_batch_and_a_stopped_run_goes_on_with_the_smaller_one(
    inputs: Path, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(batches, "capture", narrow(BATCH))
    path = tmp_path / "store"
    with monkeypatch.context() as patched:
        patched.setattr(SequenceStore, "write", full_at(5))
        refusal(inputs, path, batch_size="auto")
    assert [record.message for record in caplog.records] == [SAID.format(9, 4), SAID.format(4, 2)]
    assert run(inputs, path, batch_size="auto").written == SEQUENCES - 5
    assert len(caplog.records) == 2  # no larger one is tried than memory sufficed for
    store, plain = opened(path), opened(uninterrupted)
    for name in store.specs:
        np.testing.assert_array_equal(store.read(name, ...), plain.read(name, ...), err_msg=name)
    assert (store.read("batch", ...) == BATCH).all()
    monkeypatch.undo()
    monkeypatch.setattr(batches, "capture", narrow(0))
    assert "There is not enough memory for one sequence" in refusal(inputs, tmp_path / "none", queries=None)


@pytest.mark.parametrize(
    ("error", "family"), [(torch.OutOfMemoryError("CUDA out of memory."), "Mistral"), (RuntimeError(FULL), "GPT-J")]
)
def test_a_model_that_cannot_even_be_tried_is_refused(
    error: Exception, family: str, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = with_model(model_of(family), inputs, tmp_path)
    monkeypatch.setattr(type(model_of(family).base_model), "forward", Mock(side_effect=error))
    said = refusal(folder, tmp_path / "data" / "store")
    assert f"There is not enough memory for one sequence of {KEYS} tokens" in said
    assert "lower context_length, set dtype: bfloat16 or device_map: auto, or use another device" in said
    assert not (tmp_path / "data").exists()


# --- arrays that a store may lack, and types ---

OPTIONAL: dict[str, tuple[object, set[str]]] = {
    "sink_measure": (True, {"received_attention"}),
    "probe": ("repeated", {"probe_patterns", "probe_chance", "probe_queries"}),
    "every_query": (True, {"query_measures", "context_means", "query_keys"}),
}


def capture_all(inputs: Path, tokens: np.ndarray) -> Capture:
    """All that is captured of some texts."""
    model, ids = AutoModelForCausalLM.from_pretrained(inputs / "tiny"), torch.from_numpy(tokens)
    how = probe(model, ids[:1])
    room = {"batch": SEQUENCES, "queries": len(QUERIES), "keys": KEYS, "dtype": how.dtype}
    buffers = Buffers(how.layers, **room, received=True, every_query=True)
    return capture(model, how, ids, QUERIES, buffers, every_query=True)


@pytest.mark.slow
def test_arrays_and_types_that_are_asked_for_are_stored_beside_the_same_others(
    inputs: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    asked = {name: value for name, (value, _) in OPTIONAL.items()} | {"values": "float16"}
    run(inputs, path := tmp_path / "store", **asked)
    store, plain = opened(path), opened(uninterrupted)
    assert plain.absent - store.absent == set().union(*(added for _, added in OPTIONAL.values()))
    for array in plain.specs.keys() - plain.absent:
        expected = plain.read(array, ...).astype(np.float16 if array == "values" else plain.array(array).dtype)
        np.testing.assert_array_equal(store.read(array, ...), expected, err_msg=array)
    given = settings(inputs, corpus="repeated")
    repeated = corpora.select_windows(given.corpus, tiny_tokenizer(), KEYS, SEQUENCES, given.seed).tokens
    read, probed = capture_all(inputs, store.read("tokens", ...)), capture_all(inputs, repeated)
    of_capture = {
        "probe_patterns": "head_patterns",
        "probe_chance": "pattern_chance",
        "probe_queries": "pattern_queries",
    }
    for name, (value, added) in OPTIONAL.items():
        others = {**asked, name: None if name == "probe" else False}
        assert f"settings.{name} (stored {value!r}, requested None)" in refusal(inputs, path, **others)
        assert f"settings.{name} (stored None, requested {value!r})" in refusal(inputs, uninterrupted, **{name: value})
        for array in added:
            captured = (probed if name == "probe" else read)[of_capture.get(array, array)]
            expected = captured.transpose(0, 1).numpy()
            if array == "query_keys":
                expected[READ_SEQUENCES:] = np.nan
            np.testing.assert_allclose(store.read(array, ...), expected, rtol=1e-5, atol=1e-6, err_msg=array)


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("family", "path", "sizes"),
    [
        ("LFM 2", "AttentionInterface", [(0, 0, 0), (4, 2, 16)] * 2),
        ("Gemma 4", "AttentionInterface", [(4, 2, 16), (4, 2, 32)] * 2),
        ("GPT-J", "two-pass", [(4, 4, 16)] * 3),
        ("gpt-oss", "AttentionInterface", [(4, 2, 16)] * 3),
    ],
)
def test_every_layer_is_stored_by_its_number_and_size(
    family: str, path: str, sizes: list[tuple[int, int, int]], inputs: Path, tmp_path: Path
) -> None:
    folder, place = with_model(model_of(family), inputs, tmp_path), tmp_path / "store"
    report = run(folder, place)
    assert report.row_sum_deviation is not None
    assert report.row_sum_deviation < ROUNDED
    store = opened(place)
    assert store.layers == tuple(LayerSize(*size) for size in sizes)
    assert store.provenance["inputs"]["model"]["attention"] == path
    tokens = torch.from_numpy(store.read("tokens", slice(4, 6)))
    expected = capture(model_of(family), attention_of(family), tokens, QUERIES)
    np.testing.assert_array_equal(store.read("attention", slice(4, 6)), expected["attention"].permute(1, 2, 0, 3, 4))
    np.testing.assert_array_equal(store.read("values", slice(4, 6)), expected["values"].transpose(0, 1))
    np.testing.assert_array_equal(store.read("first_key", 4), expected.first_key)
    for layer, (heads, kv_heads, head_dim) in enumerate(sizes):
        there = np.isfinite(store.read("values", ...)[:, layer])
        assert there[:, :kv_heads, :, :head_dim].all()
        assert not there[:, kv_heads:].any()
        assert not there[..., head_dim:].any()
        assert np.isnan(store.read("attention", ...)[:, :, layer, heads:]).all()
    assert run(folder, place).written == 0
