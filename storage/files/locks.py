"""Locks between processes, which the kernel releases when a process is killed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from storage.errors import UserError


@contextmanager
def hold_lock(path: Path, what: str, *, wait: float) -> Iterator[None]:
    """Hold the lock file ``path`` inside the context; the kernel releases it when the process ends, however it ends.

    The file has the mode that the umask gives to others. ``UserError``, which says ``what`` the lock protects, if
    another process still holds it after ``wait`` seconds.
    """
    lock = FileLock(path)
    try:
        lock.acquire(timeout=wait)
    except Timeout as error:
        raise UserError(
            f"Another process is working on {what} (lock {path}); wait until it has finished, then run again"
        ) from error
    try:
        yield
    finally:
        lock.release()
