"""PyTorch's threads, divided among independent parts of a computation."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")


def run_on_threads(function: Callable[[int], T], count: int, device: torch.device) -> list[T]:
    """The results of ``function`` for the numbers below ``count``, in order, on as many threads as PyTorch uses.

    Each of them computes with an equal share of PyTorch's threads: small operations are faster on one thread than on
    several that wait for one another. On other devices than the CPU the calls follow one another.
    """
    threads = torch.get_num_threads()
    workers, inference = min(count, threads), torch.is_inference_mode_enabled()
    if device.type != "cpu" or workers < 2:
        return [function(index) for index in range(count)]

    def call(index: int) -> T:
        with torch.inference_mode(inference):
            return function(index)

    try:
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(threads // workers,)) as pool:
            return list(pool.map(call, range(count)))
    finally:
        torch.set_num_threads(threads)  # that of this thread is unchanged, but not that of threads that begin later
