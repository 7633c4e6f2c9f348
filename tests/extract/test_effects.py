"""What heads do, on a study that was extracted: pieces that can be resumed, and what is refused."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.effects import ReplacedHeads
from extract.effects.ablation import REPLACEMENTS, LayerEffects, compute_mean_of_others, compute_mean_outputs
from extract.effects.interventions import intervene
from extract.effects.losses import OpenedModel, ablate_heads, measure_heads, measure_sparse_losses, open_study
from extract.effects.policies import SHARES, LargestKeys, build_policies
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


Pieces = list[tuple[int, LayerEffects]]


@pytest.fixture(scope="module")
def whole(opened: OpenedModel) -> Pieces:
    return list(ablate_heads(opened, sequences=2, kinds=REPLACEMENTS))


def test_means_are_those_of_all_other_sequences_of_the_study(opened: OpenedModel, whole: Pieces) -> None:
    ids = opened.select_ids(SEQUENCES)
    means = compute_mean_of_others(compute_mean_outputs(opened.model, opened.attention, ids), 1)
    with intervene(opened.model, opened.attention, ReplacedHeads({(2, 3): "mean"}, means)), torch.inference_mode():
        logits = opened.model(input_ids=ids[1:2], use_cache=False).logits[0].double()
    expected = torch.nn.functional.cross_entropy(logits[:-1], ids[1, 1:])
    ((_, piece),) = [(s, piece) for s, piece in whole if (s, piece.layer) == (1, 2)]
    assert piece.loss[1, 3] == pytest.approx(float(expected), abs=2e-6)
    alone = compute_mean_outputs(opened.model, opened.attention, ids[:1])
    assert "there is only one; set sequences to 2 or more" in read_refusal(compute_mean_of_others, alone, 0)


def test_what_is_stopped_goes_on_to_the_same_numbers(opened: OpenedModel, whole: Pieces) -> None:
    running = ablate_heads(opened, sequences=2, kinds=REPLACEMENTS)
    first = [next(running) for _ in range(4)]
    running.close()
    done = [(sequence, piece.layer) for sequence, piece in first]
    rest = list(ablate_heads(opened, sequences=2, kinds=REPLACEMENTS, done=done))
    for (sequence, ours), (of, theirs) in zip([*first, *rest], whole, strict=True):
        assert (sequence, ours.layer, ours.plain_loss) == (of, theirs.layer, theirs.plain_loss)
        np.testing.assert_array_equal([ours.loss, ours.kl], [theirs.loss, theirs.kl])


def test_policies_lose_on_held_out_sequences(opened: OpenedModel) -> None:
    heads = measure_heads(opened, sequences=2)
    assert heads.present.tolist() == [[True] * 4] * 3
    assert heads.counts[0].tolist() == [*range(1, KEYS + 1)]
    assert heads.counts[1].tolist() == [min(n, WINDOW) for n in range(1, KEYS + 1)]
    assert heads.mass_keys is not None
    assert heads.mass_keys.shape == SHARES.shape
    assert (np.diff(heads.mass_keys) >= 0).all()
    elbows = np.random.default_rng(0).uniform(2, 9, heads.present.shape)
    policies = build_policies(6, dataclasses.replace(heads, elbow=elbows, scores={"mass": elbows}))
    policies = [policy for policy in policies if policy.name in {"same_n", "sink_recent", "elbow", "mass"}]
    held_out = opened.select_held_out(2)
    found = list(measure_sparse_losses(opened, held_out, policies))
    assert [sequence for sequence, _ in found] == [0, 1]
    for _, losses in found:
        kept = dict(zip([policy.name for policy in policies], losses.keys_kept, strict=True))
        assert kept["same_n"] == kept["sink_recent"] == pytest.approx(heads.compute_cost(np.full((3, 4), 6)))
        assert (losses.kl > 0).all()
    ((sequence, again),) = list(measure_sparse_losses(opened, held_out, policies, done=[0]))
    assert sequence == 1
    np.testing.assert_array_equal(again.kl, found[1][1].kl)


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
