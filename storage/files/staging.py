"""Atomic writing: files are written under a temporary name in the same folder and renamed when they are complete.

Half-written files and folders are named ``NAME.<32 hexadecimal digits>.partial``; those that a new store replaces are
named ``NAME.<32 hexadecimal digits>.replaced``. The first eight digits are the process id.
"""

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
"""Suffix of the names of files and folders that are being written or were set aside."""


def make_staging_path(path: Path) -> Path:
    """A unique path in the folder of ``path``, for a file or folder that will be renamed to ``path``."""
    return path.with_name(f"{path.name}.{_make_unique_suffix()}.partial")


def _make_unique_suffix() -> str:
    """32 hexadecimal digits that begin with the id of this process."""
    return f"{os.getpid():08x}{uuid4().hex[8:]}"


def is_being_written(path: Path) -> bool:
    """Whether a process of this machine that is still running made the unfinished file or folder at ``path``."""
    match = UNFINISHED.search(path.name)
    try:
        if match:
            os.kill(int(match["process"], 16), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return match is not None


@contextmanager
def stage_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path; the file written there is renamed to ``path`` after the context, or removed if it fails.

    Its bytes are on the disk before the rename, so that a power cut leaves the old file or the new one.
    """
    partial = make_staging_path(path)
    try:
        yield partial
        synchronise(partial)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def stage_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder that takes the place of the folder ``path`` after the context, or is removed if that fails.

    Two renames exchange them. If the second one fails, the first one is undone; ``recover_folder`` undoes it if the
    process was killed in between. All bytes are on the disk before.
    """
    new, old = make_staging_path(path), None
    try:
        new.mkdir(parents=True)
        yield new
        for file in new.rglob("*"):
            synchronise(file)
        old = set_aside(path) if path.exists() else None
        new.rename(path)
    except BaseException:
        if old is not None and not path.exists():
            old.rename(path)
        raise
    finally:
        delete(new)
    if old is not None:
        delete(old)


@contextmanager
def explain_unwritable(folder: Path | str, remedy: str = "name another folder") -> Iterator[None]:
    """Turn an error of the file system in a folder that a user has named into one line, a ``UserError``."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{folder} cannot be written ({error.strerror}); {remedy}") from error


def write_atomically(path: Path, content: bytes, *, remedy: str) -> int:
    """Write a file and missing folders atomically, without leftovers of killed processes; return its size in bytes.

    ``UserError``, with this ``remedy``, if it cannot be written; an existing file is kept.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for leftover in path.parent.glob(f"{escape(path.name)}.{HEXADECIMAL}.partial"):
            if not is_being_written(leftover):
                delete(leftover)
        with stage_file(path) as partial:
            partial.write_bytes(content)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}; {remedy}") from error
    return len(content)


def synchronise(path: Path) -> None:
    """Wait until the bytes of a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def set_aside(path: Path) -> Path:
    """Rename the file or folder ``path``, so that it can be restored if nothing replaces it; return its new path."""
    return path.rename(path.with_name(f"{path.name}.{_make_unique_suffix()}.replaced"))


def discard_replaced(path: Path) -> None:
    """Remove copies of ``path`` that this or a killed process set aside; call it once the replacement is complete."""
    for old in path.parent.glob(f"{escape(path.name)}.{HEXADECIMAL}.replaced"):
        delete(old)


def remove_leftovers(path: Path) -> None:
    """Remove leftovers of killed processes next to ``path``; call it only while no other process writes there."""
    for leftover in path.parent.glob(f"{escape(path.name)}.{HEXADECIMAL}.partial*"):
        delete(leftover)


def recover_folder(path: Path) -> None:
    """Undo or complete what a killed process left of replacing the folder ``path``; its earlier version is kept."""
    for old in path.parent.glob(f"{escape(path.name)}.{HEXADECIMAL}.replaced"):
        if not is_being_written(old):
            if path.exists():
                delete(old)
            else:
                old.rename(path)
    for leftover in path.parent.glob(f"{escape(path.name)}.{HEXADECIMAL}.partial"):
        if not is_being_written(leftover):
            delete(leftover)


def delete(path: Path) -> None:
    """Delete a file or a folder, if it still exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=not path.exists())
    else:
        path.unlink(missing_ok=True)
