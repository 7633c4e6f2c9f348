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
from multiprocessing import forkserver, get_context, parent_process
from multiprocessing.process import BaseProcess
from threading import Thread
from typing import Any

from dagster_project.analysis.cluster import count_threads, select_scheduler
from dagster_project.study.settings import Study
from storage.errors import UserError
from storage.memory import keep_freed_memory, measure_free_memory

FEW_SELECTIONS = 150_000
"""Least selections that processes measure: `run embedded`, of 367,000 and its twin's 196,000, takes 26 to 28 s with
them and 29 to 33 s without."""

LAST = "last"
"""Key of a task that waits for all others: without it Dask would end with the chains, while other cores are idle."""

EXPECTED_HEADS = 100
"""Heads of a model that is not known yet."""

PROCESS_MEMORY = 1_000_000_000
"""Bytes of free memory for each process, of which libraries take a third."""

LIBRARIES = [f"{__package__}.{name}" for name in ("chance", "expectation", "fits", "means", "regimes", "temperature")]
LIBRARIES += ["geometry.layers", "dask.multiprocessing", "pandas", "zarr"]  # Arrow loads pandas if it is there
"""Modules that are loaded once for all processes, with the libraries that they import."""


@lru_cache(1)
def count_processes() -> int:
    """How many processes compute: one for each core, and for each ``PROCESS_MEMORY`` that is free at first."""
    return max(1, min(count_threads(), measure_free_memory() // PROCESS_MEMORY))


def is_worthwhile(selections: int) -> bool:
    """Whether processes compute a study of so many selections sooner than this one."""
    return selections >= FEW_SELECTIONS and count_processes() > 1


def expect(study: Study) -> None:
    """Start the server of the processes, if they may compute a study, while this process loads PyTorch."""
    selections = study.sequences * sum(study.query_positions) * EXPECTED_HEADS
    if select_scheduler(study) == "threads" and is_worthwhile(selections):
        start_server()


@lru_cache(1)
def start_server() -> None:
    """Start the process that loads the libraries and is the parent of the others; returns before it has loaded them."""
    forkserver.set_forkserver_preload(LIBRARIES)
    # Ctrl-C of the terminal is kept from all that is started: this process receives it, and they end with it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    forkserver.ensure_running()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@lru_cache(1)
def start_processes() -> ProcessPoolExecutor:
    """The processes, started at the first call."""
    start_server()
    pool = ProcessPoolExecutor(count_processes(), get_context("forkserver"), _begin)
    for _ in range(count_processes()):
        pool.submit(int)  # starts one, since none is idle
    return pool


def _begin() -> None:
    """Prepare this process, which ends, whatever it does, when the one that started it ends."""
    keep_freed_memory()
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

    # Dask begins with tasks that others wait for, then takes keys from the last one down: here tasks in order
    keys = {name: f"{len(tasks) - place:06}" for place, name in enumerate(tasks)}
    graph = {
        keys[name]: (partial(_call, task), [keys[of] for of in (after or {}).get(name, ())])
        for name, task in tasks.items()
    }
    graph[LAST] = (partial(_call, int), [*keys.values()])
    try:
        with Callback(posttask=lambda key, result, *_: tell(result) if key != LAST else None):
            return list(get(graph, [*graph], pool=start_processes(), chunksize=1, optimize_graph=False))[:-1]
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
