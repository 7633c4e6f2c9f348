"""Landing a study: within its memory, onto the disk, beside another, and stopped halfway."""

import os
from pathlib import Path
from unittest import mock

import duckdb
import pytest

from storage.errors import UserError
from storage.files.parts import list_parts, read_part, write_parts
from storage.files.places import LocalPlace
from storage.warehouse import connection as connection_module
from storage.warehouse import landing
from storage.warehouse.connection import FORMAT_VERSION, READABLE_FROM, locate_database
from storage.warehouse.landing import land
from tests.storage.studies import Tables


def test_a_damaged_part_is_said_as_the_part_says_it(tmp_path: Path, tables: Tables) -> None:
    rows_of = (("selection_counts", batch) for batch in tables["selection_counts"])
    made = write_parts(LocalPlace(tmp_path), ["selection_counts"], rows_of, {"step": "layer-000"}, {})
    (part,) = list_parts(made)
    data = bytearray(part.path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    part.path.write_bytes(data)
    with pytest.raises(UserError, match=r"^The table .*selection_counts\.parquet cannot be read [^\n]*run the study"):
        land(tmp_path / "warehouse", "small", tables | {"selection_counts": read_part(part)})
    assert not [path for path in (tmp_path / "warehouse").iterdir() if path.suffix != ".lock"]


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def limit() -> str:
        with landing.open_draft(tmp_path / "small.partial") as aside:
            return str(aside.execute("SELECT current_setting('memory_limit')").fetchall()[0][0])

    with duckdb.connect() as connection:
        own = connection.execute("SELECT current_setting('memory_limit')").fetchall()[0][0]
    monkeypatch.setattr(landing, "MEMORY", 2**30)
    assert limit() == "1.0 GiB"
    monkeypatch.setattr(landing, "MEMORY", 2**60)
    monkeypatch.setattr(connection_module, "measure_free_memory", lambda: 2**60)
    assert limit() == own


@pytest.mark.slow
def test_what_memory_has_no_room_for_lies_beside_the_database_until_it_is_published(
    tmp_path: Path, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of one table are sorted, and there are more than fit."""
    spilled: list[Path] = []
    derive = landing.derive

    def derive_and_sort(aside: duckdb.DuckDBPyConnection, study: str) -> dict[str, int]:
        aside.execute("CREATE TEMP TABLE large AS SELECT hash(i) AS h, hash(h) AS g FROM range(8_000_000) t (i)")
        spilled.extend(tmp_path.glob("small.*.partial.tmp/*"))
        aside.execute("DROP TABLE large")  # the checks need the memory
        return derive(aside, study)

    monkeypatch.setattr(landing, "MEMORY", 64 * 2**20)
    monkeypatch.setattr(landing, "derive", derive_and_sort)
    assert land(tmp_path, "small", tables).published
    assert spilled
    assert not list(tmp_path.glob("small*partial*"))


def test_too_little_memory_is_a_users_error(tmp_path: Path, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing, "MEMORY", 2**20)
    with pytest.raises(UserError, match="could not be written") as caught:
        land(tmp_path, "small", tables)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("small*partial*"))


@pytest.mark.parametrize(
    "error",
    [
        duckdb.TransactionException(
            "TransactionContext Error: Failed to commit: could not allocate block\n\nHints:\n* one"
        ),
        duckdb.OutOfMemoryException("Out of Memory Error: could not allocate block\n\nHints:\n* one"),
        duckdb.FatalException("FATAL Error: could not allocate block"),
        duckdb.IOException("IO Error: could not allocate block"),
        OSError("could not allocate block"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_runs_out_of_space_is_one_line(tmp_path: Path, error: Exception) -> None:
    """DuckDB reports a commit without memory, which happens once in some fifty tiny landings, as a transaction's."""
    message = r"small.*could not allocate block\); free disk space or memory and run again$"
    with pytest.raises(UserError, match=message), landing.translate_space_errors(tmp_path, "small"):
        raise error


@pytest.mark.one_case
@pytest.mark.parametrize("error", [PermissionError("no"), duckdb.IOException("no")])
def test_a_database_is_on_the_disk_before_it_is_published_and_its_script_need_not_be(
    tmp_path: Path,
    tables: Tables,
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In this order: its bytes, its new name, the folder that has the name; that the script fails is a warning."""
    steps: list[object] = []
    sync, replace = os.fsync, Path.replace

    def synced(handle: int) -> None:
        steps.append(Path(f"/proc/self/fd/{handle}").readlink())
        sync(handle)

    def replaced(self: Path, target: Path) -> Path:
        steps.append((self, target))
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    monkeypatch.setattr(landing, "write_entry", mock.Mock(side_effect=error))
    locate_database(tmp_path, "small").write_bytes(b"what cannot be read is replaced too")
    assert land(tmp_path, "small", tables).published
    assert locate_database(tmp_path, "small").exists()
    assert [record.getMessage() for record in caplog.records if "out of date (no)" in record.getMessage()]
    renamed = next(step for step in steps if isinstance(step, tuple) and step[1] == locate_database(tmp_path, "small"))
    place = steps.index(renamed)
    assert steps[place - 1 : place + 2] == [renamed[0], renamed, tmp_path]


def test_what_a_published_file_says_of_itself(landed: Path) -> None:
    with duckdb.connect(locate_database(landed, "small"), read_only=True) as connection:
        assert connection.execute("SELECT format_version FROM studies").fetchall() == [(FORMAT_VERSION,)]
        version = "SELECT tags['storage_version'] FROM duckdb_databases() WHERE NOT internal"
        assert connection.execute(version).fetchall() == [(f"{READABLE_FROM}+",)]
        silent = "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal AND comment IS NULL"
        assert not connection.execute(f"{silent} AND table_name IN (SELECT table_name FROM duckdb_tables())").fetchall()
        assert not connection.execute("SELECT table_name FROM duckdb_tables() WHERE comment IS NULL").fetchall()
        counts = "SELECT (SELECT count(*) FROM margins), (SELECT count(*) FROM selection_counts)"
        assert connection.execute(counts).fetchall() == [(2568, 2568)]
