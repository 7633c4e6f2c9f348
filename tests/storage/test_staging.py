"""Files that are whole or not there: what stands, what is left behind by killed processes, and what is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from reports.whole import replace

from storage.errors import UserError


def ended() -> int:
    """The id of a process that lives no more."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_what_stands_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "page.html"
    assert replace(path, b"first", remedy="…") == 5
    assert replace(path, b"second", remedy="…") == 6
    assert path.read_bytes() == b"second"
    assert list(path.parent.iterdir()) == [path]


def test_leftovers_of_killed_processes_go_and_others_stay(tmp_path: Path) -> None:
    dead, living = tmp_path / f".page.html.{ended()}.partial", tmp_path / f".page.html.{os.getppid()}.partial"
    other, strange = tmp_path / f".other.html.{ended()}.partial", tmp_path / ".page.html.mine.partial"
    for leftover in (dead, living, other, strange):
        leftover.touch()
    replace(tmp_path / "page.html", b"whole", remedy="…")
    assert {path.name for path in tmp_path.iterdir()} == {"page.html", living.name, other.name, strange.name}


def test_a_name_is_no_pattern(tmp_path: Path) -> None:
    bystander = tmp_path / f".pa.{ended()}.partial"
    bystander.touch()
    replace(tmp_path / "p[a]", b"", remedy="…")
    assert bystander.exists()


def test_what_cannot_be_written_is_one_line_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file/page\.html cannot be written: .*; look elsewhere$"):
        replace(tmp_path / "file" / "page.html", b"", remedy="look elsewhere")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError):
        replace(tmp_path / "folder", b"", remedy="…")
    assert {path.name for path in tmp_path.iterdir()} == {"file", "folder"}
