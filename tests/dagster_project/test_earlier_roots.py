"""A data root of version 0.1.0 is read, and only that is rebuilt whose code has another version or digest now."""

import json
import math
import re
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sql
from dagster_project.assets.catalogue import ASSETS, find_asset
from dagster_project.study.home import Home
from dagster_project.study.studies import find_study
from dagster_project.upkeep.freshness import find_stale_assets
from storage.warehouse.connection import connect
from storage.zarr.arrays import SELECTION, TENSORS
from storage.zarr.sequences import SequenceStore
from tests.dagster_project.driver import attention_geometry
from tests.dagster_project.earlier_roots import ARCHIVE, NAME, STUDY, unpack
from tests.dagster_project.making import EFFECTS

VERSIONS = {
    "tensors": "3",
    "selection_metrics": "5",
    "assumption_norms": "2",
    "assumption_similarity": "1",
    "assumption_weights": "1",
    "attention_by_position": "1",
    "selection_means": "2",
    "sink_effect": "1",
    "contributions": "1",
    "value_directions": "1",
    "bounds_in_expectation": "1",
    "parameter_effects": "1",
    "warehouse": "6-486b2330d23c",
    "report": "3",
}
"""What version 0.1.0 made each asset with, but the claims, of which nothing is stored."""

CHANGED = {
    "selection_metrics": "every N has the distance of the selected from the rest, and heads their concentration",
    "assumption_norms": "intervals are over sequences; what is compared with them is stored for each sequence",
    "sink_effect": "intervals are over sequences",
    "attention_by_position": "the standard deviation, which nothing read, is gone",
    "contributions": "the same",
    "assumption_similarity": "the choice between variants counts correlated residuals for what they are worth",
    "assumption_weights": "the same",
    "selection_means": "specificity and Precision's excess are averaged too",
    "parameter_effects": "a parameter is tested only where its term is present",
    "warehouse": "its statements are other ones",
    "report": "its version is a digest of what makes pages now, and no number that somebody raises",
}
"""The assets whose code has another version or digest now, and why; all others are taken as they are.

Tensors have another version with the same numbers."""

WANTED = tuple(asset for asset in ASSETS if asset.name not in EFFECTS)
"""The assets that the study asks for."""

NEW = {asset.name for asset in WANTED} - VERSIONS.keys() - {"claims"}
"""The assets that version 0.1.0 did not have."""

REDEFINED = {
    *("assumption_similarity", "assumption_similarity_model", "assumption_weights", "assumption_weights_model"),
    *("monte_carlo", "parameter_effects"),  # drawn from the fits
    *("assumption_norms", "selection_means", "selection_means_model", "sink_effect", "claims"),  # other intervals
    *("elbows", "elbows_model"),  # NULL where there is none
    *("selection_regimes", "selection_regimes_model", "head_taxonomy", "taxonomy_sensitivity"),
}
"""Tables whose columns mean something else now; all other columns hold what they held."""

SIX_DIGITS = 1e-6
"""How far numbers may differ that DuckDB sums, in no certain order, or that are measured on another machine."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return unpack(tmp_path / "earlier")


def followed(names: Mapping[str, str] | set[str]) -> list[str]:
    """Some assets and all that follow from them, in order."""
    found: list[str] = []
    for asset in WANTED:
        if asset.name in names or {*asset.parents} & {*found}:
            found.append(asset.name)
    return found


def tables(root: Path) -> dict[str, list[dict[str, Any]]]:
    """All rows of the study by table, as readers have them; what a study says of its own origin is left out."""
    with closing(connect(root / "warehouse")) as connection:
        found = {name: connection.sql(f"FROM {name}").to_arrow_table().to_pylist() for name in sql.list_names("schema")}
    for row in found["studies"]:
        del row["provenance"]
    return found


def stored(root: Path) -> set[str]:
    """Names of the tables and columns that the study's own file has."""
    with closing(duckdb.connect(root / "warehouse" / f"{NAME}.duckdb", read_only=True)) as connection:
        found = connection.execute("SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal").fetchall()
    return {f"{table}.{column}" for table, column in found}


def alike(one: object, other: object) -> bool:
    """Whether two values are equal, or near if they are floats."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=SIX_DIGITS, abs_tol=SIX_DIGITS) or (one != one and other != other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    return one == other


def in_order(rows: list[dict[str, Any]], columns: list[str]) -> list[dict[str, Any]]:
    """Rows with some columns, in the order of what is no float in them."""
    exact = [column for column in columns if not any(isinstance(row[column], float) for row in rows)]
    return sorted(
        ({column: row[column] for column in columns} for row in rows),
        key=lambda row: json.dumps([row[column] for column in exact], default=str),
    )


def states(root: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of every file, by its name in the data root."""
    return {
        path.relative_to(root).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file()
    }


def test_the_archive_is_small_and_holds_a_study_that_is_read_as_ever(root: Path) -> None:
    assert ARCHIVE.stat().st_size < 300_000
    home = Home(root)
    study = find_study(home, NAME)
    assert study.model_dump(include={"context_length", "sequences"}) == {"context_length": 16, "sequences": 3}
    assert study.synthetic is not None
    assert study.synthetic.model_dump(include={*STUDY["synthetic"]}) == STUDY["synthetic"]
    assert SequenceStore.open(home.tensors(NAME), TENSORS).require_complete().read("tokens", 0).tolist() is not None
    if "selection_metrics" not in CHANGED:
        assert SequenceStore.open(home.metrics(NAME), SELECTION).require_complete().find_missing() == []
    assert {asset.name for asset in WANTED} == VERSIONS.keys() | {"claims"} | NEW


def test_what_is_stale_is_what_another_version_names_and_what_follows_from_it(root: Path) -> None:
    before = states(root)
    home = Home(root)
    now = {name: find_asset(name).version() for name in VERSIONS}
    assert {name for name in now if now[name] != VERSIONS[name]} == CHANGED.keys() | {"tensors"}
    reasons = find_stale_assets(home, NAME, find_study(home, NAME))
    assert list(reasons) == followed(CHANGED.keys() | NEW)
    for name in ("selection_metrics", "report"):
        assert reasons[name] == f"made by version {VERSIONS[name]} of its code, now {now[name]}"
    missing = {name for name, reason in reasons.items() if reason == "missing"}
    assert missing >= NEW
    assert missing - NEW <= CHANGED.keys(), "other tables of its own"
    others = [reason for name, reason in reasons.items() if name not in {"selection_metrics", "report"} | missing]
    assert all(reason.startswith(("follows from ", "made from other ")) for reason in others), others
    assert states(root) == before, "looking changes nothing"


@pytest.mark.long
def test_a_run_rebuilds_that_and_the_tables_hold_what_they_held(root: Path) -> None:
    columns, read, before = stored(root), tables(root), states(root)
    done = attention_geometry("run", NAME, home=root)
    assert done.code == 0, done.errors
    rebuilt = followed(CHANGED.keys() | NEW)
    current = [asset.name for asset in WANTED if asset.name not in rebuilt]
    assert f"{NAME}: current: {', '.join(current)}\n" in done.errors
    after = states(root)
    for name in current:
        for place in find_asset(name).places(Home(root), NAME):
            files = {file for file in before if (root / file).is_relative_to(str(place))}
            assert files
            assert {file: after[file] for file in files} == {file: before[file] for file in files}, name
    assert len([rows for rows in read.values() if rows]) > 25
    for table, rows in tables(root).items():
        known = [column for column in (rows[0] if rows else {}) if f"{table}.{column}" in columns]
        if f"{table}.study" not in columns or table in REDEFINED:  # a table that there was not, or was another
            continue
        assert len(rows) == len(read[table]), table
        for found, wanted in zip(in_order(rows, known), in_order(read[table], known), strict=True):
            assert all(alike(found[column], wanted[column]) for column in known), (table, found, wanted)
    again = attention_geometry("run", NAME, home=root)
    assert again.errors == f"{NAME}: all {len(WANTED)} assets are current\n"


def test_numbers_that_differ_would_have_been_noticed() -> None:
    assert alike([1.0, float("nan"), None], [1.0 + 1e-9, float("nan"), None])
    assert not alike(1.0, 1.0 + 1e-4)
    assert not alike(1.0, None)
    assert not alike([1.0], [1.0, 2.0])
    assert not alike(4, 5)
    assert followed({"sink_effect"}) == ["sink_effect", "warehouse", "claims", "report"]
    assert re.fullmatch(r"\d+-[0-9a-f]{12}", VERSIONS["warehouse"])
