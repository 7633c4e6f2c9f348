"""The memory that Python and NumPy take while something is computed."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def trace(compute: Callable[[], T]) -> tuple[T, int]:
    """What a function returns, and the most bytes that it held while it ran.

    The garbage collector, which comes when what ran before makes it, frees none of them.
    """
    gc.disable()
    tracemalloc.start()
    try:
        return compute(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.enable()
