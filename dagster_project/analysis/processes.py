"""Processes that compute for this one: short steps of Python between short kernels keep threads waiting for its lock.

Dask's scheduler of processes gives them their tasks. Python's fork server, which loads the libraries once, starts them;
they are kept for the next study, and end with this process, even if it is killed.
"""

import os
import signal
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache, partial
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from threading import Thread
from typing import Any

from dagster_project.analysis.cluster import count_threads
from storage.errors import UserError
from storage.memory import measure_free_memory

FEW_SELECTIONS = 400_000
"""Below so many selections processes take longer to start than they save: `run embedded`, of 367,000, takes 29.5 s with
them and 29.4 s without."""

MALLOC = {"MALLOC_TRIM_THRESHOLD_": "268435456", "MALLOC_MMAP_THRESHOLD_": "134217728"}
"""glibc's settings for the processes, in bytes: freed memory is kept for the next array, whose pages would have to be
cleared again. The separability of SmolLM2 takes 4.9 s with them, 5.9 s without."""

PROCESS_MEMORY = 1_000_000_000
"""Bytes of free memory for each process, of which libraries take a third."""

LIBRARIES = [f"{__package__}.{name}" for name in ("chance", "expectation", "fits", "means", "regimes", "temperature")]
LIBRARIES += ["geometry.layers"]
"""Modules that are loaded once for all processes, with the libraries that they import."""


@lru_cache(1)
def count_processes() -> int:
    """How many processes compute: one for each core, and for each ``PROCESS_MEMORY`` that is free at first."""
    return max(1, min(count_threads(), measure_free_memory() // PROCESS_MEMORY))


def is_worthwhile(selections: int) -> bool:
    """Whether processes compute a study of so many selections sooner than this one."""
    return selections >= FEW_SELECTIONS and count_processes() > 1


@lru_cache(1)
def start_processes() -> ProcessPoolExecutor:
    """The processes, started at the first call, which returns before they have loaded their libraries."""
    context = get_context("forkserver")
    context.set_forkserver_preload(LIBRARIES)
    pool = ProcessPoolExecutor(count_processes(), context, _live_with_parent)
    # Ctrl-C of the terminal is kept from all that is started: this process receives it, and they end with it
    before, environment = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}), dict(os.environ)
    os.environ |= MALLOC | environment
    for _ in range(count_processes()):
        pool.submit(int)  # starts one, since none is idle
    for name in MALLOC.keys() - environment:
        del os.environ[name]
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pool


def _live_with_parent() -> None:
    """End this process, whatever it does, when the one that started it ends."""
    Thread(target=_end_with, args=(parent_process(),), daemon=True, name="lifeline").start()


def _end_with(parent: BaseProcess) -> None:
    """Wait for a process to end, and end this one."""
    parent.join()
    os._exit(1)


def compute_in_processes(
    tasks: Mapping[str, Callable[[], Any]],
    tell: Callable[[Any], object],
    after: Mapping[str, Iterable[str]] | None = None,
    *,
    what: str,
) -> list[Any]:
    """Compute tasks by name, each after those that ``after`` names for it, and return their results in order.

    ``tell`` is given each as soon as it is there; ``what`` is what is computed, for errors. ``UserError`` if a process
    was ended; errors of tasks are raised as they are, once those that have begun are done.
    """
    from dask.callbacks import Callback
    from dask.multiprocessing import get

    graph = {name: (partial(_call, task), [*(after or {}).get(name, ())]) for name, task in tasks.items()}
    try:
        with Callback(posttask=lambda _name, result, *_: tell(result)):
            return list(get(graph, [*graph], pool=start_processes(), chunksize=1, optimize_graph=False))
    except Exception as error:
        start_processes().shutdown(cancel_futures=True)  # none writes once the lock of the study is free
        start_processes.cache_clear()
        if isinstance(error, BrokenProcessPool):
            raise UserError(
                f"A process that computed {what} was ended, most likely for lack of memory; close other programs and "
                "run again, which computes only what is missing"
            ) from error
        if isinstance(error, UserError):
            raise getattr(error, "exception", error) from None  # without Dask's report of the process
        raise


def _call(task: Callable[[], Any], _after: object) -> Any:
    """The result of a task, whose results of earlier tasks lie in files."""
    return task()
