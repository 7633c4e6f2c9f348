"""Atomic writing: what is made beside its place and renamed, so that what is there is always complete.

Everything half-written is called ``NAME.<32 hexadecimal digits>.partial``, and what a new store replaces
``NAME.<32 hexadecimal digits>.replaced``. The first eight digits are the number of the process.
"""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from uuid import uuid4

from storage.errors import UserError

HEXADECIMAL = "[0-9a-f]" * 32

UNFINISHED = re.compile(r"\.(?P<process>[0-9a-f]{8})[0-9a-f]{24}\.(partial|replaced)$")
"""What is added to the name of what is being written, or was set aside."""


def beside(path: Path) -> Path:
    """A unique name beside ``path``, for what is to be renamed to it."""
    return path.with_name(f"{path.name}.{_unique()}.partial")


def _unique() -> str:
    """32 hexadecimal digits that begin with the number of this process."""
    return f"{os.getpid():08x}{uuid4().hex[8:]}"


def is_being_written(path: Path) -> bool:
    """Whether a process of this machine that is still running made the unfinished file or folder at ``path``."""
    found = UNFINISHED.search(path.name)
    return found is not None and _runs(int(found["process"], 16))


def _runs(process: int) -> bool:
    """Whether there is a process of this number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


@contextmanager
def staged(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """A path beside ``path`` for the body to write a file to, renamed to ``path`` after it; removed if it fails.

    Parameters
    ----------
    durable
        Whether the bytes are on the disk before the rename, so that a power cut leaves the old file or the new one.
    """
    partial = beside(path)
    try:
        yield partial
        if durable:
            synchronise(partial)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, content: bytes, *, remedy: str) -> int:
    """Write a file atomically; return its bytes. Its folder is made, and what killed processes left is removed.

    Parameters
    ----------
    path
        The file.
    content
        What it is to hold.
    remedy
        What to do if it cannot be written.

    Raises
    ------
    UserError
        If it cannot be written; what was there before stays.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for leftover in path.parent.glob(f"{escape(path.name)}.{HEXADECIMAL}.partial"):
            if not is_being_written(leftover):
                delete(leftover)
        with staged(path) as partial:
            partial.write_bytes(content)
    except OSError as error:
        msg = f"{path} cannot be written: {error.strerror or error}; {remedy}"
        raise UserError(msg) from error
    return len(content)


def synchronise(path: Path) -> None:
    """Wait until the bytes of a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def set_aside(path: Path) -> Path:
    """Rename what is at ``path``, to be put back if nothing replaces it; returns where it is now."""
    return path.rename(path.with_name(f"{path.name}.{_unique()}.replaced"))


def discard(path: Path) -> None:
    """Remove what was set aside of ``path``, now or by a killed process; call it once its replacement is complete."""
    for old in path.parent.glob(f"{escape(path.name)}.{HEXADECIMAL}.replaced"):
        delete(old)


def sweep(path: Path) -> None:
    """Remove what killed processes left beside ``path``; call it while no other process writes there."""
    for leftover in path.parent.glob(f"{escape(path.name)}.{HEXADECIMAL}.partial*"):
        delete(leftover)


def leftovers_in(folder: Path) -> list[Path]:
    """What is half-written below ``folder``."""
    return [path for path in sorted(folder.rglob("*.partial")) if UNFINISHED.search(path.name)]


def delete(path: Path) -> None:
    """Delete a file or a folder, if it is still there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=not path.exists())
    else:
        path.unlink(missing_ok=True)


def rename_folder(folder: Path, path: Path) -> None:
    """Rename a folder; ``FileExistsError`` if one is there already, which systems report by one of two names."""
    try:
        folder.rename(path)
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            raise FileExistsError(*error.args) from error
        raise
