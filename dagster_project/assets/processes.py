"""Making assets of a study: one after the other, or its small tables in several processes.

Small tables are computed by short steps of Python between short kernels, so that threads wait for Python's lock, and
every table is computed from the stores alone.
"""

import logging
import sys
from collections.abc import Collection, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import count
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection

from dagster_project.analysis.cluster import block_interrupts, count_threads, select_scheduler
from dagster_project.assets.asset import Asset, AssetResult, Work
from dagster_project.assets.catalogue import ASSETS, find_asset
from dagster_project.assets.table_process import prepare
from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from storage.errors import UserError
from storage.memory import measure_free_memory
from storage.warehouse.scheduler import iterate_jobs

logger = logging.getLogger(__name__)

PROCESSES = 4
"""Most processes: as many assets take long, the fits of Assumptions 2 and 3, separability and temperature."""

FEW_SELECTIONS = 400_000
"""Below so many selections processes take longer to start than they save (``benchmarks --only processes``)."""

PROCESS_MEMORY = 1_000_000_000
"""Bytes of free memory for each process, of which libraries take a third."""


def make_each(
    work: Work, assets: Sequence[Asset], force: Collection[str] = ()
) -> Generator[tuple[Asset, AssetResult], None, None]:
    """Make assets of a study, each after its parents, and yield each with its result as soon as it is made.

    Several assets are tables that are computed from the stores, which are opened once.

    Parameters
    ----------
    work
        The study.
    assets
        One asset, or several of small tables, each after its parents.
    force
        Names of those that are rebuilt even if they are current.

    Raises
    ------
    UserError
        As for ``Asset.make``, or if a process ended for lack of memory.
    """
    if any(asset.tables or asset.name == "selection_metrics" for asset in assets):
        from attention_geometry.compilation import tell_of_compilation

        tell_of_compilation()
    if len(assets) == 1:
        made = iter([(assets[0], assets[0].make(replace(work, force=assets[0].name in force)))])
    else:
        made = _make_tables(work, assets, force)
    for asset, result in made:
        if result.message is not None:
            logger.info("%s: %s", work.name, result.message)
        yield asset, result


def _make_tables(work: Work, assets: Sequence[Asset], force: Collection[str]) -> Iterator[tuple[Asset, AssetResult]]:
    """Make assets of small tables under one lock."""
    with work.lock():
        locked = replace(work, is_locked=True)
        if is_worthwhile(locked):
            try:
                yield from _make_in_processes(locked, assets, force, _start_pool())
            except BrokenProcessPool as error:
                stop_processes()
                msg = (
                    f"A process that computed tables of '{work.name}' was ended, most likely for lack of memory; close "
                    "other programs and run again, which computes only what is missing: "
                    f"attention-geometry run {work.name}"
                )
                raise UserError(msg) from error
            except BaseException:
                stop_processes()
                raise
            return
        forced = replace(locked, force=True)
        for asset in assets:
            yield asset, asset.make(forced if asset.name in force else locked)


def is_worthwhile(work: Work) -> bool:
    """Whether processes make the small tables of a study: it is large, several are possible, no cluster computes."""
    if select_scheduler(work.study) != "threads" or count_processes() < 2:
        return False
    return work.sources.metrics.count_selections() >= FEW_SELECTIONS


def count_processes() -> int:
    """How many processes may make small tables: one for each core, and for each ``PROCESS_MEMORY`` that is free."""
    return max(1, min(PROCESSES, count_threads(), measure_free_memory() // PROCESS_MEMORY))


def _make_in_processes(
    work: Work, assets: Sequence[Asset], force: Collection[str], pool: "_Pool"
) -> Iterator[tuple[Asset, AssetResult]]:
    """Make assets in processes and yield each as soon as it is made.

    A process that is free makes the first asset of the list whose parents are made.
    """
    from tqdm import tqdm
    from tqdm.contrib.logging import logging_redirect_tqdm

    named, call = {asset.name: asset for asset in assets}, next(_TABLES)
    make = partial(_make, call, work.home, work.name, work.study)
    jobs = {name: partial(make, name, force=name in force) for name in named}
    after = {name: asset.parents for name, asset in named.items()}
    with tqdm(total=len(assets), desc="tables", unit="asset", disable=None) as bar, logging_redirect_tqdm():
        for name, result in iterate_jobs(pool.executor, jobs, after, lanes=pool.processes):
            yield named[name], result
            bar.update()


@dataclass(frozen=True)
class _Pool:
    """Processes that make tables, and the end of the pipe that they live on: when it is closed, they end."""

    executor: ProcessPoolExecutor
    processes: int
    """Their number."""
    held: Connection
    watched: Connection


@lru_cache(1)
def _start_pool() -> _Pool:
    """Processes which are kept for the next study and end with this one, even if it is killed."""
    processes = count_processes()
    context, threads = get_context("forkserver"), max(1, count_threads() // processes)
    context.set_forkserver_preload(["dagster_project.assets.table_libraries"])
    watched, held = context.Pipe(duplex=False)
    executor = ProcessPoolExecutor(processes, context, prepare, (watched, threads))
    with block_interrupts():
        for _ in range(processes):
            executor.submit(int)  # starts a process, since none is idle
    return _Pool(executor, processes, held, watched)


def start_tracker() -> None:
    """Start the process that frees semaphores, without warnings: it would list those of an interrupted run.

    Must be called before the first semaphore is made.
    """
    sys.warnoptions.append("ignore")  # which it inherits
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions.pop()


def stop_processes() -> None:
    """End the processes that make tables, whatever they do."""
    if _start_pool.cache_info().currsize:
        pool = _start_pool()
        pool.held.close()
        pool.watched.close()
        pool.executor.shutdown(cancel_futures=True)
    _start_pool.cache_clear()


_TABLES = count()
"""Numbers of the calls that made tables: a process opens the stores of a study again for each."""


def _make(call: int, home: Home, name: str, study: Study, asset: str, *, force: bool) -> AssetResult:
    """Make an asset in a process of ``_start_pool``."""
    work = _open_study(call, home, name, study)
    return find_asset(asset).make(replace(work, force=True) if force else work)


@lru_cache(1)
def _open_study(_call: int, home: Home, name: str, study: Study) -> Work:
    """The study of a process, whose stores it opens once for each call."""
    return Work(home, name, study, ASSETS, is_locked=True)
