"""Locks between processes that a killed process releases by itself.

Holds ``exclusive``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from storage.errors import UserError


@contextmanager
def exclusive(path: Path, what: str, *, wait: float) -> Iterator[None]:
    """Hold the lock file ``path`` while the body runs; the kernel releases it when the process ends, however it ends.

    Parameters
    ----------
    path
        The lock file; it stays behind, unlocked.
    what
        What is being locked, for the error.
    wait
        Seconds to wait for another process.

    Raises
    ------
    UserError
        If another process still holds it after ``wait`` seconds.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=wait)
    except Timeout as error:
        msg = f"Another process is working on {what} (lock {path}); wait until it has finished, then run again"
        raise UserError(msg) from error
    try:
        yield
    finally:
        lock.release()
