"""Ctrl-C while libraries compute: what is in progress ends at its next step, and not inside a library.

Python interrupts its main thread wherever it is. DuckDB, PyTorch and numba turn that into errors of their own, and a
model that is being changed back is left half changed. Work that runs in another thread is never interrupted.
"""

from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar, copy_context
from threading import Event, Thread, current_thread, main_thread
from typing import TypeVar

T = TypeVar("T")

_stop: ContextVar[Event | None] = ContextVar("_stop", default=None)
"""Set once the work of this context is to end."""


class StoppedError(Exception):
    """Ends work that the user has interrupted."""


def run_stoppable(work: Callable[[], T]) -> T:
    """What ``work`` returns, which runs in a thread of its own if this is the main thread.

    ``KeyboardInterrupt`` if the user interrupts it, once ``work`` has ended: at its next ``check_stopped``.
    """
    if current_thread() is not main_thread():
        return work()
    stop, begin, started = Event(), Event(), False
    made: Future[T] = Future()

    def do_work() -> None:
        _stop.set(stop)
        begin.wait()
        try:
            check_stopped()
            made.set_result(work())
        except BaseException as error:  # noqa: BLE001 (raised where the result is awaited)
            made.set_exception(error)

    try:
        Thread(target=copy_context().run, args=(do_work,), name="stoppable").start()
        started = True  # if the interrupt comes earlier, the thread may not exist, and if it does, it begins nothing
        begin.set()
        return made.result()
    finally:
        stop.set()
        begin.set()
        if started:
            made.exception()


def check_stopped() -> None:
    """Raise ``StoppedError`` if the user has interrupted the work that calls this."""
    stop = _stop.get()
    if stop is not None and stop.is_set():
        raise StoppedError
