"""A process that computes small tables for another: what it does before it is given one.

Its libraries are those of ``dagster_project.assets.table_libraries``; this module imports nothing large.
"""

import io
import os
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from threading import Thread


def prepare(watched: Connection, threads: int) -> None:
    """Prepare a process: it computes in so many threads, and ends when the other end of ``watched`` is closed."""
    Thread(target=_end_with, args=(watched,), daemon=True, name="lifeline").start()
    import dask

    dask.config.set(num_workers=threads)
    sys.stderr = _Log(sys.stderr.buffer, line_buffering=True)


def _end_with(watched: Connection) -> None:
    """End this process, whatever it does, when nobody holds the other end any more."""
    with suppress(EOFError, OSError):
        watched.recv_bytes()
    os._exit(1)


class _Log(io.TextIOWrapper):
    """Standard error of a process whose progress is shown by another: progress bars are only shown on terminals."""

    def isatty(self) -> bool:
        return False
