"""Garbage collection while heavy libraries are imported, which stay loaded until the process ends."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def suspend_gc() -> Iterator[None]:
    """Suspend garbage collection while libraries are imported, and exclude their objects from later collections.

    A collection visits all objects, and the libraries of a run hold a million of them permanently.
    """
    gc.collect()  # otherwise existing garbage would be kept as well
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
