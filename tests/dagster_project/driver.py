"""The command line as a user meets it: exit code, standard output, standard error; in this process or in its own."""

import contextlib
import io
import json
import logging
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import dagster as dg

from dagster_project.command.cli import main
from dagster_project.study.home import HOME_VARIABLE

PROGRAM = Path(sys.executable).with_name("attention-geometry")
CHECKOUT = Path(__file__).resolve().parents[2]
OURS = (HOME_VARIABLE, "DAGSTER_HOME", "COLUMNS")


@dataclass(frozen=True)
class Outcome:
    """What a command left on the terminal."""

    code: int
    output: bytes
    errors: str

    @property
    def text(self) -> str:
        return self.output.decode("utf-8")

    @property
    def complaint(self) -> str:
        """The one line a refused command ends with; the lines of an error of SQL."""
        assert self.code == 1, f"exit code {self.code}: {self.text}{self.errors}"
        assert "Traceback" not in self.errors, self.errors
        lines = self.errors.splitlines()
        said = [line for line in lines if line.startswith("attention-geometry: ")]
        assert len(said) == 1, f"not one complaint: {self.errors!r}"
        place = lines.index(said[0])
        quoting = re.search(r": (Parser|Binder|Catalog|Conversion) Error: |is not valid YAML: ", said[0])  # with lines
        assert quoting or place == len(lines) - 1, f"not one line of complaint: {self.errors!r}"
        known = (
            ": reading ",
            ": takes at most ",
            ": current: ",
            ": makes all ",
            " times as many forward passes",
            "the Hugging Face hub ",
        )
        assert all(any(part in line for part in known) for line in lines[:place]), (
            f"more than it was doing: {self.errors!r}"
        )
        return "\n".join(lines[place:]).removeprefix("attention-geometry: ")


def environment(**changes: str) -> dict[str, str]:
    """The environment without what a data root leaves in it."""
    return {name: value for name, value in os.environ.items() if name not in OURS} | changes


def attention_geometry(
    *arguments: object, home: Path | None = None, stdin: str = "", cwd: Path | None = None, **variables: str
) -> Outcome:
    """Run the command line in this process, through the function the console script calls."""
    output, errors = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True), io.StringIO()
    argv = ["attention-geometry", *map(str, arguments), *([] if home is None else ["--home", str(home)])]
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, environment(**variables), clear=True))
        stack.enter_context(mock.patch.object(sys, "argv", argv))
        stack.enter_context(mock.patch.object(sys, "stdin", io.StringIO(stdin)))
        stack.enter_context(contextlib.redirect_stdout(output))
        stack.enter_context(contextlib.redirect_stderr(errors))
        stack.enter_context(contextlib.chdir(cwd or Path.cwd()))
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(_own_logging())
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return Outcome(code, output.buffer.getvalue(), errors.getvalue())


APART = """
import json, sys
from dagster_project.command.cli import main

sys.argv[0], code = "attention-geometry", 0
try:
    main()
except SystemExit as end:
    code = end.code or 0
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""


def run_apart(*arguments: object) -> tuple[Outcome, set[str]]:
    """Run the command line in a process of its own, and say which modules it has loaded when it has ended."""
    command = [sys.executable, "-c", APART, *map(str, arguments)]
    done = subprocess.run(command, env=environment(), capture_output=True, check=True, timeout=300)
    *errors, told = done.stderr.decode().splitlines()
    code, modules = json.loads(told)
    return Outcome(code, done.stdout, "\n".join(errors)), set(modules)


@contextlib.contextmanager
def _own_logging() -> Iterator[None]:
    """No handlers, so that the program sets logging up as it does in a process of its own."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def files(root: Path) -> dict[str, bytes]:
    """Everything a user would find in a data root, with its content; locks and Dagster's records are no result."""
    found = {}
    for path in sorted(root.rglob("*")) if root.is_dir() else []:
        name = path.relative_to(root).as_posix()
        if not name.startswith(("dagster", "locks")) and not name.endswith(".lock"):
            found[name] = path.read_bytes() if path.is_file() else b""
    return found


@contextlib.contextmanager
def instance_of(home: Path) -> Iterator[dg.DagsterInstance]:
    """Dagster's records of a data root, as its web UI reads them."""
    place = mock.patch.dict(os.environ, environment(DAGSTER_HOME=str(home / "dagster")), clear=True)
    with place, dg.DagsterInstance.get() as instance:
        yield instance
