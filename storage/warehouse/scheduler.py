"""Jobs that wait for one another, a few at a time.

Holds ``in_lanes``.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from graphlib import TopologicalSorter
from typing import Any


def in_lanes(
    jobs: Mapping[str, Callable[[], Any]],
    after: Mapping[str, Iterable[str]],
    *,
    lanes: int,
    stop: Callable[[], object],
    ended: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """Run every job once, as soon as those that it comes after are done and a lane is free, earlier ones first.

    Parameters
    ----------
    jobs
        What is to be done, by name; of those that may begin, the first of this mapping begins first.
    after
        For each job the names of those that it waits for.
    lanes
        Threads that work at jobs.
    stop
        Called when a job has failed, or this thread is interrupted: makes the running jobs end early.
    ended
        Called in this thread when a job is done.

    Returns
    -------
    dict
        What each job returned.

    Raises
    ------
    BaseException
        What the first job that failed raised, once the others have ended; those that had not begun never do.
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
