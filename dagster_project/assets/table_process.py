"""A process that computes small tables for another: what it does before it is given one.

This module imports nothing large, so that all libraries are imported inside ``suspend_gc``.
"""

import atexit
import io
import os
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from threading import Thread

from dagster_project.assets.loading import suspend_gc


def prepare(watched: Connection, threads: int) -> None:
    """Prepare a process: it computes in so many threads, and ends when the other end of ``watched`` is closed."""
    Thread(target=_end_with, args=(watched,), daemon=True, name="lifeline").start()
    with suspend_gc():
        import dask

        import dagster_project.assets.catalogue  # noqa: F401

    dask.config.set(num_workers=threads)
    sys.stderr = _Log(sys.stderr.buffer, line_buffering=True)
    atexit.register(os._exit, 0)  # without finalising: DuckDB's binding would report objects that it leaks


def _end_with(watched: Connection) -> None:
    """End this process, whatever it does, when nobody holds the other end any more."""
    with suppress(EOFError, OSError):
        watched.recv_bytes()
    os._exit(1)


class _Log(io.TextIOWrapper):
    """Standard error of a process whose progress is shown by another: progress bars are only shown on terminals."""

    def isatty(self) -> bool:
        return False
