"""Dagster's own files in a data root: settings that are not ours, damage, and how they are rebuilt."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest
import yaml

from dagster_project.records import opening, registration
from dagster_project.study.home import Home
from storage.errors import UserError
from storage.files.locks import hold_lock
from tests.dagster_project.driver import attention_geometry, instance_of

AGAIN = ("run", "mine", "--force", "report")


def test_a_class_that_a_data_root_names_is_not_called(copied: Path, tmp_path: Path) -> None:
    """Dagster calls what its settings name; ``subprocess.Popen`` as a handler of its log did run."""
    ran = tmp_path / "ran"
    handler = {"class": "subprocess.Popen", "args": ["touch", str(ran)], "level": "INFO"}
    evil = yaml.safe_dump(
        {"python_logs": {"dagster_handler_config": {"handlers": {"it": {**handler, "formatter": "f"}}}}}
    )
    for name in registration.SETTINGS:
        (copied / "dagster" / name).write_text(evil, encoding="utf-8")
    done = attention_geometry("doctor", "--clean", home=copied)
    assert done.code == 0, done.errors
    assert "was not written by this version" in done.errors
    assert not ran.exists()
    for name, text in registration.SETTINGS.items():
        assert (copied / "dagster" / name).read_text(encoding="utf-8") == text
        assert (copied / "dagster" / f"{name}.other").read_text(encoding="utf-8") == evil
    assert attention_geometry("doctor", "--clean", home=copied).errors == ""


@pytest.mark.parametrize(("name", "is_refused"), [("a%41", True), ("a?b", True), ("100% a #b", False)])
def test_a_folder_that_dagster_reads_as_another_is_refused(tmp_path: Path, name: str, *, is_refused: bool) -> None:
    """The records of ``a%41`` were sought in ``aA``: there was no room, or they were those of another data root."""
    home = Home(tmp_path / name)
    home.prepare()
    if is_refused:
        with pytest.raises(UserError, match=r"Dagster cannot keep its records in .*; name another data root"):
            registration.use_instance(home)
        assert not home.dagster.exists()
    else:
        with mock.patch.dict(os.environ), registration.use_instance(home) as instance:
            assert instance.root_directory == str(home.dagster)


def test_settings_on_a_full_disk_are_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, _: bytes) -> int:
        with path.open("wb"):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match=r"dagster\.yaml cannot be written: No space left on device; make room there"):
        registration.use_instance(Home(tmp_path))
    assert [path.name for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"] == []


def zeros(path: Path) -> None:
    """Overwrite the first page but the name of the format, and leave the rest."""
    content = bytearray(path.read_bytes())
    content[16:4096] = bytes(4080)
    path.write_bytes(content)


def test_a_damaged_database_of_dagster_is_named_with_what_rebuilds_it(copied: Path) -> None:
    path = copied / "dagster" / "history" / "runs.db"
    zeros(path)
    verified = attention_geometry("doctor", "--verify", home=copied)
    assert verified.code == 1
    assert f"{path} is damaged" in verified.text
    assert opening.REBUILD in verified.text
    assert opening.REBUILD in attention_geometry("doctor", "--clean", home=copied).errors
    assert attention_geometry("doctor", "--rebuild-records", home=copied).code == 0
    assert opening.find_unreadable_records(Home(copied)) is None
    with instance_of(copied) as instance:
        assert "mine" in instance.get_dynamic_partitions("study")


def test_records_in_use_or_elsewhere_stay(copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, before = Home(copied), (copied / "dagster" / "history" / "runs.db").read_bytes()
    with hold_lock(copied / "locks" / "runs" / "one.lock", "it", wait=0):
        refused = attention_geometry("doctor", "--rebuild-records", home=copied)
    assert "is in progress; wait until it has ended" in refused.complaint
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with pytest.raises(UserError, match="set by DAGSTER_HOME; rebuild them there"):
        opening.rebuild_records(home)
    assert (copied / "dagster" / "history" / "runs.db").read_bytes() == before


def test_a_full_disk_is_not_called_damage(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's own error, beside a database that a full disk has left half-written: history was to be deleted."""

    def write_too_much(*_: object, **__: object) -> None:
        with closing(sqlite3.connect(":memory:")) as small:
            small.execute("PRAGMA max_page_count = 2")
            small.execute("CREATE TABLE t AS SELECT zeroblob(100000)")

    (copied / "dagster" / "history" / "runs.db").write_bytes(b"half-written")
    damaged = attention_geometry(*AGAIN, home=copied).complaint
    assert damaged.endswith(f"rebuild them: {opening.REBUILD}")
    monkeypatch.setattr(opening, "use_instance", write_too_much)
    full = f"Dagster's records in {copied}/dagster cannot be written: the disk is full; free space and run again"
    assert attention_geometry(*AGAIN, home=copied).complaint == full
    monkeypatch.undo()
    monkeypatch.setattr(opening.LocalPlace, "measure_free_space", lambda _: 0)
    assert attention_geometry(*AGAIN, home=copied).complaint == full


@pytest.mark.parametrize("writable", [True, False])
def test_records_where_nothing_can_be_written_are_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, writable: bool
) -> None:
    """SQLite opens the write-ahead log beside a database, or creates it; here a folder is in its place."""
    path = tmp_path / "schedules.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE jobs (id INTEGER)")
    (tmp_path / "schedules.db-wal").mkdir()
    monkeypatch.setattr(os, "access", lambda *_: writable)
    assert (opening._find_damage(path) is None) is not writable
