"""What is missing or stale of a study, and why: each cause makes exactly the right assets stale, and no other."""

import re
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
import zarr

import sql
from dagster_project.analysis import metrics as measured
from dagster_project.assets import landing, tensors
from dagster_project.assets import metrics as measuring
from dagster_project.assets import report as reporting
from dagster_project.assets.asset import digest_code
from dagster_project.assets.catalogue import ASSETS, find_asset
from dagster_project.assets.landing import drop_tensors
from dagster_project.assets.summaries import SUMMARIES
from dagster_project.study.home import Home
from dagster_project.study.studies import find_study
from dagster_project.upkeep.plan import find_stale_assets
from extract import standing
from storage.errors import UserError
from storage.files.parts import INPUTS
from storage.warehouse import relations
from storage.zarr.sequences import SequenceStore
from tests.dagster_project import making
from tests.dagster_project.driver import CHECKOUT, files
from tests.dagster_project.making import NAMES
from tests.dagster_project.recorded import change
from tests.extract.tiny import text, write_checkpoint
from tests.storage.earlier import rewrite, rewrite_inputs

AFTER_TENSORS = NAMES
AFTER_METRICS = NAMES[1:]
AFTER_WAREHOUSE = ("warehouse", "claims", "report")


def found(home: Path, name: str = "mine") -> dict[str, str]:
    return find_stale_assets(Home(home), name, find_study(Home(home), name))


# --- settings ---


SETTINGS: list[tuple[dict[str, object], str | None, str | None, tuple[str, ...]]] = [
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
]
"""Other settings, the first asset that they make stale, why, and all of them."""


def test_another_setting(copied: Path) -> None:
    entries = (copied / "studies.yaml").read_bytes()
    for changes, first, why, all_stale in SETTINGS:
        (copied / "studies.yaml").write_bytes(entries)
        change(copied, **changes)
        reasons = found(copied)
        assert tuple(reasons) == all_stale
        if first:
            assert reasons.pop(first) == why
        others = {asset: reason for asset, reason in reasons.items() if reason != why}
        assert all(reason.startswith(("follows from ", "made from other ")) for reason in others.values()), others


# --- inputs ---


@pytest.fixture
def own_inputs(copied: Path, inputs: Path, tmp_path: Path) -> Path:
    """The data root ``copied`` as if made from a model and a text of its own, which may be changed."""
    there = shutil.copytree(inputs, tmp_path / "own")
    change(copied, model=str(there / "llama"), corpus=str(there / "book.txt"))
    for path in [*copied.glob("*/mine.zarr/zarr.json")]:
        path.write_text(path.read_text(encoding="utf-8").replace(str(inputs), str(there)), encoding="utf-8")
        rewrite(path.parent)
    return there


def test_inputs_that_have_only_been_moved_are_the_same(copied: Path, inputs: Path, tmp_path: Path) -> None:
    change(copied, model=str(shutil.copytree(inputs / "llama", tmp_path / "other")), corpus="book.txt")
    shutil.copyfile(inputs / "book.txt", copied / "book.txt")
    assert found(copied) == {}
    moved = copied.rename(copied.parent / "moved")
    home, study = Home(moved), find_study(Home(moved), "mine")
    assert study.corpus.id == f"{moved}/book.txt"
    assert found(moved) == {}
    before = files(moved)
    assert making.extract(home, "mine", study, replace=True).written == 0
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


VERSIONS: dict[str, tuple[tuple[tuple[object, str, object], ...], tuple[str, ...]]] = {
    "tensors": (((standing, "EXTRACTION_VERSION", 99), (tensors, "EXTRACTION_VERSION", 99)), AFTER_TENSORS),
    "selection_metrics": (((measured, "METRICS_VERSION", 99), (measuring, "METRICS_VERSION", 99)), AFTER_METRICS),
    "warehouse": (((relations, "ROWS_VERSION", 99),), AFTER_WAREHOUSE),
    "report": (((reporting, "compute_report_version", lambda: "99"),), ("report",)),
}
"""What holds the version of an asset's code, and all that is stale if it is another."""


@pytest.mark.one_case
@pytest.mark.parametrize("first", VERSIONS)
def test_another_version_of_code(mine: Path, monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    held, all_stale = VERSIONS[first]
    try:
        with monkeypatch.context() as patched:
            for place in held:
                patched.setattr(*place)
            relations.compute_landing_version.cache_clear()
            reasons = found(mine)
    finally:
        relations.compute_landing_version.cache_clear()
    assert tuple(reasons) == all_stale
    assert re.fullmatch(r"made by version [\w-]+ of its code, now [\w-]+", reasons[first])


@pytest.mark.one_case(others="long")
@pytest.mark.parametrize("asset", [name for name in making.TABLES if name in NAMES])
def test_another_version_of_the_code_of_small_tables(mine: Path, asset: str) -> None:
    """What reads them is stale too, and no other asset of small tables."""
    reading = [later.name for later in SUMMARIES if asset in later.parents and later.name in NAMES]
    with making.at_version(asset, 99):
        reasons = found(mine)
    assert tuple(reasons) == (asset, *reading, *AFTER_WAREHOUSE)
    assert reasons[asset] == f"made by version {find_asset(asset).version()} of its code, now 99"
    assert {reasons[later] for later in reading} == ({f"made from other {asset}"} if reading else set())


def test_a_statement_counts_if_it_decides_what_lands(monkeypatch: pytest.MonkeyPatch) -> None:
    was, real = relations.compute_landing_version(), sql.read_statement
    counts = {("derived", "kinds_moved"): True, ("macros", "elbows_of"): True, ("views", "coverage"): False}
    try:
        for changed, decides in counts.items():

            def read(*asked: Any, changed: tuple[str, str] = changed) -> sql.Statement:
                known = real(*asked)
                return replace(known, text=known.text + "\n-- changed") if asked == changed else known

            monkeypatch.setattr(sql, "read_statement", read)
            relations.compute_landing_version.cache_clear()
            assert (relations.compute_landing_version() != was) == decides, changed
    finally:
        monkeypatch.undo()
        relations.compute_landing_version.cache_clear()


# --- what is lost, cut short or damaged ---


def test_layers_and_sequences_that_are_missing(copied: Path) -> None:
    (making.find_measured(Home(copied), "mine", "keys").parent / INPUTS).unlink()
    assert found(copied)["selection_metrics"] == "1 of 2 layers missing"
    assert tuple(found(copied)) == AFTER_METRICS
    zarr.open_group(copied / "tensors" / "mine.zarr", mode="r+")["finished"][2:] = 0
    assert found(copied)["tensors"] == "2 of 4 sequences missing"


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("name", "first", "all_stale"),
    [
        ("tensors/mine.zarr", "tensors", AFTER_TENSORS),
        ("metrics/mine.parts", "selection_metrics", AFTER_METRICS),
        ("parts/mine/top_keys-*/top_keys.parquet", "top_keys", ("top_keys", *AFTER_WAREHOUSE)),
        ("warehouse/mine.duckdb", "warehouse", AFTER_WAREHOUSE),
        ("reports/mine.html", "report", ("report",)),
    ],
)
def test_what_is_lost_or_damaged(copied: Path, name: str, first: str, all_stale: tuple[str, ...]) -> None:
    (path,) = copied.glob(name)
    for broken in [*path.glob("zarr.json"), *path.glob(f"*/{INPUTS}")] if path.is_dir() else [path]:
        broken.write_bytes(b"broken")
    reasons = found(copied)
    assert tuple(reasons) == all_stale
    known = "made by an earlier version of its code, now " if first == "report" else "cannot be read"
    assert reasons[first].startswith(known)
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    reasons = found(copied)
    assert (tuple(reasons), reasons[first]) == (all_stale, "missing")


def test_what_another_run_made_is_not_taken_for_that_of_this(copied: Path) -> None:
    with closing(duckdb.connect(copied / "warehouse" / "mine.duckdb")) as connection:
        connection.execute('UPDATE studies SET provenance = json_merge_patch(provenance, \'{"study": "other"}\')')
    assert tuple(found(copied)) == AFTER_WAREHOUSE
    assert found(copied)["warehouse"].startswith("made from other ")
    rewrite_inputs(copied / "metrics" / "mine.parts", tensors={"study": "mine"})
    assert found(copied)["selection_metrics"].startswith("made from other ")


def test_the_truth_is_in_the_files_and_not_in_the_records(copied: Path) -> None:
    shutil.rmtree(copied / "dagster")
    assert found(copied) == {}


# --- dropped tensors ---


def test_dropped_tensors_are_fresh_until_something_is_made_from_them(copied: Path) -> None:
    home = Home(copied)
    drop_tensors(making.work(home, "mine"))
    assert found(copied) == {}
    with making.at_version("head_patterns", 99):
        assert tuple(found(copied)) == ("head_patterns", *AFTER_WAREHOUSE)
    with making.at_version("contributions", 99):
        assert found(copied)["tensors"] == "dropped, but contributions is made from them"
    change(copied, analysis={"kappas": [2]})
    reasons = found(copied)
    assert tuple(reasons) == AFTER_TENSORS
    assert reasons["tensors"] == "dropped, but selection_metrics is made from them"


def misses(home: Home, asset: str, array: str) -> bool:
    """Whether an asset cannot be rebuilt without an array of the tensor store."""
    try:
        making.make(home, "mine", [asset], force=True)
    except UserError as error:
        return f"'{array}' of {home.tensors('mine')} has been dropped" in str(error)
    return False


@pytest.mark.slow
def test_the_records_name_the_arrays_that_cannot_be_done_without(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each array that is dropped alone is missed by the assets whose records say that they read it, and no other."""
    needing: dict[str, set[str]] = {asset.name: set() for asset in ASSETS}
    before = files(copied / "metrics")
    for array in measured.READ:
        monkeypatch.setattr(SequenceStore, "_is_dropped", lambda _, name, array=array: name == array)
        for asset in ("selection_metrics", *making.TABLES):
            needing[asset] |= {array} if misses(Home(copied), asset, array) else set()
    assert needing == {asset.name: set(asset.reads) for asset in ASSETS}
    assert files(copied / "metrics") == before, "what cannot be rebuilt stays"


def test_files_that_decide_claims_and_pages_are_in_their_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sentence, a style or a query that is changed makes pages stale, without a version that somebody raises."""
    for module in (landing, reporting):
        monkeypatch.setattr(module, "digest_code", lambda *places: " ".join(map(str, places)))
    claims, page = (
        compute.__wrapped__().replace(str(CHECKOUT), "").split()
        for compute in (landing.compute_claims_version, reporting.compute_report_version)
    )
    findings = ["/reports/findings/claims.py", "/reports/findings/numbers.py"]
    assert claims == ["/dagster_project/analysis/claims", "/geometry/statistics", *findings]
    assert page == ["/reports", "/sql/views", "/sql/macros"]
    (tmp_path / "__pycache__").mkdir()
    found = set()
    for name in ("__pycache__/page.pyc", "numbers.py", "report.css", "claims.sql"):
        (tmp_path / name).touch()
        found.add(digest_code(tmp_path))
    assert len(found) == 4
    (tmp_path / "__pycache__" / "page.pyc").write_bytes(b"compiled")
    assert digest_code(tmp_path) in found, "what is compiled does not count"
