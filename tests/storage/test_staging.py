"""Atomic writing: what is replaced, what killed processes leave behind, and what is refused."""

import os
from pathlib import Path

import pytest

from storage.errors import UserError
from storage.files import staging
from storage.files.staging import make_staging_path, remove_leftovers, stage_file, write_atomically
from tests.storage.leftovers import ended, unfinished


def test_what_is_there_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "page.html"
    assert write_atomically(path, b"first", remedy="…") == 5
    assert write_atomically(path, b"second", remedy="…") == 6
    assert path.read_bytes() == b"second"
    assert list(path.parent.iterdir()) == [path]


def test_leftovers_of_killed_processes_are_removed_and_others_stay(tmp_path: Path) -> None:
    dead, running = (tmp_path / unfinished("page.html", process) for process in (ended(), os.getppid()))
    other, strange = tmp_path / unfinished("other.html", ended()), tmp_path / "page.html.mine.partial"
    for leftover in (dead, running, other, strange):
        leftover.touch()
    write_atomically(tmp_path / "page.html", b"whole", remedy="…")
    assert {path.name for path in tmp_path.iterdir()} == {"page.html", running.name, other.name, strange.name}


def test_a_sweep_removes_all_that_is_unfinished_of_one_name(tmp_path: Path) -> None:
    path, others = tmp_path / "norms.parquet", [tmp_path / "mine.partial", tmp_path / unfinished("norms", 7)]
    leftover, folder, spilled = (
        make_staging_path(path),
        make_staging_path(path),
        tmp_path / f"{make_staging_path(path).name}.tmp",
    )
    (folder / "within").mkdir(parents=True)
    for made in (path, leftover, spilled, *others):
        made.touch()
    remove_leftovers(path)
    assert sorted(tmp_path.iterdir()) == sorted([path, *others])


def test_a_name_is_no_pattern(tmp_path: Path) -> None:
    bystanders = [tmp_path / unfinished("pa", ended(), kind) for kind in ("partial", "replaced")]
    for bystander in bystanders:
        bystander.touch()
    path = tmp_path / "p[a]"
    write_atomically(path, b"", remedy="…")
    remove_leftovers(path)
    staging.discard_replaced(path)
    assert all(bystander.exists() for bystander in bystanders)


def test_what_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_bytes(b"first")

    def killed() -> None:
        with stage_file(path) as partial:
            partial.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        killed()
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_the_bytes_are_on_the_disk_before_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done, fsync, replace = [], os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (done.append("written"), fsync(handle)))
    monkeypatch.setattr(Path, "replace", lambda path, to: (done.append("renamed"), replace(path, to)))
    write_atomically(tmp_path / "page.html", b"whole", remedy="…")
    assert done == ["written", "renamed"]


def test_what_cannot_be_written_is_one_line_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file/page\.html cannot be written: .*; look elsewhere$"):
        write_atomically(tmp_path / "file" / "page.html", b"", remedy="look elsewhere")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError):
        write_atomically(tmp_path / "folder", b"", remedy="…")
    assert {path.name for path in tmp_path.iterdir()} == {"file", "folder"}
