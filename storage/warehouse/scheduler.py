"""Run jobs that wait for one another, a few at a time."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from graphlib import TopologicalSorter
from typing import TypeVar

T = TypeVar("T")


def iterate_jobs(
    executor: Executor, jobs: Mapping[str, Callable[[], T]], after: Mapping[str, Iterable[str]], *, lanes: int
) -> Iterator[tuple[str, T]]:
    """Run every job once, as soon as the jobs that it waits for are done and a lane is free.

    Parameters
    ----------
    executor
        Runs them; a job that has begun is the caller's to end, if another fails.
    jobs
        The jobs by name; of those that are ready, the first in this mapping starts first.
    after
        For each job the names of the jobs that it waits for, as far as they are among ``jobs``.
    lanes
        How many run at a time.

    Yields
    ------
    name, result
        Of each job, as soon as it is done and others have begun in its place.

    Raises
    ------
    BaseException
        Whatever the first failed job raised; no further job is started.
    """
    order = TopologicalSorter({name: jobs.keys() & {*after.get(name, ())} for name in jobs})
    order.prepare()
    rank = {name: place for place, name in enumerate(jobs)}
    ready: list[str] = []
    running: dict[Future[T], str] = {}
    done: dict[str, T] = {}
    while order.is_active() or done:
        ready = sorted([*ready, *order.get_ready()], key=rank.__getitem__)
        while ready and len(running) < lanes:
            name = ready.pop(0)
            running[executor.submit(jobs[name])] = name
        yield from done.items()
        ended = wait(running, return_when=FIRST_COMPLETED).done
        done = {running.pop(job): job.result() for job in ended}
        order.done(*done)
