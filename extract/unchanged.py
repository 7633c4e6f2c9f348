"""What was read from a file, kept in memory until the file changes."""

import hashlib
import time
from collections.abc import Callable
from functools import lru_cache, wraps
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

SETTLED_NS = 2 * 10**9
"""Nanoseconds after a change in which another one may leave all times of a file as they are, on a coarse clock."""


def keep_while_unchanged(most: int) -> Callable[[Callable[[Path], T]], Callable[[Path], T]]:
    """Let a function that reads a file return what it read before from the same, unchanged file, for ``most`` files.

    A file counts as unchanged if its place on the disk, its size and the times of its last changes are the same; what
    is read from a file that has just been changed is not kept. Callers get the same object, and must not change it.
    """

    def decorate(read: Callable[[Path], T]) -> Callable[[Path], T]:
        kept = lru_cache(maxsize=most)(lambda path, _identity: read(path))

        @wraps(read)
        def read_once(path: Path) -> T:
            state = path.stat()
            if time.time_ns() - state.st_mtime_ns < SETTLED_NS:
                return read(path)
            identity = state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns
            return kept(path, identity)

        return read_once

    return decorate


@keep_while_unchanged(most=2**10)
def hash_file(path: Path) -> str:
    """SHA-256 of a file, computed again only if it has changed; raises ``OSError`` if it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
