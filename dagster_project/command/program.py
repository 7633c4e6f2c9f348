"""The console script: runs the command line in its own process."""

import atexit
import gc
import os
import sys
from contextlib import suppress

from dagster_project.command import process

GC_THRESHOLDS = 100_000, 20, 20
"""Objects and collections between two collections of garbage: the modules of a run make nearly a million objects that
stay. They are loaded in 3.8 s, and in 4.7 s with Python's thresholds, which look for garbage after a few hundred."""


def program() -> None:
    """Run the command line so that Ctrl-C can end it at any moment."""
    gc.set_threshold(*GC_THRESHOLDS)
    process.prepare_streams()
    os.environ.setdefault("PYTHONSAFEPATH", "1")  # no program that it starts imports from the working directory
    status = ExitStatus()
    atexit.register(status.end)  # before any module is loaded: handlers registered first run last
    try:
        process.watch_interrupts()
        _check_packages()
        from dagster_project.command.cli import main  # here, so that Ctrl-C is handled during the import
        from storage.memory import keep_freed_memory

        keep_freed_memory()
        main()
        status.code = 0
    except KeyboardInterrupt:
        if not process.is_stopping(within=process.GRACE / 2):  # a library's handler raises it earlier
            raise
    except SystemExit as end:
        if not process.is_stopping():
            status.code = end.code if isinstance(end.code, int) else int(end.code is not None)
            raise
    except BaseException:
        if not process.is_stopping():
            raise
    if process.is_stopping():
        process.end()


def _check_packages() -> None:
    """End the program with a line if another package stands in the way of one of ours."""
    try:
        import attention_geometry  # noqa: F401 (checks it)
    except ImportError as error:
        sys.stderr.write(f"attention-geometry: {error}\n")
        raise SystemExit(1) from None


class ExitStatus:
    """The exit code of the process; 1 if an exception leaves it."""

    code = 1

    def end(self) -> None:
        """End the process once all exit handlers have run, without finalising the interpreter.

        Finalisation would tear down PyTorch, Dagster and what they have loaded, which takes 2 to 3 seconds to no
        purpose. Both together keep some modules to the end, and with them classes of DuckDB, whose binding would report
        about a hundred leaked objects.
        """
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # it is full, or closed
                stream.flush()
        os._exit(self.code)


if __name__ == "__main__":
    program()
