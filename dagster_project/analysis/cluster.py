"""Where Dask computes: threads of this process, or workers of an existing cluster.

Holds the connection to a cluster, the checks of its workers before they get tasks, and the errors that are raised if
they fail; no other module imports distributed.
"""

import logging
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, closing, contextmanager, nullcontext
from contextvars import ContextVar
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from sysconfig import get_python_version
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from dagster_project.study.settings import SCHEDULER, Study
from geometry.threads import one_blas_thread
from reports.findings.numbers import count
from storage.errors import UserError
from storage.files.places import Place
from storage.files.staging import make_staging_path

if TYPE_CHECKING:
    from distributed import Client, Future, Worker

T = TypeVar("T")

logger = logging.getLogger(__name__)

ADDRESS_VARIABLE = "DASK_SCHEDULER_ADDRESS"  # Dask's own environment variable that names a scheduler

LIBRARIES = ("attention-geometry", "dask", "distributed", "numba", "numpy", "scipy", "torch", "zarr")
"""Libraries that a worker must have in the same version as this process, so that it computes the same numbers."""

PYTHON = "Python"  # Key of the version of Python among the versions of libraries
CONNECT = 10.0  # Seconds within which a scheduler must answer

PATIENCE = 30.0
"""Seconds to wait for a first worker, and without any result before checking whether there are workers left."""

FEW_KEYS = 384
"""Below so many keys steps of a task are so short that two threads wait for Python's lock longer than they compute:
``python -m benchmarks --only separation.threads``."""

TICK = 0.05  # Seconds between two polls for results
PROBE = "seen"  # Name of the file that workers must see


def select_scheduler(study: Study) -> str:
    """Where a study is computed: ``threads`` or a scheduler's address; ``UserError`` for another name."""
    named = study.dask.scheduler or os.environ.get(ADDRESS_VARIABLE) or "threads"
    if not SCHEDULER.fullmatch(named):
        raise UserError(
            f"{ADDRESS_VARIABLE} must be the address of a Dask scheduler, such as tcp://HOST:8786, or unset"
        )
    return named


@contextmanager
def use_scheduler(scheduler: str) -> "Iterator[Client | None]":
    """Let Dask compute at ``scheduler`` inside the context, which yields its client, or None for threads.

    ``UserError`` if distributed is not installed, the scheduler does not answer or is lost, there are no workers, or
    their libraries have other versions than those of this process.
    """
    if scheduler == "threads":
        with _use_client(None):
            yield None
        return
    try:
        from distributed import KilledWorker
    except ModuleNotFoundError as error:
        raise UserError(
            f"The scheduler '{scheduler}' needs Dask's distributed, which is not installed; "
            "run: pip install 'attention-geometry[cluster]'"
        ) from error
    with _silence_distributed(), _open_client(scheduler) as client:
        _await_workers(client)
        _check_versions(client)
        logger.info("Dask computes on %s at %s", count(len(client.nthreads()), "worker"), scheduler)
        try:
            with _use_client(client):
                yield client
        except KilledWorker as error:
            raise UserError(
                f"Every worker that computed a certain task ended; give those of {scheduler} more memory and run again"
            ) from error
        except (CancelledError, OSError) as error:
            if client.status == "running":
                raise
            raise UserError(
                f"The Dask scheduler at {scheduler} was lost; results already written are kept, run again to continue"
            ) from error


_client_in_use: "ContextVar[Client | None]" = ContextVar("client", default=None)


@contextmanager
def _use_client(client: "Client | None") -> "Iterator[Client | None]":
    """Let ``run_in_parallel`` use the client inside the context."""
    token = _client_in_use.set(client)
    try:
        yield client
    finally:
        _client_in_use.reset(token)


@contextmanager
def _silence_distributed() -> Iterator[None]:
    """Silence the loggers of distributed; errors that matter are reported by this module in one line."""
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client")]
    before = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


@contextmanager
def _open_client(address: str) -> "Iterator[Client]":
    """Yield a client of the scheduler at ``address``, which Dask uses only inside the context.

    A client set as Dask's own default would remain set after it failed to connect, and all later computations would
    wait for it forever.
    """
    from distributed import Client
    from distributed.versions import VersionMismatchWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VersionMismatchWarning)  # refused below, with an error of this module
        try:
            client = Client(address, timeout=CONNECT, name="attention-geometry", set_as_default=False)
        except (OSError, TypeError, ValueError) as error:  # the latter two if certificates are missing or unreadable
            secure = ", with its certificates in Dask's configuration" if address.startswith("tls:") else ""
            raise UserError(
                f"The Dask scheduler at {address} cannot be reached; check that it runs there{secure}, and run again"
            ) from error
        with closing(client), client.as_current():
            yield client


def _await_workers(client: "Client") -> None:
    """Wait until there is a worker, for at most ``PATIENCE`` seconds."""
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError as error:
        address = client.scheduler_info(n_workers=0)["address"]
        raise UserError(
            f"The Dask scheduler at {address} has no workers; start some (dask worker {address}) and run again"
        ) from error


def _check_versions(client: "Client") -> None:
    """Refuse workers with other versions of libraries or Python, since the provenance would be wrong for them."""
    for what, mine in find_versions(LIBRARIES).items():
        # by functions of the standard library: a worker may lack this one
        ask = get_python_version if what == PYTHON else partial(version, what)
        for worker, theirs in client.run(ask, on_error="return").items():
            if theirs != mine:
                raise _make_version_error(worker, what, None if isinstance(theirs, Exception) else theirs, mine)


@lru_cache
def find_versions(libraries: tuple[str, ...]) -> dict[str, str | None]:
    """The versions of Python and of these libraries in this process; None for one that is not installed."""
    versions: dict[str, str | None] = {PYTHON: get_python_version()}
    for library in libraries:
        try:
            versions[library] = version(library)
        except PackageNotFoundError:
            versions[library] = None
    return versions


def _make_version_error(worker: str, what: str, theirs: str | None, mine: str | None) -> UserError:
    has = "lacks" if theirs is None else f"has version {theirs} of"
    return UserError(f"The Dask worker {worker} {has} {what}; install version {mine} there, as in this process")


@contextmanager
def place_probes(client: "Client", stores: Iterable[Place]) -> Iterator[tuple[Place, ...]]:
    """Keep a file next to the arrays of each of these stores inside the context, and check that all workers see it.

    Yields the folders of the files, of which a killed process leaves some to be removed later; ``UserError`` names a
    worker that does not see them. Workers that join later are not checked here: their tasks must call ``check_probes``.
    """
    with ExitStack() as stack:
        probes = tuple(store.join(make_staging_path(Path("probe")).name) for store in stores)
        for probe in probes:
            stack.callback(probe.remove)
            probe.write(PROBE, b"seen")
        for worker, refusal in client.run(_describe_unseen_probe, probes).items():
            if refusal:
                raise UserError(f"The Dask worker {worker} {refusal}")
        yield probes


def check_probes(probes: Iterable[Place]) -> None:
    """Raise a ``UserError`` that names this process, a worker, if it does not see the files of ``place_probes``."""
    if refusal := _describe_unseen_probe(probes):
        raise UserError(f"The Dask worker {_describe_worker()} {refusal}")


def _describe_unseen_probe(probes: Iterable[Place]) -> str | None:
    """Describe why this process, a worker, does not see all probes; None if it does."""
    for probe in probes:
        try:
            seen, why = probe.has_file(PROBE), ""
        except (OSError, UserError) as error:
            seen, why = False, f" ({error})"
        if not seen:
            return (
                f"does not see {probe.parent}{why}; put tensors and metrics on storage that all machines share under "
                "one path, or in an object store"
            )
    return None


def compute_each(
    client: "Client", function: Callable[..., T], numbers: Sequence[int], *, what: str, of: Place, **settings: Any
) -> Generator[tuple[int, T], None, None]:
    """Yield ``function(number, **settings)`` for every number, each as soon as a worker has computed it.

    The tasks of a worker that dies are computed by another. If this ends early, by an error or because it is closed
    (``contextlib.closing``), the other tasks are cancelled, and those that are already running are waited for.

    ``what``: what a number is, for errors, such as "sequence"; ``of``: the store that the tasks are about, by which
    ``await_idle`` recognises them. ``UserError`` if every worker that was given a certain number ended, whether because
    of it or of another number that it was computing at the same time; if a worker has other versions of libraries than
    this process; if there are no workers left. Errors of ``function`` are raised as they are.
    """
    from distributed import KilledWorker

    task, key = partial(_check_and_call, function, find_versions(LIBRARIES)), f"{of} {what}-{uuid4().hex}"
    futures = client.map(task, numbers, key=key, pure=False, **settings)
    of_future = dict(zip(futures, numbers, strict=True))
    try:
        for future, result in _iterate_completed(client, futures):
            number = of_future.pop(future)
            try:
                if future.status in {"error", "cancelled"}:
                    future.result()  # which raises
            except KilledWorker as error:
                raise UserError(
                    f"Each of {error.allowed_failures + 1} Dask workers that were given {what} {number} ended, most "
                    "likely for lack of memory; give them more and run again, which computes only what is missing"
                ) from error
            yield number, result
    finally:
        if of_future and client.status == "running":
            client.cancel(list(of_future), force=True)
            await_idle(client, of)


def await_idle(client: "Client", of: Place) -> None:
    """Wait until no worker runs a task of ``compute_each`` on this store, of this run or of one that has ended."""
    said = False
    while any(client.run(_has_running_task, f"{of} ", on_error="ignore").values()):
        if not said:
            logger.info("Waiting until Dask workers have finished their running tasks on %s", of)
        said = True
        time.sleep(TICK)


def _has_running_task(prefix: str, dask_worker: "Worker") -> bool:
    """Whether a worker runs a task whose key has this prefix, cancelled or not."""
    return any(str(task.key).startswith(prefix) for task in dask_worker.state.all_running_tasks)


def is_wanted() -> bool:
    """Whether the calling task is still wanted: it may be cancelled, or its worker may have lost the scheduler."""
    if "distributed" not in sys.modules:  # which a worker has imported
        return True
    from distributed import Status, get_worker

    try:
        worker = get_worker()
    except ValueError:  # not called in a task
        return True
    task = worker.state.tasks.get(worker.get_current_task())
    gone = worker.status in {Status.closing, Status.closed, Status.failed}
    return not gone and task is not None and task.state == "executing"


def _check_and_call(function: Callable[..., T], libraries: dict[str, str | None], /, *given: Any, **settings: Any) -> T:
    """Call a function with one BLAS thread, in a worker that must have these versions of libraries.

    Workers are checked when the client connects, but others may have joined since.
    """
    here = find_versions(tuple(name for name in libraries if name != PYTHON))
    for what, wanted in libraries.items():
        if here[what] != wanted:
            raise _make_version_error(_describe_worker(), what, here[what], wanted)
    with one_blas_thread:
        return function(*given, **settings)


def _describe_worker() -> str:
    """The address of this process as a worker, or the name of the machine."""
    from distributed import get_worker

    try:
        return str(get_worker().address)
    except ValueError:
        return f"on {platform.node()}"


def _iterate_completed(client: "Client", futures: "Sequence[Future[T]]") -> "Iterator[tuple[Future[T], T]]":
    """Yield the futures as they complete, with their results; raise UserError if there is no worker for the others.

    Each result is yielded with its future, since the worker that has it may no longer exist when it is read later.
    """
    from distributed import as_completed

    waiting, latest = as_completed(futures, with_results=True, raise_errors=False), time.monotonic()
    while not waiting.is_empty():
        if completed := waiting.next_batch(block=False):
            yield from completed
            latest = time.monotonic()
        elif time.monotonic() - latest > PATIENCE:
            _await_workers(client)
            latest = time.monotonic()
        else:
            time.sleep(TICK)


def count_threads() -> int:
    """How many threads compute: Dask's setting ``num_workers``, else one per core that this process may use."""
    from dask import config
    from dask.system import CPU_COUNT

    return int(config.get("num_workers", None) or CPU_COUNT)


def limit_threads(keys: int) -> int | None:
    """How many threads compute tasks over so many keys: one below ``FEW_KEYS``, else all (None)."""
    return 1 if keys < FEW_KEYS else None


def run_in_parallel(
    tasks: Iterable[Callable[[], T]], *, reads: Iterable[Place] = (), threads: int | None = None
) -> list[T]:
    """Compute ``tasks`` at the scheduler in use, else on all cores, one BLAS thread each; results are in order.

    On a cluster each task, a function without arguments, is sent to a worker with all data that it holds; ``reads``
    are stores that they read by themselves. ``threads``: the most tasks that run at once on threads, by default one
    per core. ``UserError`` if a worker does not see what this process writes into a store, or has other versions of
    libraries.
    """
    from dask import threaded
    from dask.base import compute
    from dask.delayed import delayed

    libraries, client = find_versions(LIBRARIES), _client_in_use.get()
    if client is None and (threads or count_threads()) == 1:
        return [_check_and_call(task, libraries) for task in tasks]
    options = {"num_workers": threads or count_threads()} if client is None else {}
    with nullcontext(()) if client is None else place_probes(client, reads) as probes:
        seeing = (partial(_run_with_probes, task, probes) for task in tasks)
        checked = (delayed(_check_and_call, pure=False)(task, libraries) for task in seeing)
        scheduler = client or threaded.get  # for a name Dask imports distributed
        return list(compute(*checked, scheduler=scheduler, **options))


def _run_with_probes(task: Callable[[], T], probes: tuple[Place, ...]) -> T:
    """Compute a task in a process that must see these probes."""
    check_probes(probes)
    return task()
