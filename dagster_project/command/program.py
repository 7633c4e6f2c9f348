"""The console script: the command line in a process of its own."""

import atexit
import os
import sys
from contextlib import suppress

from dagster_project.command import interrupts, streams


def program() -> None:
    """Run the command line, which Ctrl-C ends at any moment."""
    streams.prepare()
    interrupts.watch()
    status = _Status()
    try:
        from dagster_project.command.cli import main  # here, so that Ctrl-C is attended to while it is imported

        atexit.register(status.end)  # the first that is registered runs last
        main()
        status.code = 0
    except KeyboardInterrupt:
        if not interrupts.stopping(within=interrupts.GRACE / 2):  # a library's handler raises it before that is told
            raise
    except SystemExit as end:
        if not interrupts.stopping():
            status.code = end.code if isinstance(end.code, int) else int(end.code is not None)
            raise
    except BaseException:
        if not interrupts.stopping():
            raise
    if interrupts.stopping():
        interrupts.end()


class _Status:
    """What the process ends with; 1 where an error passes out of it."""

    code = 1

    def end(self) -> None:
        """End the process once all exit handlers have run, without the end of the interpreter.

        There PyTorch, Dagster and what they have loaded would be taken apart, which takes 2 to 3 seconds in which
        nothing is left to do, and DuckDB's binding would report some hundred leaked objects.
        """
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # it is full, or closed
                stream.flush()
        os._exit(self.code)


if __name__ == "__main__":
    program()
