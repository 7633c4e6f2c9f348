"""Heavy libraries, which stay loaded to the end of the process, and the garbage collector."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Collect no garbage while libraries are imported, and leave what they hold out of what is visited later.

    A collection visits all objects, and the libraries of a run hold a million of them for good.
    """
    gc.collect()  # else what is garbage by now would be kept as well
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
