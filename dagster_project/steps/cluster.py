"""Where Dask computes: threads of this process, processes of this machine, or workers of a cluster that is there.

Holds the connection to a cluster, what is asked of its workers before they get work, and what is said where they fail;
nothing else imports distributed.
"""

import logging
import os
import platform
import signal
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

from dagster_project.study.home import scratch
from dagster_project.study.studies import SCHEDULER, Study
from geometry.threads import one_blas_thread
from storage.errors import UserError
from storage.files.places import Place
from storage.files.staging import beside

if TYPE_CHECKING:
    from distributed import Client, Future, Worker

T = TypeVar("T")

logger = logging.getLogger(__name__)

ADDRESS_VARIABLE = "DASK_SCHEDULER_ADDRESS"
"""Dask's own environment variable that names a scheduler."""

LIBRARIES = ("attention-geometry", "dask", "distributed", "numba", "numpy", "scipy", "torch", "zarr")
"""What a worker must have in the version of this process, so that it computes the same numbers."""

PYTHON = "Python"
"""What the version of Python goes by among those of libraries."""

CONNECT = 10.0
"""Seconds within which a scheduler must answer."""

PATIENCE = 30.0
"""Seconds to wait for a first worker, and without any result before it is looked whether there are workers left."""

MALLOC = {"MALLOC_TRIM_THRESHOLD_": 2**28, "MALLOC_MMAP_THRESHOLD_": 2**27}
"""glibc's settings for local workers, in bytes: freed memory is kept for the next block of a sequence.

Dask's own trim threshold, 64 KiB, gives every array back to the system, which then has to clear its pages again.
"""

TICK = 0.05
"""Seconds between two looks for results."""

PROBE = "seen"
"""The name of a file that workers are to see."""


def scheduler_of(study: Study) -> str:
    """Where a study is computed: ``threads``, ``local``, or the address of a scheduler.

    Raises
    ------
    UserError
        If the environment names none of these.
    """
    named = study.dask.scheduler or os.environ.get(ADDRESS_VARIABLE) or "threads"
    if not SCHEDULER.fullmatch(named):
        msg = f"{ADDRESS_VARIABLE} must be the address of a Dask scheduler, such as tcp://HOST:8786, or unset"
        raise UserError(msg)
    return named


@contextmanager
def connected(scheduler: str) -> "Iterator[Client | None]":
    """Have Dask compute at ``scheduler`` while the body runs: its client, or None for threads.

    Raises
    ------
    UserError
        If distributed is not installed, the scheduler does not answer or is lost, there are no workers, or their
        libraries are not those of this process.
    """
    if scheduler == "threads":
        with _in_use(None):
            yield None
        return
    try:
        from distributed import KilledWorker
    except ModuleNotFoundError as error:
        msg = (
            f"The scheduler '{scheduler}' needs Dask's distributed, which is not installed; "
            "run: pip install 'attention-geometry[cluster]'"
        )
        raise UserError(msg) from error
    with _quiet(), _address(scheduler) as address, _client(address) as client:
        _await_workers(client)
        _check_versions(client)
        try:
            with _in_use(client):
                yield client
        except KilledWorker as error:
            msg = f"A task ended every worker that computed it; give workers of {address} more memory and run again"
            raise UserError(msg) from error
        except (CancelledError, OSError) as error:
            if client.status == "running":
                raise
            msg = f"The Dask scheduler at {address} was lost; what was written stays, run again to continue"
            raise UserError(msg) from error


_client_in_use: "ContextVar[Client | None]" = ContextVar("client", default=None)


@contextmanager
def _in_use(client: "Client | None") -> Iterator[None]:
    """Have ``in_parallel`` know the client while the body runs."""
    token = _client_in_use.set(client)
    try:
        yield
    finally:
        _client_in_use.reset(token)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep distributed from logging to the terminal what is said here in one line, or does not matter."""
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
def _address(scheduler: str) -> Iterator[str]:
    """The address of the scheduler: of one that is there, or of one that lives as long as the body."""
    if scheduler != "local":
        yield scheduler
        return
    import dask
    from distributed import LocalCluster

    malloc = {f"distributed.nanny.pre-spawn-environ.{name}": size for name, size in MALLOC.items()}
    with dask.config.set(malloc), _without_interrupts():
        started = LocalCluster(
            n_workers=os.cpu_count() or 1,
            threads_per_worker=1,
            memory_limit=0,
            dashboard_address="127.0.0.1:0",
            local_directory=str(scratch()),
        )
    with started:
        yield started.scheduler_address


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Threads and processes that are started in the body, and those that they start, get no Ctrl-C of the terminal.

    They end with this process, whose other threads get it, and say nothing of it themselves.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _client(address: str) -> "Iterator[Client]":
    """A client of the scheduler at ``address``, which Dask uses in the body alone.

    Dask's own default would stay with a client that failed while it connected, and all that is computed later would
    wait for it without end.
    """
    from distributed import Client
    from distributed.versions import VersionMismatchWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VersionMismatchWarning)  # they are refused below, in our words
        try:
            client = Client(address, timeout=CONNECT, name="attention-geometry", set_as_default=False)
        except (OSError, TypeError, ValueError) as error:  # the latter two where certificates are missing or unreadable
            secure = ", with its certificates in Dask's configuration" if address.startswith("tls:") else ""
            msg = f"The Dask scheduler at {address} cannot be reached; see that it runs there{secure}, and run again"
            raise UserError(msg) from error
        with closing(client), client.as_current():
            yield client


def _await_workers(client: "Client") -> None:
    """Wait until there is a worker, for a while."""
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError as error:
        address = client.scheduler_info(n_workers=0)["address"]
        msg = f"The Dask scheduler at {address} has no workers; start some (dask worker {address}) and run again"
        raise UserError(msg) from error


def _check_versions(client: "Client") -> None:
    """Refuse workers with other libraries or another Python, without which provenance would not be true."""
    for what, mine in installed(LIBRARIES).items():  # asked by what every Python has, lest a worker lack our package
        ask = get_python_version if what == PYTHON else partial(version, what)
        for worker, theirs in client.run(ask, on_error="return").items():
            if theirs != mine:
                raise _other_library(worker, what, None if isinstance(theirs, Exception) else theirs, mine)


@lru_cache
def installed(libraries: tuple[str, ...]) -> dict[str, str | None]:
    """The versions of Python and of these libraries in this process; None for one that is not there."""
    found: dict[str, str | None] = {PYTHON: get_python_version()}
    for library in libraries:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            found[library] = None
    return found


def _other_library(worker: str, what: str, theirs: str | None, mine: str | None) -> UserError:
    has = "lacks" if theirs is None else f"has version {theirs} of"
    return UserError(f"The Dask worker {worker} {has} {what}; give it version {mine}, which is used here")


@contextmanager
def probed(client: "Client", stores: Iterable[Place]) -> Iterator[tuple[Place, ...]]:
    """Have a file beside the arrays of each of these stores while the body runs, which all workers must see.

    Workers that are there are asked at once; one that joins later is to ask ``check_seen`` in its tasks.

    Yields
    ------
    folders
        Where the files lie.

    Raises
    ------
    UserError
        If a worker does not see what this process writes there; the message names it.
    """
    with ExitStack() as stack:
        probes = tuple(stack.enter_context(_probe(store)) for store in stores)
        for worker, refusal in client.run(_unseen, probes).items():
            if refusal:
                msg = f"The Dask worker {worker} {refusal}"
                raise UserError(msg)
        yield probes


@contextmanager
def _probe(store: Place) -> Iterator[Place]:
    """A folder with a file in a store, for as long as the body runs; what a killed process leaves is swept."""
    probe = store.joined(beside(Path("probe")).name)
    try:
        probe.write(PROBE, [b"seen"], 4)
        yield probe
    finally:
        probe.remove()


def check_seen(probes: Iterable[Place]) -> None:
    """Refuse to go on in a worker that does not see the files of ``probed``.

    Raises
    ------
    UserError
        If this process does not; the message names it.
    """
    if refusal := _unseen(probes):
        msg = f"The Dask worker {_worker_name()} {refusal}"
        raise UserError(msg)


def _unseen(probes: Iterable[Place]) -> str | None:
    """What to say of a worker, this process, that does not see all probes."""
    for probe in probes:
        try:
            seen, why = probe.holds(PROBE), ""
        except (OSError, UserError) as error:
            seen, why = False, f" ({error})"
        if not seen:
            return (
                f"does not see {probe.parent}{why}; put tensors and metrics on storage that all machines share under "
                "one path, or in an object store"
            )
    return None


def each(
    client: "Client", function: Callable[..., T], numbers: Sequence[int], *, what: str, of: Place, **settings: Any
) -> Generator[tuple[int, T], None, None]:
    """``function(number, **settings)`` of every number, each as soon as a worker has it.

    What a worker that dies had in hand is computed by another. Where this ends early, by an error or because it is
    closed (``contextlib.closing``), the rest is given up, and it is waited for workers that have some of it in hand.

    Parameters
    ----------
    what
        What a number is, for errors, such as "sequence".
    of
        The store that is worked on, by which ``await_idle`` knows the tasks.

    Yields
    ------
    number, result

    Raises
    ------
    UserError
        If workers keep ending that were given a number, be it for that one or another that they had beside it; a worker
        has other libraries than this process, or there are no workers any more; and what ``function`` raises.
    """
    from distributed import KilledWorker

    task, key = partial(_checked, function, installed(LIBRARIES)), f"{of} {what}-{uuid4().hex}"
    futures = client.map(task, numbers, key=key, pure=False, **settings)
    of_future = dict(zip(futures, numbers, strict=True))
    try:
        for future, result in _completed(client, futures):
            number = of_future.pop(future)
            try:
                if future.status in {"error", "cancelled"}:
                    future.result()  # which raises
            except KilledWorker as error:
                msg = (
                    f"Each of {error.allowed_failures + 1} Dask workers that were given {what} {number} ended, most "
                    "likely for lack of memory; give them more and run again, which continues after what is written"
                )
                raise UserError(msg) from error
            yield number, result
    finally:
        if of_future and client.status == "running":
            client.cancel(list(of_future), force=True)
            await_idle(client, of)


def await_idle(client: "Client", of: Place) -> None:
    """Wait until no worker has a task of ``each`` on this store in hand, be it of a run that is no more."""
    said = False
    while any(client.run(_has_in_hand, f"{of} ", on_error="ignore").values()):
        if not said:
            logger.info("Waiting for Dask workers to let go of what they have in hand of %s", of)
        said = True
        time.sleep(TICK)


def _has_in_hand(prefix: str, dask_worker: "Worker") -> bool:
    """Whether a worker runs tasks with such keys, wanted or not."""
    return any(str(task.key).startswith(prefix) for task in dask_worker.state.all_running_tasks)


def is_wanted() -> bool:
    """Whether the task that asks is still wanted: it may have been given up, or its worker have lost its scheduler."""
    from distributed import Status, get_worker

    try:
        worker = get_worker()
    except ValueError:  # in no task
        return True
    task = worker.state.tasks.get(worker.get_current_task())
    gone = worker.status in {Status.closing, Status.closed, Status.failed}
    return not gone and task is not None and task.state == "executing"


def _checked(function: Callable[..., T], libraries: dict[str, str | None], /, *given: Any, **settings: Any) -> T:
    """The result of a function, in a worker that has these libraries and keeps to one BLAS thread.

    Workers that were there have been asked, but others may have joined since.
    """
    here = installed(tuple(name for name in libraries if name != PYTHON))
    for what, wanted in libraries.items():
        if here[what] != wanted:
            raise _other_library(_worker_name(), what, here[what], wanted)
    with one_blas_thread:
        return function(*given, **settings)


def _worker_name() -> str:
    """The address of the worker that this process is, or the machine's name."""
    from distributed import get_worker

    try:
        return str(get_worker().address)
    except ValueError:
        return f"on {platform.node()}"


def _completed(client: "Client", futures: "Sequence[Future[T]]") -> "Iterator[tuple[Future[T], T]]":
    """The futures as they complete, and their results; a UserError once there is no worker to complete the others.

    A result comes along since the worker that has it may be gone by the time that it is asked for.
    """
    from distributed import as_completed

    waiting, latest = as_completed(futures, with_results=True, raise_errors=False), time.monotonic()
    while not waiting.is_empty():
        if found := waiting.next_batch(block=False):
            yield from found
            latest = time.monotonic()
        elif time.monotonic() - latest > PATIENCE:
            _await_workers(client)
            latest = time.monotonic()
        else:
            time.sleep(TICK)


def in_parallel(
    tasks: Iterable[Callable[[], T]], *, reads: Iterable[Place] = (), threads: int | None = None
) -> list[T]:
    """Results of ``tasks``, in order, computed where ``connected`` says, else on all cores; one BLAS thread each.

    Parameters
    ----------
    tasks
        What is computed; on a cluster each is sent to a worker with all that it holds.
    reads
        Stores that the tasks read by themselves, which all workers must see.
    threads
        Most tasks at once on threads; by default one to a core.

    Raises
    ------
    UserError
        If a worker does not see what this process writes into a store, or has other libraries.
    """
    import dask
    from dask.base import compute
    from dask.delayed import delayed

    libraries, client = installed(LIBRARIES), _client_in_use.get()
    with (
        nullcontext(()) if client is None else probed(client, reads) as probes,
        dask.config.set({"num_workers": threads} if threads else {}),
    ):
        seeing = (partial(_seeing, task, probes) for task in tasks)
        checked = (delayed(_checked, pure=False)(task, libraries) for task in seeing)
        return list(compute(*checked, scheduler=client or "threads"))


def _seeing(task: Callable[[], T], probes: tuple[Place, ...]) -> T:
    """The result of a task in a process that sees these probes."""
    check_seen(probes)
    return task()
