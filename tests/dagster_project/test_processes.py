"""The process of a command: Ctrl-C ends it, with one line and exit code 130, and what it has started ends with it."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from dagster_project.command.process import STOPPED
from tests.dagster_project.driver import CHECKOUT, environment
from tests.dagster_project.recorded import TINY, write_studies

PATIENCE = 30.0
"""Seconds within which the process has to be gone: far more than it waits, and half of what the commands here sleep."""

BEGIN = """
import signal, sys, time
from dagster_project.command import cli, process, program

class Held:
    def __del__(self):
        time.sleep(60)

def obey_nothing():
    print("begun", flush=True)
    while True:
        try:
            time.sleep(60)
        except BaseException:
            print("a complaint of a library", file=sys.stderr)

def destroy():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as libraries do
    print("begun", flush=True)
    while True:
        Held()

watch = process.watch_interrupts

def watch_and_tell():
    watch()
    print("begun", flush=True)
"""
STUBBORN = [sys.executable, "-c", f"{BEGIN}\ncli.main = obey_nothing; program.program()"]
"""A command that obeys no interrupt."""

DESTROYED = [sys.executable, "-c", f"{BEGIN}\ncli.main = destroy; program.program()"]
"""A command that an interrupt meets in a destructor, which cannot pass it on."""

LOADING = [sys.executable, "-c", f"{BEGIN}\nprocess.watch_interrupts = watch_and_tell; program.program()"]
"""The command line, which says when it begins to load, however long the interpreter takes to start."""


MAKING_A_FOLDER = """
import sys
from types import SimpleNamespace
from dagster_project.command import program

def main():
    from multiprocessing.util import get_temp_dir
    print(get_temp_dir())

sys.modules["dagster_project.command.cli"] = SimpleNamespace(main=main)
program.program()
"""
"""A command that starts processes as a run does, whose library removes its folder at the end."""


def check_interrupt(command: list[object]) -> None:
    """Press Ctrl-C on the terminal of a command, once it has shown ``begun``: it ends soon, and one line says so."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 40, 120, 0, 0))
    process = subprocess.Popen(
        [*map(str, command)],
        env=environment(TERM="xterm", PYTHONPATH=str(CHECKOUT)),
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
        while time.monotonic() < started + 120:
            if select.select([master], [], [], 0.02)[0]:
                try:
                    screen += os.read(master, 65536)
                except OSError:  # all that had the terminal open are gone
                    break
            if not pressed and b"begun" in screen:
                os.write(master, b"\x03")
                pressed = time.monotonic()
        ended, code = time.monotonic(), process.wait(10)
    finally:
        process.kill()
        process.wait()
        os.close(master)
    shown = screen.decode("utf-8")
    assert code == 130, shown
    assert shown.count(STOPPED.strip()) == 1, shown
    assert shown.rstrip().endswith(STOPPED.strip())
    assert not re.search("Traceback|Aborted", shown)
    assert ended - pressed < PATIENCE


@pytest.mark.one_case
@pytest.mark.parametrize("command", [STUBBORN, DESTROYED], ids=["stubborn", "in a destructor"])
def test_one_line_is_said_of_an_interrupt(command: list[object]) -> None:
    check_interrupt(command)


def test_a_command_is_interrupted_while_it_loads(tmp_path: Path) -> None:
    write_studies(tmp_path, tiny=TINY)
    check_interrupt([*LOADING, "run", "tiny", "--home", tmp_path])


def test_closed_streams_give_their_numbers_to_no_file(tmp_path: Path) -> None:
    """A file that is opened while standard output is closed would get its number, and with it all that is printed."""
    code = (
        "import os, pathlib; from dagster_project.command import process; process.prepare_streams(); "
        "pathlib.Path('told').write_text(str(os.open('file', os.O_CREAT | os.O_WRONLY) > 2))"
    )
    command = ["bash", "-c", f'"{sys.executable}" -c "{code}" <&- >&- 2>&-']
    subprocess.run(command, env=environment(PYTHONPATH=str(CHECKOUT)), cwd=tmp_path, check=True)
    assert (tmp_path / "told").read_text() == "True"


def test_a_command_leaves_no_folder_of_its_libraries(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MAKING_A_FOLDER]
    done = subprocess.run(command, capture_output=True, check=True, cwd=CHECKOUT, env=environment(TMPDIR=str(tmp_path)))
    assert done.stdout.decode().startswith(f"{tmp_path}/pymp-")
    assert list(tmp_path.iterdir()) == []
