"""Duration of commands that have nothing to compute, compared with the import of DuckDB in a separate process."""

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import Benchmark, Result, alternate, compare

STUDY = ("--name", "small", "--model", "embedded", "--corpus", "embedded", "--sequences", "2", "--context-length", "32",
         "--no-twin", "--no-probe")  # fmt: skip
"""A small study of the embedded model, so that preparing the benchmark takes seconds."""

PROGRAM = ("-m", "dagster_project.command.program")
"""Arguments by which the same Python runs the console script."""

COMMANDS = {
    "sql": ("sql", "SELECT 1"),
    "studies": ("studies",),
    "help": ("--help",),
}


def measure_startup(name: str, study: Sequence[str], repeats: int) -> list[Result]:
    """One figure per command.

    Parameters
    ----------
    name
        The study that is run before the measurement, and then again with nothing to do.
    study
        The arguments that describe it.
    repeats
        Rounds.

    Raises
    ------
    subprocess.CalledProcessError
        If a command fails.
    """
    with TemporaryDirectory() as folder:
        call = partial(run_python, *PROGRAM, ATTENTION_GEOMETRY_HOME=folder)
        call("run", *study)
        commands = {"no-op run": ("run", name), **COMMANDS}
        contenders = [partial(call, *arguments) for arguments in commands.values()]
        seconds = alternate(*contenders, partial(run_python, "-c", "import duckdb"), repeats=repeats)
    bare = ("python -c 'import duckdb'", seconds[:, -1])
    return [
        compare(
            f"startup.{what.replace(' ', '_')}",
            "cost",
            (f"attention-geometry {' '.join(arguments)}", column),
            bare,
            sizes={},
        )
        for (what, arguments), column in zip(commands.items(), seconds.T, strict=False)
    ]


def run_python(*arguments: str, **variables: str) -> None:
    """Run Python in a separate process with these variables of the environment; its output is not shown."""
    root, command = Path(__file__).parents[1], [sys.executable, *arguments]
    subprocess.run(command, env={**os.environ, **variables}, cwd=root, check=True, capture_output=True)


BENCHMARK = Benchmark(
    "startup",
    full=lambda: measure_startup("embedded", ("embedded",), repeats=7),
    small=lambda: measure_startup("small", STUDY, repeats=2),
)
