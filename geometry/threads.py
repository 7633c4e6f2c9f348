"""One BLAS thread, so that results do not depend on the number of BLAS threads of a machine or a setting.

The number of threads determines how matrix products are divided into blocks, and so how they are rounded. Results that
must be the same everywhere are computed inside ``one_blas_thread``; heads, layers and sequences run in parallel
instead.
What does not belong here: limits of the whole process, which the caller sets.
"""

from contextlib import ContextDecorator
from threading import Lock

import threadpoolctl


class _OneBlasThread(ContextDecorator):
    """Limits BLAS to one thread while any thread of the process is inside the context; also a decorator.

    The limit applies to the process: the first thread to enter sets it, and the last to leave restores the previous
    limit.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._libraries: list[threadpoolctl.LibController] | None = None
        self._before: list[tuple[threadpoolctl.LibController, int]] = []

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                threads = [(library, library.get_num_threads()) for library in self._find_blas()]
                self._before = [(library, number) for library, number in threads if number not in {1, None}]
                _set_threads([(library, 1) for library, _ in self._before])
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                _set_threads(self._before)

    def _find_blas(self) -> list[threadpoolctl.LibController]:
        """The BLAS libraries of the process, looked up once."""
        if self._libraries is None:
            import scipy.linalg  # noqa: F401  loads its own BLAS library, which must be found as well

            self._libraries = threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers
        return self._libraries


def _set_threads(wanted: list[tuple[threadpoolctl.LibController, int]]) -> None:
    """Set the number of threads of each library.

    Newer versions of threadpoolctl allow only the thread that set the number last to change it, unless it releases
    control.
    """
    clear = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", lambda **_: None)
    for library, number in wanted:
        clear(force=True)
        library.set_num_threads(number)
        clear(force=True)


one_blas_thread = _OneBlasThread()
"""``with one_blas_thread:`` or ``@one_blas_thread``; may be nested, and entered by several threads at once."""
