"""What a study will take is said beforehand, and refused where there is less, naming what would fit."""

import logging
import re
from pathlib import Path

import pytest

from dagster_project.steps import landing, measuring, pipeline
from dagster_project.steps.summaries import STEPS
from dagster_project.study import space
from dagster_project.study.home import TENSORS_VARIABLE, Home
from dagster_project.study.studies import Study, find_study
from extract.settings import Shard
from storage.errors import UserError
from storage.files.places import bytes_on_disk

SEQUENCES = 6


def study(inputs: Path, **others: object) -> Study:
    given = {"model": str(inputs / "llama"), "corpus": str(inputs / "book.txt"), "context_length": 48}
    return Study.model_validate({**given, "sequences": SEQUENCES, **others})


def with_free(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """Let every disk have so many bytes on top of those that are always left free."""
    monkeypatch.setattr(space, "free_bytes", lambda _: space.SPARE + free)


def said_of(home: Home, asked: Study, caplog: pytest.LogCaptureFixture) -> dict[str, float]:
    """What a study says that it takes, in bytes by what."""
    with caplog.at_level(logging.INFO):
        pipeline.extract_tensors(home, "mine", asked)
    said = next(line for line in caplog.messages if "takes at most" in line)
    units = {"MB": 1e6, "GB": 1e9}
    return {part: float(size) * units[unit] for size, unit, part in re.findall(r"([\d.]+) (MB|GB) of (\w+)", said)}


@pytest.mark.parametrize(
    ("sequences", "kappas", "queries"), [(2, [0.5], None), (6, [0.5], None), (2, [0.05, 0.5, 5], [100, 255])]
)
def test_a_study_says_beforehand_what_it_takes_and_takes_no_more(
    sequences: int, kappas: list[float], queries: list[int] | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Synthetic numbers are random, so they compress less than those of any model."""
    sizes = {"layers": 2, "heads": 16, "kv_heads": 8, "head_dim": 64}
    given = {"model": "synthetic", "context_length": 256, "sequences": sequences, "queries": queries}
    asked = Study.model_validate({**given, "synthetic": sizes, "analysis": {"kappas": kappas}})
    home = Home(tmp_path)
    home.prepare()
    said = said_of(home, asked, caplog)
    measuring.measure(home, "mine", asked)
    for step in STEPS.values():
        pipeline.summarise(home, "mine", asked, step)
    landing.land_study(home, "mine", asked)
    places = {
        "tensors": [home.tensors("mine")],
        "metrics": [home.metrics("mine")],
        "tables": [home.warehouse, home.summaries("mine")],
    }
    for what, folders in places.items():
        taken, rounded = sum(bytes_on_disk(folder) for folder in folders), 0.1e6
        assert taken <= said[what] + rounded, what
        assert taken > 0.2 * said[what], f"the bound of {what} is of the right size, not just large"


def test_a_study_that_does_not_fit_is_refused_before_anything_is_written(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, asked = Home(tmp_path), study(inputs)
    sizes = {"sequence": 6, "query": 1, "layer": 2, "head": 4, "kv_head": 2, "key": 48, "head_dim": 16}
    total = sum(space.needs(home, "mine", asked, sizes, SEQUENCES).values())
    with_free(monkeypatch, total - 1)
    with pytest.raises(UserError, match=f"set sequences to {SEQUENCES - 1} or less, or set values: float16") as caught:
        pipeline.extract_tensors(home, "mine", asked)
    assert "\n" not in str(caught.value)
    assert not home.tensors("mine").exists()

    fewer = study(inputs, sequences=SEQUENCES - 1)
    assert pipeline.extract_tensors(home, "fewer", fewer).written == SEQUENCES - 1
    narrow = study(inputs, values="float16")
    assert pipeline.extract_tensors(home, "narrow", narrow).written == SEQUENCES


def test_of_a_study_begun_only_the_rest_counts_and_its_settings_are_not_to_be_changed(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, asked = Home(tmp_path), study(inputs)
    pipeline.extract_tensors(home, "mine", asked)
    sizes = {"sequence": 6, "query": 1, "layer": 2, "head": 4, "kv_head": 2, "key": 48, "head_dim": 16}
    all_of_it, rest = (space.needs(home, "mine", asked, sizes, missing) for missing in (SEQUENCES, 1))
    assert rest["tensors"] * SEQUENCES == all_of_it["tensors"]
    with_free(monkeypatch, sum(rest.values()) - 1)
    with pytest.raises(UserError, match="make room there") as caught:
        space.check_space(home, "mine", asked, sizes, 1)
    assert "set sequences" not in str(caught.value)
    with_free(monkeypatch, sum(rest.values()))
    space.check_space(home, "mine", asked, sizes, 1)


def test_tensors_elsewhere_are_counted_there(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, asked = Home(tmp_path / "root", tmp_path / "tensors"), study(inputs)
    home.prepare()
    monkeypatch.setattr(space, "_disk", lambda folder: folder.name)
    monkeypatch.setattr(space, "free_bytes", lambda place: space.SPARE + (0 if place == home.tensor_root else 10**12))
    with pytest.raises(
        UserError, match=f"in {tmp_path / 'tensors'} .* another place with {TENSORS_VARIABLE}"
    ) as caught:
        pipeline.extract_tensors(home, "mine", asked)
    assert "of metrics" not in str(caught.value)


def test_tensors_that_have_landed_are_named_as_space_to_be_had(
    mine: Path, inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_free(monkeypatch, 1)
    with pytest.raises(UserError, match=r"attention-geometry drop STUDY`, of mine \([\d.]+ MB\)"):
        pipeline.extract_tensors(Home(mine), "other", study(inputs))


def test_space_is_looked_at_again_before_metrics_are_made(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, asked = Home(tmp_path), study(inputs)
    pipeline.extract_tensors(home, "mine", asked)
    with_free(monkeypatch, 1)
    with pytest.raises(UserError, match="of metrics"):
        measuring.measure(home, "mine", asked)
    assert not home.metrics("mine").exists()


def test_shards_count_what_all_of_them_will_write(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, asked = Home(tmp_path), study(inputs)
    sizes = {"sequence": 6, "query": 1, "layer": 2, "head": 4, "kv_head": 2, "key": 48, "head_dim": 16}
    with_free(monkeypatch, sum(space.needs(home, "mine", asked, sizes, SEQUENCES).values()) - 1)
    with pytest.raises(UserError, match="set sequences to"):
        pipeline.extract_tensors(home, "mine", asked, Shard(3, 3))


def test_tensors_that_are_dropped_already_are_no_space_to_be_had(
    copied: Path, inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(copied)
    pipeline.drop_tensors(home, "mine", find_study(home, "mine"))
    with_free(monkeypatch, 1)
    with pytest.raises(UserError) as caught:
        pipeline.extract_tensors(home, "other", study(inputs))
    assert "attention-geometry drop" not in str(caught.value)
