"""The checkpoints of the family ``training``: those of the recipe, small, and of a model that learns."""

import math
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from dagster_project.study.home import Home
from dagster_project.study.studies import list_families, locate_shipped_file, read_studies
from extract.checks import check_inputs
from extract.embedded import list_topics
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
    losses = [measure_loss(STEPS[at], ids) for at in (0, 3, 6, -1)]
    assert losses[0] == pytest.approx(math.log(RECIPE.vocabulary), abs=0.5)
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 2.2
