"""Paths that a user names: refused in a line, read within bounds, overwritten only if asked."""

import errno
import os
from pathlib import Path

import pytest

from storage.errors import UserError
from storage.files.user_paths import read_regular_file, refuse_existing, resolve_path
from tests.memory import trace


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A folder with everything that is not a regular file."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "loop").symlink_to("pool")
    (tmp_path / "pool").symlink_to("loop")
    return tmp_path


@pytest.mark.parametrize("given", ["~nobody-of-this-name/x", "loop", "loop/x", "x" * 300, "a\0b"])
def test_paths_that_cannot_be_are_one_line(odd: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.chdir(odd)
    with pytest.raises(UserError, match=r"^The path .{1,110} cannot be used \(.*\); name another$"):
        resolve_path(given)


@pytest.mark.parametrize("given", ["/", "file", "file/below", "folder/new", "~", "link"])
def test_other_paths_are_absolute(odd: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.chdir(odd)
    assert resolve_path(given) == Path(given).expanduser().resolve()


@pytest.mark.parametrize(
    ("name", "follow", "number"),
    [
        ("folder", True, errno.EINVAL),
        ("pipe", True, errno.EINVAL),
        ("zero", True, errno.EINVAL),
        ("link", False, errno.ELOOP),
        ("absent", True, errno.ENOENT),
    ],
)
def test_only_regular_files_are_read(odd: Path, name: str, follow: bool, number: int) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError) as caught:  # noqa: PT011 (its number is what matters)
        read_regular_file(odd / name, 10, follow=follow)
    assert caught.value.errno == number
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_memory_is_bounded_by_what_may_be_read(odd: Path) -> None:
    assert read_regular_file(odd / "link", 5) == b"12345"
    with (odd / "large").open("wb") as large:
        large.truncate(2**30)

    def refuse() -> None:
        with pytest.raises(OSError, match="it is larger than 1 MiB"):
            read_regular_file(odd / "large", 2**20)

    assert trace(refuse)[1] < 2**22


@pytest.mark.parametrize("name", ["folder", "pipe", "zero", "link"])
def test_only_regular_files_are_overwritten(odd: Path, name: str) -> None:
    for overwrite in (False, True):
        with pytest.raises(UserError, match="is not a regular file, and is not replaced"):
            refuse_existing([odd / "new", odd / name], overwrite=overwrite)


def test_what_exists_is_overwritten_only_if_asked(odd: Path) -> None:
    with pytest.raises(UserError, match=r"file exists already; add --overwrite to replace it"):
        refuse_existing([odd / "new", odd / "file"], overwrite=False)
    refuse_existing([odd / "new", odd / "file", odd / "file" / "below"], overwrite=True)
