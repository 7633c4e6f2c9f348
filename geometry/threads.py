"""One BLAS thread, so that results do not depend on how many threads a machine or a setting gives BLAS.

Matrix products on several threads are cut into other pieces, whose edges are rounded otherwise. What must be the same
everywhere is computed within ``one_blas_thread``; heads, layers and sequences are what runs side by side. What does not
belong here: limits of the whole process, which are the caller's.
"""

from contextlib import ContextDecorator
from threading import Lock
from typing import Any

import threadpoolctl


class _OneBlasThread(ContextDecorator):
    """Limits BLAS to one thread as long as any thread of the process is within it; also a decorator.

    The limit is the process's, so the first to enter sets it and the last to leave restores what was there before.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._libraries: threadpoolctl.ThreadpoolController | None = None
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                _take_control()
                self._limit = self._controller().limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                _take_control()
                self._limit.restore_original_limits()
                _take_control()  # and leave it to whoever comes next

    def _controller(self) -> threadpoolctl.ThreadpoolController:
        """The BLAS libraries of the process, looked up once."""
        if self._libraries is None:
            import scipy.linalg  # noqa: F401  brings a library of its own, which must be there by then

            self._libraries = threadpoolctl.ThreadpoolController()
        return self._libraries


def _take_control() -> None:
    """Let the next thread that sets limits do so: newer versions of threadpoolctl let only one at a time."""
    clear = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


one_blas_thread = _OneBlasThread()
"""``with one_blas_thread:`` or ``@one_blas_thread``; may be nested, and entered by several threads at once."""
