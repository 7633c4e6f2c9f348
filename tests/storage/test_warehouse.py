"""Landing: atomic, once, next to readers; read-only connections."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sql
from storage.errors import UserError
from storage.files.locks import hold_lock
from storage.warehouse.connection import connect, list_published, locate_database
from storage.warehouse.landing import land
from tests.made_up import SMALL
from tests.storage import studies
from tests.storage.studies import Tables


@pytest.fixture
def folder(landed: Path, tmp_path: Path) -> Path:
    """A copy of that warehouse, to be changed."""
    return shutil.copytree(landed, tmp_path / "warehouse")


def contents(folder: Path) -> list[tuple[object, ...]]:
    with connect(folder) as connection:
        return connection.execute("SELECT * FROM selection ORDER BY ALL").fetchall()


def test_a_failed_landing_leaves_the_previous_state(folder: Path, tables: Tables) -> None:
    before = contents(folder)

    def breaking() -> Iterator[pa.RecordBatch]:
        yield tables["selection_counts"][0]
        raise RuntimeError("the store broke")

    with pytest.raises(RuntimeError, match="the store broke"):
        land(folder, "small", tables | {"selection_counts": breaking()})
    assert contents(folder) == before
    assert not list(folder.glob("*.partial*"))


def test_rows_that_break_a_check_are_not_published(tmp_path: Path, tables: Tables) -> None:
    batch = tables["selection_counts"][0]
    index = batch.schema.get_field_index("k_in")
    broken = batch.set_column(index, batch.schema.field(index), pa.array(np.full(len(batch), 99, np.int32)))
    landing = land(tmp_path, "small", tables | {"selection_counts": [broken]})
    assert landing.violations["selections_consistent"]
    assert not landing.published
    assert not list_published(tmp_path)


def test_a_study_with_another_number_of_rows_is_not_published(tmp_path: Path, tables: Tables) -> None:
    counted = {name: sum(map(len, tables[name])) for name in ("selection_counts", "attention_rows", "upper_bounds")}
    expected = {name: count + off for (name, count), off in zip(counted.items(), (0, 1, -1), strict=True)}
    landing = land(tmp_path, "small", tables, expected)
    others = [(name, counted[name], expected[name]) for name in ("attention_rows", "upper_bounds")]
    assert {name: rows for name, rows in landing.violations.items() if rows} == {"row_count": others}
    assert not landing.published
    assert not list_published(tmp_path)


def test_one_process_lands_a_study_at_a_time(tmp_path: Path, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.warehouse.landing.LOCK_WAIT", 0.0)
    said = pytest.raises(UserError, match="Another process is working on the tables of study 'small'")
    with hold_lock(tmp_path / "small.lock", "it", wait=0):
        with said:
            land(tmp_path, "small", tables)
        assert land(tmp_path, "other", tables).published  # another study is not held up


def test_readers_keep_what_they_opened(folder: Path, landed_root: Path) -> None:
    with connect(folder) as reader:
        assert land(folder, "small", studies.tables(SMALL)).published
        studies.publish(landed_root, folder, "second", named=sql.list_names("schema"))
        assert reader.execute("SELECT count(DISTINCT query), count(DISTINCT study) FROM selection").fetchall() == [
            (3, 1)
        ]
    with connect(folder) as reader:
        assert reader.execute(
            "SELECT study, count(DISTINCT query) FROM selection GROUP BY ALL ORDER BY ALL"
        ).fetchall() == [("second", 3), ("small", 1)]


def test_of_studies_that_are_named_no_other_is_opened(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copy(locate_database(folder, "small"), locate_database(folder, "other"))
    locate_database(folder, "broken").write_bytes(b"no database")
    with connect(folder, studies=["other", "missing"]) as connection:
        attached = "SELECT database_name FROM duckdb_databases() WHERE database_name LIKE 'study %'"
        assert connection.execute(attached).fetchall() == [("study other",)]
    assert caplog.messages == []


def test_leftovers_of_a_killed_landing_are_removed_and_files_have_the_mode_that_the_umask_leaves(
    tmp_path: Path,
) -> None:
    root, before = tmp_path / "root", os.umask(0o007)
    own, foreign = (root / "warehouse" / f"{study}.{'0a' * 16}.partial.wal" for study in ("small", "small.er"))
    try:
        (folder := own.with_suffix(".tmp")).mkdir(parents=True)
        own.write_bytes(b"half")
        (folder / "duckdb_temp_storage-0.tmp").touch()
        foreign.write_bytes(b"another study's, whose lock is not held")
        studies.land_small(root)
    finally:
        os.umask(before)
    assert (own.exists(), folder.exists(), foreign.exists()) == (False, False, True)
    modes = {path.relative_to(root): stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*")}
    assert {name: mode for name, mode in modes.items() if mode not in {0o770, 0o660}} == {}
    assert {modes[name] for name in modes if (root / name).is_dir()} == {0o770}
