"""Dagster's web UI and daemon as child processes of the command line, which end with it."""

import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from storage.errors import UserError

PATIENCE = 10
"""Seconds that they have to end by themselves after a signal."""

ASKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end them."""


def check_address(port: int, origins: Sequence[str]) -> None:
    """Refuse a port that cannot be listened on, and addresses of proxies that are not origins.

    ``UserError`` in either case.
    """
    for origin in origins:
        parts = urlsplit(origin)
        if parts.scheme not in {"http", "https"} or not parts.hostname or origin != f"{parts.scheme}://{parts.netloc}":
            raise UserError(
                f"--origin {origin} is not the address of a host as browsers show it, such as https://host.example"
            )
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise UserError(f"Port {port} cannot be used ({error.strerror}); choose another with --port") from error


def serve(command: Sequence[str]) -> int:
    """Run a command in its own session until it ends or a signal of ``ASKED`` arrives; then end all its processes.

    The standard input of the command is a pipe that is closed when this process ends in any way.

    Returns the command's exit code, or 128 plus the number of the signal.
    """
    signals: list[int] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:  # noqa: S603 (no shell, our own interpreter)

        def stop(number: int, frame: object) -> None:  # noqa: ARG001 (a handler's signature)
            signals.append(number)
            process.send_signal(signal.SIGINT)
            signal.alarm(PATIENCE)

        before = {number: signal.signal(number, stop) for number in ASKED}
        before[signal.SIGALRM] = signal.signal(signal.SIGALRM, lambda *_: _kill(process))
        try:
            code = process.wait()
        finally:
            signal.alarm(0)
            for number, handler in before.items():
                signal.signal(number, handler)
    _kill(process)
    return 128 + signals[0] if signals else code


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill all remaining processes of a session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
