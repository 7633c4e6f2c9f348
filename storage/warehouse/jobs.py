"""Jobs that wait for one another, as one graph of Dask in threads."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")


def compute_jobs(
    jobs: Mapping[str, Callable[[], T]],
    after: Mapping[str, Iterable[str]],
    *,
    threads: int,
    what: str,
    unit: str,
    stop: Callable[[], None] = lambda: None,
) -> dict[str, T]:
    """Compute every job once, each after those that it waits for; return the results by name.

    Parameters
    ----------
    jobs
        The jobs by name.
    after
        For each job the names of the jobs that it waits for, as far as they are among ``jobs``.
    threads
        How many run at a time.
    what, unit
        What the progress bar says.
    stop
        Called once a job has failed, or at an interrupt, so that those that have begun end soon.

    Raises
    ------
    BaseException
        Whatever the first failed job raised; no further job is started, and those that have begun are waited for.
    """
    from dask import threaded  # here, since most commands land nothing

    with tqdm(desc=what, total=len(jobs), unit=unit, disable=None) as bar, ThreadPoolExecutor(threads) as pool:

        def compute(job: Callable[[], T], _after: list[T]) -> T:
            result = job()
            bar.update()
            return result

        graph = {
            name: (compute, job, [other for other in after.get(name, ()) if other in jobs])
            for name, job in jobs.items()
        }
        try:
            return dict(zip(jobs, threaded.get(graph, list(jobs), pool=pool), strict=True))
        except BaseException:
            stop()
            raise
