"""What was read from a file is given again only while the file is unchanged."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from extract.hub import SETTLED_NS, keep_while_unchanged

LONG_AGO = 10**18
"""A time of change, in nanoseconds since the epoch."""


def write(path: Path, content: str, at: int = LONG_AGO) -> Path:
    """Write a file in place, as if at some time."""
    path.write_text(content)
    os.utime(path, ns=(at, at))
    return path


def replace(path: Path, content: str) -> None:
    write(path.with_suffix(".new"), content).replace(path)


@pytest.fixture
def read() -> Callable[[Path], list[str]]:
    """A function that reads a file, of which two results are kept."""
    return keep_while_unchanged(most=2)(lambda path: [path.read_text()])


@pytest.mark.parametrize("change", [write, replace], ids=["in place", "by another file"])
def test_a_changed_file_is_read_again_whatever_its_size_and_time(
    change: Callable[[Path, str], object], read: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    path = write(tmp_path / "a", "one")
    assert read(path) is read(path)
    change(path, "two")
    assert read(path) == ["two"]


@pytest.mark.parametrize("seconds", [0, 3600], ids=["just now", "by a clock that is ahead"])
def test_what_is_read_from_a_file_that_has_just_changed_is_not_kept(
    seconds: int, read: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    path = write(tmp_path / "a", "one", time.time_ns() + seconds * 10**9)
    assert read(path) is not read(path)
    write(path, "one", time.time_ns() - 2 * SETTLED_NS)
    assert read(path) is read(path)
