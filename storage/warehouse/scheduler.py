"""Run jobs that wait for one another, a few at a time."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from graphlib import TopologicalSorter
from typing import Any


def run_jobs(
    jobs: Mapping[str, Callable[[], Any]],
    after: Mapping[str, Iterable[str]],
    *,
    lanes: int,
    stop: Callable[[], object],
    ended: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """Run every job once, as soon as the jobs that it waits for are done and a thread is free.

    Parameters
    ----------
    jobs
        The jobs by name; of those that are ready, the first in this mapping starts first.
    after
        For each job the names of the jobs that it waits for.
    lanes
        Number of threads.
    stop
        Called if a job fails or this thread is interrupted, to end the running jobs early.
    ended
        Called in this thread when a job is done.

    Returns
    -------
    dict
        What each job returned.

    Raises
    ------
    BaseException
        Whatever the first failed job raised, once the running jobs have ended; no further job is started.
    """
    order: TopologicalSorter[str] = TopologicalSorter({name: after.get(name, ()) for name in jobs})
    order.prepare()
    rank = {name: place for place, name in enumerate(jobs)}
    results: dict[str, Any] = {}
    waiting: set[str] = set()
    running: dict[Future[Any], str] = {}
    with ThreadPoolExecutor(lanes) as pool:
        try:
            while order.is_active():
                waiting |= set(order.get_ready())
                for name in sorted(waiting, key=rank.__getitem__)[: lanes - len(running)]:
                    waiting.remove(name)
                    running[pool.submit(jobs[name])] = name
                for job in wait(running, return_when=FIRST_COMPLETED).done:
                    name = running.pop(job)
                    results[name] = job.result()
                    order.done(name)
                    ended()
        except BaseException:
            stop()
            raise
    return results
