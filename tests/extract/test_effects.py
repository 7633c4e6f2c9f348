"""What heads do, on a study that was extracted: what is replaced and counted, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.effects import ReplacedHeads
from extract.effects.ablation import compute_mean_of_others, compute_mean_outputs
from extract.effects.interventions import intervene
from extract.effects.losses import OpenedModel, ablate_heads, measure_heads, measure_sparse_losses, open_study
from extract.effects.policies import SHARES, LargestKeys
from extract.extraction import extract
from extract.models import loading as models
from extract.settings import ExtractionSettings
from storage.errors import UserError
from storage.files.places import LocalPlace
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore
from tests.extract.tiny import WINDOW, text, write_checkpoint
from tests.refusals import read_refusal

pytestmark = pytest.mark.usefixtures("noiseless")

SEQUENCES, KEYS = 4, 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint ``qwen3`` (windows in all layers but the first), the text ``book.txt``, and a study's ``store``."""
    folder = tmp_path_factory.mktemp("effects")
    write_checkpoint(folder / "qwen3", "qwen3")
    (folder / "book.txt").write_text(text(400), encoding="utf-8")
    extract(settings(folder), study="tiny", path=LocalPlace(folder / "store"))
    return folder


def settings(folder: Path, **others: object) -> ExtractionSettings:
    given = {"model": str(folder / "qwen3"), "corpus": str(folder / "book.txt"), "context_length": KEYS}
    return ExtractionSettings.model_validate(given | {"sequences": SEQUENCES} | others)


def store(folder: Path) -> SequenceStore:
    return SequenceStore.open(LocalPlace(folder / "store"), TENSORS)


@pytest.fixture(scope="module")
def opened(folder: Path) -> OpenedModel:
    return open_study(settings(folder), store(folder))


def test_the_model_is_the_one_that_was_captured(folder: Path, opened: OpenedModel) -> None:
    assert type(opened.model).__name__ == "Qwen3ForCausalLM"
    np.testing.assert_array_equal(opened.tokens, store(folder).read("tokens", ...))
    assert opened.attention.path == "AttentionInterface"
    held_out = opened.select_held_out(3)
    assert held_out.shape == (3, KEYS)
    assert not {row.tobytes() for row in held_out} & {row.tobytes() for row in opened.tokens}


def test_means_are_those_of_all_other_sequences_of_the_study(opened: OpenedModel) -> None:
    ids = opened.select_ids(SEQUENCES)
    means = compute_mean_of_others(compute_mean_outputs(opened.model, opened.attention, ids), 1)
    with intervene(opened.model, opened.attention, ReplacedHeads({(2, 3): "mean"}, means)), torch.inference_mode():
        logits = opened.model(input_ids=ids[1:2], use_cache=False).logits[0].double()
    expected = torch.nn.functional.cross_entropy(logits[:-1], ids[1, 1:])
    done = [(0, 0), (0, 1), (0, 2), (1, 0)]  # before it was stopped
    found = list(ablate_heads(opened, sequences=2, kinds=("mean",), done=done))
    assert [(sequence, piece.layer) for sequence, piece in found] == [(1, 1), (1, 2)]
    assert found[1][1].loss[0, 3] == pytest.approx(float(expected), abs=2e-6)
    alone = compute_mean_outputs(opened.model, opened.attention, ids[:1])
    assert "there is only one; set sequences to 2 or more" in read_refusal(compute_mean_of_others, alone, 0)


def test_heads_are_those_of_the_model_with_the_keys_that_their_windows_show(opened: OpenedModel) -> None:
    heads = measure_heads(opened, sequences=2)
    assert heads.present.tolist() == [[True] * 4] * 3
    assert heads.counts[0].tolist() == [*range(1, KEYS + 1)]
    assert heads.counts[1].tolist() == [min(n, WINDOW) for n in range(1, KEYS + 1)]
    assert heads.mass_keys is not None
    assert heads.mass_keys.shape == SHARES.shape
    assert (np.diff(heads.mass_keys) >= 0).all()


# --- what is refused ---


def refusal(folder: Path, path: Path | None = None, **others: object) -> str:
    store = SequenceStore.open(LocalPlace(path or folder / "store"), TENSORS)
    return read_refusal(open_study, settings(folder, **others), store)


def test_a_study_without_a_model_and_a_model_that_has_changed(folder: Path, tmp_path: Path) -> None:
    assert "A synthetic study has no model whose heads could be changed" in refusal(
        folder, model="synthetic", corpus=None
    )
    write_checkpoint(tmp_path / "qwen3", "qwen3", seed=1)
    (tmp_path / "book.txt").write_bytes((folder / "book.txt").read_bytes())
    assert "has changed since the study was extracted (sha256)" in refusal(tmp_path, folder / "store")


def test_the_commit_of_a_hub_id_is_the_one_that_was_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def described(given: ExtractionSettings) -> object:
        asked.append(given.model.revision)
        raise UserError

    inputs = {"model": {"id": "acme/tiny", "commit": "c0ffee"}, "corpus": {}}
    monkeypatch.setattr(SequenceStore, "provenance", {"inputs": inputs})
    monkeypatch.setattr(models, "describe", described)
    refusal(folder, model={"id": "acme/tiny", "revision": "main"})
    assert asked == ["c0ffee"]


def test_more_sequences_than_the_study_has(opened: OpenedModel) -> None:
    for sequences in (0, SEQUENCES + 1):
        said = f"Effects are requested on {sequences} sequences, but the study has {SEQUENCES}"
        assert said in read_refusal(opened.select_ids, sequences)


def test_lack_of_memory_is_one_line(opened: OpenedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> object:
        raise torch.OutOfMemoryError

    policies = [LargestKeys("same_n", "N=2", np.full((3, 4), 2))]
    held_out = opened.select_held_out(1)
    monkeypatch.setattr(opened.model.model.norm, "forward", full)
    with pytest.raises(UserError, match="There is not enough memory for a forward pass of Qwen3ForCausalLM"):
        next(measure_sparse_losses(opened, held_out, policies))
