"""Ctrl-C ends a command, with one line and exit code 130, whatever it is doing."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from dagster_project.command.interrupts import STOPPED
from tests.dagster_project.driver import environment
from tests.dagster_project.recorded import TINY, write_studies

PATIENCE = 30.0
"""Seconds within which the process has to be gone: far more than it waits, and half of what the commands here sleep."""

STUBBORN = """
import sys, time
sys.path.insert(0, "{checkout}")
from dagster_project.command import cli, program

def main():
    print("begun", flush=True)
    while True:
        try:
            time.sleep(60)
        except BaseException:
            print("a complaint of a library", file=sys.stderr)

cli.main = main
program.program()
"""
"""A command that obeys no interrupt."""


DESTROYED = """
import signal, sys, time
sys.path.insert(0, "{checkout}")
from dagster_project.command import cli, program

class Held:
    def __del__(self):
        time.sleep(60)

def main():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as libraries do
    print("begun", flush=True)
    while True:
        Held()

cli.main = main
program.program()
"""
"""A command that an interrupt meets in a destructor, which cannot pass it on."""


LOADING = """
import sys
sys.path.insert(0, "{checkout}")
from dagster_project.command import interrupts, program

watch = interrupts.watch

def watch_and_tell():
    watch()
    print("begun", flush=True)

interrupts.watch = watch_and_tell
program.program()
"""
"""The command line, which says when it begins to load, however long the interpreter takes to start."""


def interrupted(command: list[object], after: float = 0.0, begun: str = "") -> tuple[int, str, float]:
    """Exit code, screen and seconds that a command took to end after Ctrl-C on its terminal.

    The key is pressed ``after`` seconds after the start, or after ``begun`` was shown. A command that has ended before
    has 0 as its exit code.
    """
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 40, 120, 0, 0))
    process = subprocess.Popen(
        [*map(str, command)],
        env=environment(TERM="xterm"),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 (Ctrl-C reaches all of its processes)
    )
    os.close(slave)
    screen, pressed = b"", 0.0
    started = time.monotonic()
    try:
        while time.monotonic() < started + after + 120:
            if select.select([master], [], [], 0.02)[0]:
                try:
                    screen += os.read(master, 65536)
                except OSError:  # all that had the terminal open are gone
                    break
            if not pressed and begun.encode() in screen and time.monotonic() > started + after:
                os.write(master, b"\x03")
                pressed = time.monotonic()
        ended = time.monotonic()
        return process.wait(10), screen.decode("utf-8"), ended - pressed if pressed else 0.0
    finally:
        process.kill()
        process.wait()
        os.close(master)


def check(code: int, screen: str, seconds: float) -> None:
    assert code == 130, screen
    assert screen.count(STOPPED.strip()) == 1, screen
    assert screen.rstrip().endswith(STOPPED.strip())
    assert "Traceback" not in screen
    assert "Aborted" not in screen
    assert seconds < PATIENCE


@pytest.mark.slow
def test_a_command_that_obeys_no_interrupt_is_ended() -> None:
    checkout = Path(__file__).parents[2]
    check(*interrupted([sys.executable, "-c", STUBBORN.format(checkout=checkout)], begun="begun"))


def test_a_command_without_standard_error_ends_as_well() -> None:
    checkout = Path(__file__).parents[2]
    command = ["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, STUBBORN.format(checkout=checkout)]
    code, _, seconds = interrupted(command, begun="begun")
    assert code == 130
    assert seconds < PATIENCE


@pytest.mark.slow
def test_nothing_is_said_of_an_interrupt_that_meets_a_destructor() -> None:
    checkout = Path(__file__).parents[2]
    check(*interrupted([sys.executable, "-c", DESTROYED.format(checkout=checkout)], begun="begun"))


def test_a_command_is_interrupted_while_it_loads(tmp_path: Path) -> None:
    write_studies(tmp_path, tiny=TINY)
    code = LOADING.format(checkout=Path(__file__).parents[2])
    check(*interrupted([sys.executable, "-c", code, "run", "tiny", "--home", tmp_path], begun="begun"))


@pytest.mark.parametrize("quiet", [True, False])
def test_a_process_that_ends_at_once_lists_no_semaphores(*, quiet: bool) -> None:
    start = "from dagster_project.command.interrupts import start_tracker; start_tracker()" if quiet else "pass"
    program = f"{start}; import os, multiprocessing as m; lock = m.get_context('spawn').Lock(); os._exit(0)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ("leaked semaphore" in done.stderr) is not quiet


def test_no_process_imports_from_the_working_directory(tmp_path: Path) -> None:
    """A file of a user may have the name of a module."""
    program = tmp_path / "program.py"
    program.write_text(
        "import subprocess, sys\n"
        "from dagster_project.command import cli, program\n"
        "cli.main = lambda: subprocess.run([sys.executable, '-c', 'import geometry'], check=True)\n"
        "program.program()\n"
    )
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "geometry.py").write_text("raise SystemExit(1)\n")
    given = {name: value for name, value in environment().items() if name != "PYTHONSAFEPATH"}
    subprocess.run([sys.executable, program], check=True, env=given, cwd=tmp_path / "folder")
