"""The process of a command: Ctrl-C ends it within two seconds, and its streams may be closed, full, or lack characters.

Imports only the standard library, so that both are set up before typer, PyTorch or Dagster are loaded.
"""

import io
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Any, NoReturn

GRACE = 1.2
"""Seconds that an interrupted command has to end by itself: to record the interrupt and remove its files."""

STOPPED = "attention-geometry: stopped; run the same command again to continue\n"

_stopping = Event()
"""Set once the line has been written; later output is hidden."""

_writing = Lock()
"""Held while the line is written, so that the process does not end in the middle of it."""


def watch_interrupts() -> None:
    """Handle SIGINT in a thread, whatever the main thread does; also SIGTERM while a library has a handler for it.

    The main thread gets ``KeyboardInterrupt`` as usual. If it has not ended the process after ``GRACE`` seconds, or at
    the next signal, the process ends at once: stored data survives that as it survives a kill. What libraries print
    about the interrupt is hidden.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _hide_interrupts
    Thread(target=_watch, args=(reading,), daemon=True, name="interrupts").start()


def leave_interrupts() -> None:
    """Leave SIGINT to the main thread from now on: at a prompt, it stops a statement and not the program."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def start_tracker() -> None:
    """Start the process that frees semaphores, without warnings: it would list those of an interrupted run.

    Must be called before the first semaphore is made.
    """
    from multiprocessing import resource_tracker  # here: what it cleans up at the end is to be registered after ours

    sys.warnoptions.append("ignore")  # which it inherits
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions.pop()


def is_stopping(within: float = 0.0) -> bool:
    """Whether the process has been interrupted and the line been written, now or within some seconds."""
    return _stopping.wait(within)


def end(number: int = signal.SIGINT) -> NoReturn:
    """End the process now, with the exit code of one that this signal has ended."""
    _writing.acquire(timeout=GRACE)
    os._exit(128 + number)


def _interrupt(number: int, frame: object) -> NoReturn:  # noqa: ARG001 (a handler's signature)
    """Interrupt the main thread, once the line has been written."""
    _stopping.wait(GRACE / 2)
    raise KeyboardInterrupt


def _hide_interrupts(raised: "sys.UnraisableHookArgs") -> None:
    """Hide an interrupt that was raised in a callback or a destructor, from which it cannot propagate."""
    if issubclass(raised.exc_type, Exception):
        sys.__unraisablehook__(raised)


def _watch(reading: int) -> None:
    """Wait for the first signal, print that the command stops, and end the process if it does not end by itself."""
    while (number := os.read(reading, 1)[0]) not in {signal.SIGINT, signal.SIGTERM}:
        pass
    try:
        terminal = os.dup(2)
    except OSError:  # it is closed
        terminal = os.open(os.devnull, os.O_WRONLY)
    with _writing:
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        with suppress(OSError):
            os.write(terminal, f"{chr(10) if os.isatty(terminal) else ''}{STOPPED}".encode())
    _stopping.set()
    select.select([reading], [], [], GRACE)  # until the next signal at most
    end(number)


# --- standard input, output and error ---

OUTPUT = "standard output"
"""The file name in errors of writing to standard output."""


def prepare_streams() -> None:
    """Open closed streams on ``/dev/null``, and write characters that an encoding lacks by their codes.

    So what is printed to a closed stream is lost, and no other file takes its number.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    sys.stdout = _open_text(_Output(1, "w", closefd=False), sys.stdout.encoding, lines=sys.stdout.isatty())
    sys.stderr = _open_text(io.FileIO(2, "w", closefd=False), sys.stderr.encoding, lines=True)


def _open_text(file: io.FileIO, encoding: str, *, lines: bool) -> io.TextIOWrapper:
    """Open a file as text; characters that the encoding lacks are written by their codes; line- or block-buffered."""
    return io.TextIOWrapper(io.BufferedWriter(file), encoding=encoding, errors="backslashreplace", line_buffering=lines)


class _Output(io.FileIO):
    """Standard output, whose errors can be distinguished from those of files."""

    def write(self, content: Any, /) -> int:
        """Write bytes; an error names ``OUTPUT`` as its file."""
        try:
            return super().write(content)
        except OSError as error:
            error.filename = OUTPUT
            raise


# --- the web UI and its daemon, which end with the command ---

PATIENCE = 10
"""Seconds that they have to end by themselves after a signal."""

ASKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end them."""


def serve(command: Sequence[str]) -> int:
    """Run a command in its own session until it ends or a signal of ``ASKED`` arrives; then end all its processes.

    The standard input of the command is a pipe that is closed when this process ends in any way. The handlers of these
    signals stay: call it last.

    Returns the command's exit code, or 128 plus the number of the signal.
    """
    signals: list[int] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:  # noqa: S603 (no shell, our own interpreter)

        def stop(number: int, frame: object) -> None:  # noqa: ARG001 (a handler's signature)
            signals.append(number)
            process.send_signal(signal.SIGINT)
            signal.alarm(PATIENCE)

        for number in ASKED:
            signal.signal(number, stop)
        signal.signal(signal.SIGALRM, lambda *_: _kill(process))
        code = process.wait()
    _kill(process)
    return 128 + signals[0] if signals else code


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill all remaining processes of a session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
