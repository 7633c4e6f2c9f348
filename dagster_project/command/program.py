"""The console script: the command line in a process of its own."""

import atexit
import os
import sys

from dagster_project.command import interrupts, streams


def program() -> None:
    """Run the command line, which Ctrl-C ends at any moment."""
    streams.prepare()
    interrupts.watch()
    try:
        from dagster_project.command.cli import main  # here, so that Ctrl-C is attended to while it is imported

        atexit.register(_hide_standard_error)  # the first that is registered runs last
        main()
    except KeyboardInterrupt:
        if not interrupts.stopping(within=interrupts.GRACE / 2):  # a library's handler raises it before that is told
            raise
    except BaseException:
        if not interrupts.stopping():
            raise
    if interrupts.stopping():
        interrupts.end()


def _hide_standard_error() -> None:
    """Send what is written to standard error from here on to nowhere.

    Where PyTorch and Dagster share a process, DuckDB's binding reports some hundred leaked objects once the interpreter
    has ended. They are freed with the process, so whatever comes after the last exit handler is not shown.
    """
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


if __name__ == "__main__":
    program()
