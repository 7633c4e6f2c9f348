"""Locks between processes that a killed process releases by itself.

Holds ``exclusive``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from storage.errors import UserError


def make_lock(path: Path) -> None:
    """Make a lock file, with its folder, unless it is there; its mode is what the umask leaves, as of every other file.

    filelock itself lets nobody but the owner write it, and so would keep a group that shares a data root from locking.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.touch()


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
    make_lock(path)
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
