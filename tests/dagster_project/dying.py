"""Commands that end, as if killed, right before one of the changes they make to files: each in a fork of its own."""

import multiprocessing
import os
import sys
from pathlib import Path
from unittest import mock

from tests.dagster_project.forked import IMPORTED

KILLED, ALIVE = 9, 0
"""Exit codes of a command that was killed before its change, and of one that made fewer changes."""

CHANGES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.link", "os.symlink"}
"""Events of the interpreter that announce a change of a file."""


def die_at(change: int, command: list[object], folder: Path) -> int:
    """Run a command and kill it before its ``change``-th change of files in a folder, from 1; its exit code."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    with mock.patch.dict(os.environ, PYTHONPATH=str(Path(__file__).parents[2]), OMP_NUM_THREADS="1"):
        process = context.Process(target=_run, args=(change, [*map(str, command)], str(folder)))
        process.start()
    process.join(300)
    assert process.exitcode is not None
    return process.exitcode


def _run(change: int, command: list[str], folder: str) -> None:
    os.environ.pop("DAGSTER_HOME", None)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    left = change

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if (event in CHANGES or writes) and str(arguments[0]).startswith(folder):
            left -= 1
            if left == 0:
                os._exit(KILLED)

    sys.addaudithook(watch)
    from dagster_project.command.cli import main

    sys.argv = ["attention-geometry", *command]
    main()
