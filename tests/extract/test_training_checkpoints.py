"""The checkpoints of the family ``training``: those of the recipe, small, and of a model that learns."""

import math
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from dagster_project.study.home import Home
from dagster_project.study.studies import list_families, locate_shipped_file, read_studies
from extract.checks import check_inputs
from extract.embedded.manual import list_topics
from extract.identity import find_training_folder, open_model
from extract.settings import ExtractionSettings, ModelSettings
from model_training import __main__ as train
from storage.errors import UserError

RECIPE = train.RECIPES["training"]
STEPS = [f"step{step}" for step in RECIPE.checkpoints]


def test_the_shipped_checkpoints_are_those_of_the_recipe_and_small(tmp_path: Path) -> None:
    root = find_training_folder("step0").parent
    assert {path.name for path in root.iterdir()} == {*STEPS, "README.md"}
    assert sum(path.stat().st_size for path in root.rglob("*")) < 25e6
    assert [path.name for path in root.rglob("*.bin")] == []
    family = list_families(Home(tmp_path))["training"]
    assert list(family.members.values()) == STEPS
    studies = read_studies(locate_shipped_file())
    for member, step in family.members.items():
        check_inputs(studies[member])
        assert open_model(studies[member].model).files.path == root / step  # type: ignore[union-attr]


def test_a_step_without_a_checkpoint_is_refused() -> None:
    for revision in ("step7", "main", "../model"):
        model = ModelSettings(id="training", revision=revision)
        with pytest.raises(UserError, match=r"has no revision .*; it has step0, step32, .*, step2048"):
            open_model(model)
    given = {"model": {"id": "training", "gguf": "a.gguf"}, "corpus": "prose", "context_length": 8}
    with pytest.raises(ValueError, match="only allowed with a directory or a hub id"):
        ExtractionSettings.model_validate(given)


@torch.inference_mode()
def measure_loss(step: str, ids: torch.Tensor) -> float:
    model = AutoModelForCausalLM.from_pretrained(find_training_folder(step), dtype=torch.float32).eval()
    return float(train.compute_token_losses(model, ids))


def test_the_loss_on_held_out_text_falls_from_about_that_of_chance() -> None:
    tokenizer = AutoTokenizer.from_pretrained(find_training_folder("step0"))
    stream = train.encode(tokenizer, [text for _, text in list_topics("held_out")])
    ids = train.draw_windows(stream, 8, RECIPE, None)
    losses = [measure_loss(step, ids) for step in STEPS]
    assert losses[0] == pytest.approx(math.log(RECIPE.vocabulary), abs=0.5)
    assert losses[0] > losses[3] > losses[6] > losses[-1]
    assert losses[-1] < 2.2


def test_repeated_tokens_repeat_a_block_of_a_length_that_varies() -> None:
    generator = torch.Generator().manual_seed(1)
    periods = set()
    for _ in range(50):
        ids, known = train.repeat_tokens(RECIPE, generator)
        assert ids.shape == known.shape == (1, RECIPE.context)
        period = int((~known).sum()) - 1  # but for BOS
        periods.add(period)
        body = ids[0, 1:]
        assert torch.equal(body[period:], body[:-period])
        assert int(body.min()) >= 2
        assert train.LEAST_PERIOD <= period <= RECIPE.context // 2
    assert len(periods) > 10, "the distance to the copy could be learned instead of the copy"


def test_the_loss_is_that_of_the_tokens_that_can_be_predicted() -> None:
    torch.manual_seed(0)
    model = train.build_model(train.RECIPES["training"])
    ids = torch.randint(0, 258, (2, 16))
    known = torch.rand(2, 16) < 0.5
    logits = model(input_ids=ids).logits[:, :-1]
    chosen = -logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0][known[:, 1:]]
    found = train.compute_token_losses(model, ids, known)
    torch.testing.assert_close(found, chosen.mean())
    assert not torch.isclose(found, train.compute_token_losses(model, ids))


def test_batches_are_drawn_by_their_shares() -> None:
    generator = torch.Generator().manual_seed(2)
    streams = {"english": torch.full((500,), 5), "manual": torch.full((500,), 6), "sources": torch.zeros(0).long()}
    drawn = [train.draw_batch(streams, RECIPE, generator) for _ in range(60)]
    ids, known = (torch.cat(parts) for parts in zip(*drawn, strict=True))
    text = {token: float((ids[:, 1:] == token).all(1).float().mean()) for token in (5, 6)}
    assert text[5] == pytest.approx(RECIPE.share_english, abs=0.06)
    assert text[6] == pytest.approx(RECIPE.share_manual, abs=0.04)
    assert float((~known).any(1).float().mean()) == pytest.approx(RECIPE.share_repeated, abs=0.06)
