"""The memory that Python and NumPy take while something is computed."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def trace(compute: Callable[[], T]) -> tuple[T, int]:
    """What a function returns, and the most bytes that were held while it ran beyond those held before.

    Nothing that waits for the garbage collector is freed meanwhile: when it comes, depends on what ran before.
    """
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        return compute(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.enable()
