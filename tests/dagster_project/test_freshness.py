"""What is missing or stale of a study, and why: each cause makes exactly the right assets stale, and no other."""

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
import yaml
import zarr

import sql
from dagster_project.steps import measuring, pipeline, reporting
from dagster_project.steps.summaries import FITS, STEPS
from dagster_project.study.home import Home
from dagster_project.study.studies import find_study, readable_studies
from dagster_project.upkeep import freshness
from dagster_project.upkeep.freshness import PARENTS, READ_TENSORS, stale
from extract import extraction
from storage.errors import UserError
from storage.files import tables as summaries
from storage.warehouse import versions
from tests.dagster_project.driver import files
from tests.extract.tiny import text, write_checkpoint

AFTER_TENSORS = tuple(PARENTS)
AFTER_METRICS = AFTER_TENSORS[1:]
AFTER_WAREHOUSE = ("warehouse", "claims", "report")


def found(home: Path, name: str = "mine") -> dict[str, str]:
    return stale(Home(home), name, find_study(Home(home), name))


def given(home: Path, **changes: object) -> None:
    """Give the recorded study other settings."""
    recorded = yaml.safe_load((home / "studies.yaml").read_text(encoding="utf-8"))
    recorded["studies"]["mine"] |= changes
    (home / "studies.yaml").write_text(yaml.safe_dump(recorded), encoding="utf-8")


def test_a_finished_study_is_fresh_and_looking_changes_nothing(mine: Path) -> None:
    before = files(mine)
    assert found(mine) == {}
    assert files(mine) == before


def test_what_was_never_run_is_missing_in_order(tmp_path: Path) -> None:
    reasons = found(tmp_path, "synthetic")
    assert tuple(reasons) == AFTER_TENSORS
    assert set(reasons.values()) == {"missing", "follows from warehouse"}
    assert reasons["claims"] == "follows from warehouse"
    assert not list(tmp_path.iterdir())


# --- settings ---


@pytest.mark.parametrize(
    ("changes", "first", "why", "all_stale"),
    [
        ({"context_length": 40}, "tensors", "setting 'context_length' is 40, was 48", AFTER_TENSORS),
        ({"sequences": 5}, "tensors", "setting 'sequences' is 5, was 4", AFTER_TENSORS),
        (
            {"analysis": {"kappas": [2]}},
            "selection_metrics",
            "setting 'analysis.kappas' is [2.0], was [0.5]",
            AFTER_METRICS,
        ),
        ({"analysis": {"map_n": 3}}, "report", "setting 'analysis.map_n' is 3, was 4", ("report",)),
        ({"keep_tensors": False}, None, None, ()),
    ],
)
def test_another_setting(
    copied: Path, changes: dict[str, object], first: str | None, why: str | None, all_stale: tuple[str, ...]
) -> None:
    given(copied, **changes)
    reasons = found(copied)
    assert tuple(reasons) == all_stale
    if first:
        assert reasons.pop(first) == why
    others = {asset: reason for asset, reason in reasons.items() if reason != why}
    assert all(reason.startswith(("follows from ", "made from other ")) for reason in others.values()), others


def test_a_grid_of_drawn_heads_is_a_setting_of_one_step(copied: Path) -> None:
    given(copied, analysis={"monte_carlo": {"draws": 7}})
    reasons = found(copied)
    assert tuple(reasons) == ("bounds_in_expectation", *AFTER_WAREHOUSE)
    assert reasons["bounds_in_expectation"].startswith("setting 'analysis.monte_carlo' is {")


# --- inputs ---


@pytest.fixture
def own_inputs(copied: Path, inputs: Path, tmp_path: Path) -> Path:
    """The data root ``copied`` as if made from a model and a text of its own, which may be changed."""
    there = shutil.copytree(inputs, tmp_path / "own")
    given(copied, model=str(there / "llama"), corpus=str(there / "book.txt"))
    for path in [*copied.glob("*/mine.zarr/zarr.json")]:
        path.write_text(path.read_text(encoding="utf-8").replace(str(inputs), str(there)), encoding="utf-8")
    return there


def test_inputs_that_have_only_been_moved_are_the_same(copied: Path, inputs: Path, tmp_path: Path) -> None:
    given(copied, model=str(shutil.copytree(inputs / "llama", tmp_path / "other")), corpus="book.txt")
    shutil.copyfile(inputs / "book.txt", copied / "book.txt")
    assert found(copied) == {}
    moved = copied.rename(copied.parent / "moved")
    home, study = Home(moved), find_study(Home(moved), "mine")
    assert study.corpus.id == f"{moved}/book.txt"
    assert found(moved) == {}
    before = files(moved)
    assert pipeline.extract_tensors(home, "mine", study, replace=True).written == 0
    assert files(moved) == before
    (moved / "book.txt").write_text(text(3001), encoding="utf-8")
    assert found(moved)["tensors"] == f"setting 'corpus.id' is '{moved}/book.txt', was '{inputs}/book.txt'"


def test_another_text_or_other_weights(copied: Path, own_inputs: Path) -> None:
    book = own_inputs / "book.txt"
    book.write_text(text(3001), encoding="utf-8")
    assert found(copied)["tensors"] == "the corpus file has changed"
    write_checkpoint(own_inputs / "llama", "llama", num_hidden_layers=2, seed=1)
    assert found(copied)["tensors"] == "the model's weights have changed; the corpus file has changed"
    assert tuple(found(copied)) == AFTER_TENSORS


def test_a_text_that_is_gone_is_an_error_and_not_stale(copied: Path, own_inputs: Path) -> None:
    (own_inputs / "book.txt").unlink()
    with pytest.raises(UserError, match=r"book\.txt"):
        found(copied)


# --- versions of code ---


def of_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extraction, "EXTRACTION_VERSION", 99)


def of_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "METRICS_VERSION", 99)


def of_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STEPS, FITS[0], replace(STEPS[FITS[0]], version=99))


def of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "ROWS_VERSION", 99)
    versions.landing_version.cache_clear()


def of_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "REPORT_VERSION", 99)


@pytest.mark.parametrize(
    ("raise_version", "first", "all_stale"),
    [
        (of_tensors, "tensors", AFTER_TENSORS),
        (of_metrics, "selection_metrics", AFTER_METRICS),
        (of_fits, FITS[0], (FITS[0], "bounds_in_expectation", "parameter_effects", *AFTER_WAREHOUSE)),
        (of_rows, "warehouse", AFTER_WAREHOUSE),
        (of_page, "report", ("report",)),
    ],
)
def test_another_version_of_code(
    mine: Path,
    monkeypatch: pytest.MonkeyPatch,
    raise_version: Callable[[pytest.MonkeyPatch], None],
    first: str,
    all_stale: tuple[str, ...],
) -> None:
    try:
        raise_version(monkeypatch)
        reasons = found(mine)
    finally:
        monkeypatch.undo()
        versions.landing_version.cache_clear()
    assert tuple(reasons) == all_stale
    assert reasons[first].startswith("made by version ")
    assert " of its code, now " in reasons[first]


@pytest.mark.parametrize(
    ("kind", "name", "counts"),
    [
        ("schema", "heads", True),
        ("derived", "elbows", True),
        ("checks", "identities", True),
        ("macros", "elbows_of", True),
        ("views", "margins", True),
        ("views", "coverage", False),
        ("queries", "claims", False),
    ],
)
def test_a_statement_counts_if_it_decides_what_lands(
    monkeypatch: pytest.MonkeyPatch, kind: sql.Kind, name: str, *, counts: bool
) -> None:
    was, real = versions.landing_version(), sql.statement

    def changed(of: sql.Kind, asked: str) -> sql.Statement:
        known = real(of, asked)
        return replace(known, text=known.text + "\n-- changed") if (of, asked) == (kind, name) else known

    monkeypatch.setattr(sql, "statement", changed)
    versions.landing_version.cache_clear()
    try:
        assert (versions.landing_version() != was) == counts
    finally:
        monkeypatch.undo()
        versions.landing_version.cache_clear()


# --- what is lost, cut short or damaged ---


def unfinished(home: Path, folder: str) -> None:
    zarr.open_group(home / folder / "mine.zarr", mode="r+")["finished"][2:] = 0


def test_sequences_that_are_missing(copied: Path) -> None:
    unfinished(copied, "metrics")
    assert found(copied)["selection_metrics"] == "2 of 4 sequences missing"
    assert tuple(found(copied)) == AFTER_METRICS
    unfinished(copied, "tensors")
    assert found(copied)["tensors"] == "2 of 4 sequences missing"


def test_unfinished_tensors_of_another_device_are_refused_and_not_replaced(copied: Path) -> None:
    home, study, path = Home(copied), find_study(Home(copied), "mine"), copied / "tensors" / "mine.zarr"
    group = zarr.open_group(path, mode="r+")
    made = group.attrs["provenance"]
    group.attrs["provenance"] = made | {"versions": made["versions"] | {"device": "cuda (NVIDIA H200)", "torch": "1"}}
    assert "tensors" not in found(copied)
    unfinished(copied, "tensors")
    with pytest.raises(
        UserError, match=r"2 of 4 sequences missing .* another device and torch; finish it where .*--fr"
    ):
        found(copied)
    before = files(path)
    with pytest.raises(UserError, match=r"versions\.device"):
        pipeline.extract_tensors(home, "mine", study, replace=True)
    assert files(path) == before
    assert list(copied.rglob("*.replaced")) == []


@pytest.mark.parametrize(
    ("name", "first", "all_stale"),
    [
        ("tensors/mine.zarr", "tensors", AFTER_TENSORS),
        ("metrics/mine.zarr", "selection_metrics", AFTER_METRICS),
        ("summaries/mine/sink_effect.parquet", "sink_effect", ("sink_effect", *AFTER_WAREHOUSE)),
        ("warehouse/mine.duckdb", "warehouse", AFTER_WAREHOUSE),
        ("reports/mine.html", "report", ("report",)),
    ],
)
def test_what_is_lost_or_damaged(copied: Path, name: str, first: str, all_stale: tuple[str, ...]) -> None:
    path = copied / name
    broken = path / "zarr.json" if path.is_dir() else path
    broken.write_bytes(b"broken")
    reasons = found(copied)
    assert tuple(reasons) == all_stale
    known = "made by an earlier version of its code, now " if first == "report" else "cannot be read"
    assert reasons[first].startswith(known)
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    reasons = found(copied)
    assert (tuple(reasons), reasons[first]) == (all_stale, "missing")


def of_other_metrics(home: Path) -> None:
    group = zarr.open_group(home / "metrics" / "mine.zarr", mode="r+")
    group.attrs["provenance"] = group.attrs["provenance"] | {"tensors": {"study": "mine"}}


def of_other_summaries(home: Path) -> None:
    path = home / "summaries" / "mine" / f"{next(iter(STEPS[FITS[0]].tables))}.parquet"
    made, libraries = summaries.made_from(path), summaries.made_by(path)
    summaries.write_summary(path, list(summaries.read_summary(path)), made | {"metrics": {}}, libraries)


def of_another_database(home: Path) -> None:
    with closing(duckdb.connect(home / "warehouse" / "mine.duckdb")) as connection:
        connection.execute('UPDATE studies SET provenance = json_merge_patch(provenance, \'{"study": "other"}\')')


@pytest.mark.parametrize(
    ("change", "first"),
    [
        (of_other_metrics, "selection_metrics"),
        (of_other_summaries, FITS[0]),
        (of_another_database, "warehouse"),
    ],
)
def test_what_another_run_made_is_not_taken_for_that_of_this(
    copied: Path, change: Callable[[Path], None], first: str
) -> None:
    change(copied)
    reasons = found(copied)
    assert next(iter(reasons)) == first
    assert reasons[first].startswith("made from other ")


def test_the_truth_is_in_the_files_and_not_in_the_records(copied: Path) -> None:
    shutil.rmtree(copied / "dagster")
    assert found(copied) == {}


# --- dropped tensors ---


def test_dropped_tensors_are_fresh_until_something_is_made_from_them(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(copied)
    pipeline.drop_tensors(home, "mine", find_study(home, "mine"))
    assert found(copied) == {}
    monkeypatch.setitem(STEPS, "sink_effect", replace(STEPS["sink_effect"], version=99))
    assert tuple(found(copied)) == ("sink_effect", *AFTER_WAREHOUSE)
    given(copied, analysis={"kappas": [2]})
    reasons = found(copied)
    assert tuple(reasons) == AFTER_TENSORS
    assert reasons["tensors"] == "dropped, and selection_metrics is made from them"


def test_the_steps_that_read_tensors_are_those_that_cannot_do_without(copied: Path) -> None:
    home, study = Home(copied), find_study(Home(copied), "mine")
    pipeline.drop_tensors(home, "mine", study)
    sources = pipeline.open_sources(home, "mine", study)
    needing = {"selection_metrics"}
    for step in STEPS.values():
        try:
            for batches in step.make(sources).values():
                next(iter(batches), None)
        except UserError:
            needing.add(step.name)
    assert needing == set(READ_TENSORS)


# --- study by study ---


def test_an_error_in_one_study_hides_no_other(copied: Path) -> None:
    with (copied / "studies.yaml").open("a", encoding="utf-8") as file:
        file.write("  bad: {model: embedded}\n  A b: {}\n")
    studies, errors = readable_studies(Home(copied))
    assert {"mine", "embedded"} <= studies.keys()
    assert errors.keys() == {"bad", "A b"}
    assert find_study(Home(copied), "mine") == studies["mine"]
    (copied / "studies.yaml").write_text("studies: [", encoding="utf-8")
    studies, errors = readable_studies(Home(copied))
    assert "embedded" in studies
    assert errors.keys() == {str(copied / "studies.yaml")}


def test_a_page_says_what_it_was_made_from(mine: Path) -> None:
    origin = reporting.origin_of_report(Home(mine).report("mine"))
    assert origin["version"] == reporting.REPORT_VERSION
    assert json.loads(json.dumps(origin)) == origin
    assert (
        freshness._why_report(Home(mine).report("mine"), find_study(Home(mine), "mine"), {}) == "made from other tables"
    )
