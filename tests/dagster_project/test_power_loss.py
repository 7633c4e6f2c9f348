"""Power is lost while a study is measured and landed: what was not synchronised is gone, and the tables are the same.

A shim over ``os.fsync`` knows which files are on the disk; at a random rename the others lose their bytes or are gone,
as on a file system that writes names before contents. SQLite synchronises by itself, out of sight: Dagster's records
are not written here.
"""

import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from dagster_project.study.home import Home
from dagster_project.upkeep.doctor import verify
from storage.errors import UserError
from storage.files.staging import synchronise
from tests.campaigns import POWER_LOSSES
from tests.dagster_project import making
from tests.dagster_project.damaging import contents, delete_named

pytestmark = pytest.mark.long  # metrics, tables and a landing for each case

RENAMES = 160
"""About as many files as are renamed while a study is measured, summarised and landed."""


class PowerLossError(BaseException):
    """Nothing runs any more."""


class Disk:
    """What of a folder is on the disk: files as they were at first, and as they were when they were synchronised."""

    def __init__(self, root: Path, renames: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.left = root, renames
        self.safe = {state for _, state in self._files()}
        self._fsync, self._replace, self._rename = os.fsync, Path.replace, Path.rename
        monkeypatch.setattr(os, "fsync", self.fsync)
        monkeypatch.setattr(Path, "replace", lambda path, target: self._renamed(self._replace, path, target))
        monkeypatch.setattr(Path, "rename", lambda path, target: self._renamed(self._rename, path, target))

    def _files(self) -> Iterator[tuple[Path, tuple[int, int, int]]]:
        for path in self.root.rglob("*"):
            if path.is_file() and not path.is_symlink():
                state = path.stat()
                yield path, (state.st_ino, state.st_size, state.st_mtime_ns)

    def fsync(self, handle: int) -> None:
        self._fsync(handle)
        state = os.fstat(handle)
        self.safe.add((state.st_ino, state.st_size, state.st_mtime_ns))

    def _renamed(self, rename: object, path: Path, target: Path) -> object:
        self.left -= 1
        if self.left < 0:
            raise PowerLossError
        return rename(path, target)

    def lose(self, draw: random.Random) -> int:
        """Take the bytes of some files that are not on the disk; returns of how many."""
        unsafe = [path for path, state in self._files() if state not in self.safe and path.suffix != ".lock"]
        lost = [path for path in sorted(unsafe) if draw.random() < 0.5]
        for path in lost:
            size = path.stat().st_size
            match draw.randrange(4):
                case 0:
                    path.write_bytes(b"")
                case 1:
                    path.write_bytes(bytes(size))
                case 2:
                    path.write_bytes(path.read_bytes()[: size // 2])
                case _:
                    path.unlink()
        return len(lost)


@contextmanager
def losing_power(home: Home, draw: random.Random) -> Iterator[None]:
    """Run the body until power is lost."""
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(home.root, draw.randrange(RENAMES), patch)
        with suppress(PowerLossError):
            yield
    disk.lose(draw)


def make_all(home: Home) -> None:
    making.measure(home, "mine")
    making.summarise(home, "mine")
    assert making.land(home, "mine").published


def refusal(home: Home) -> str | None:
    """Make everything; what is refused, in a line."""
    try:
        make_all(home)
    except UserError as error:
        return str(error)
    return None


@pytest.mark.parametrize("case", range(POWER_LOSSES))
def test_tables_are_equal_after_a_loss_of_power_or_the_loss_is_named(copied: Path, case: int) -> None:
    home, draw = Home(copied), random.Random(case)
    before = contents(home)
    shutil.rmtree(copied / "metrics")
    shutil.rmtree(copied / "parts")
    with losing_power(home, draw):
        make_all(home)
    for _ in range(3):
        if (said := refusal(home)) is None:
            break
        damaged = [each.damage for each in verify(home) if each.damage]
        assert damaged, f"nothing is named, but {said}"
        delete_named(damaged[0])
    assert contents(home) == before
    assert [each.damage for each in verify(home) if each.damage] == []


def test_a_published_file_is_on_the_disk(copied: Path) -> None:
    """Tables, databases, pages and the file of studies are synchronised before they are renamed; chunks are not."""
    home = Home(copied)
    shutil.rmtree(copied / "parts")
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(copied, 10**6, patch)
        making.summarise(home, "mine")
        making.land(home, "mine")
        making.make(home, "mine", ["report"])
        unsafe = {path.relative_to(copied) for path, state in disk._files() if state not in disk.safe}
    assert {path for path in unsafe if path.suffix in {".parquet", ".duckdb", ".html", ".yaml"}} == set()


def test_the_shim_takes_what_was_not_synchronised_and_nothing_else(tmp_path: Path) -> None:
    kept, lost = [tmp_path / f"kept{n}" for n in range(20)], [tmp_path / f"lost{n}" for n in range(20)]
    kept[0].write_bytes(b"before")
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(tmp_path, 10**6, patch)
        for path in (*kept[1:], *lost):
            path.write_bytes(b"after")
        for path in kept[1:]:
            synchronise(path)
        taken = disk.lose(random.Random(0))
    assert taken == len(lost) - sum(path.exists() and path.read_bytes() == b"after" for path in lost) > 5
    assert [path.read_bytes() for path in kept] == [b"before", *[b"after"] * 19]
