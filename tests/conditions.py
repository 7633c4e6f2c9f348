"""The fast tests under conditions that no one has tuned them for: other processors, few cores, places, users.

``make test-anywhere`` runs all of them, and ends with a table of what failed; ``python -m tests.conditions --only "four
threads" tests/storage`` runs some under some.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

from rich.console import Console
from rich.table import Table

CHECKOUT = Path(__file__).parents[1]
NOBODY = 65534


@dataclass(frozen=True)
class Condition:
    """What differs from an ordinary run."""

    variables: dict[str, str] = field(default_factory=dict)
    cores: int | None = None
    """How many cores the tests may use."""
    copy: str = ""
    """The name of a folder with a copy of the checkout, in which the tests run."""
    user: int | None = None


OLDER = {"OPENBLAS_CORETYPE": "Haswell", "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
ELSEWHERE = {"TMPDIR": "/dev/shm", "LC_ALL": "C", "TZ": "Asia/Kathmandu"}

CONDITIONS = {
    "BLAS of an older processor, Numba for any processor, MKL without AVX, one thread": Condition(
        OLDER | {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    ),
    "one core, TMPDIR in memory, another locale and time zone, a path with spaces": Condition(
        ELSEWHERE, cores=1, copy="a path with spaces"
    ),
    "four threads": Condition({"OMP_NUM_THREADS": "4", "NUMBA_NUM_THREADS": "4"}),
    "an unprivileged user": Condition(copy="copy", user=NOBODY),
}
"""Conditions that do not contradict one another are tried in one run."""


@dataclass(frozen=True)
class Outcome:
    """What pytest counted, and the names of the tests that failed."""

    passed: int
    failed: Sequence[str]


def run_tests(condition: Condition, tests: Sequence[str], marks: str = "not slow", workers: str = "0") -> Outcome:
    """Run tests under a condition.

    Raises
    ------
    OSError
        If this machine has no such condition, such as another user who can read the interpreter.
    """
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=condition.variables.get("TMPDIR"))))
        place = copy_checkout(scratch / condition.copy) if condition.copy else CHECKOUT
        report = scratch / "report.xml"
        if condition.user is not None:
            for path in (scratch, *scratch.rglob("*")):
                os.chown(path, condition.user, condition.user, follow_symlinks=False)
            scratch.chmod(0o700)
        taskset = ["taskset", "--cpu-list", f"0-{condition.cores - 1}"] if condition.cores else []
        pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", marks, f"--junitxml={report}"]
        pytest += ["--numprocesses", workers, "--dist", "loadfile" if workers != "0" else "no"]
        variables = os.environ | {"PYTHONPATH": str(place), "OMP_NUM_THREADS": "1"} | condition.variables
        if condition.user is not None:
            variables |= {"HOME": str(scratch), "TMPDIR": str(scratch)}
        subprocess.run(
            [*taskset, *pytest, *tests],
            cwd=place,
            env=variables,
            user=condition.user,
            group=condition.user,
            extra_groups=None if condition.user is None else [],
            check=False,
            stdout=sys.stderr,
        )
        return read_report(report)


def read_report(report: Path) -> Outcome:
    """What a JUnit report says."""
    cases = list(ET.parse(report).getroot().iter("testcase"))
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if any(case.find(kind) is not None for kind in ("failure", "error"))
    ]
    skipped = sum(case.find("skipped") is not None for case in cases)
    return Outcome(len(cases) - len(failed) - skipped, failed)


def copy_checkout(folder: Path) -> Path:
    """Copy all files that git knows, or would."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (CHECKOUT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, folder / name)
    return folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Run tests under all or some conditions, and print what failed; 1 if anything did."""
    parser = argparse.ArgumentParser(prog="python -m tests.conditions", description=__doc__.splitlines()[0])
    parser.add_argument("tests", nargs="*", default=["tests"], help="files, folders or names of tests; else all")
    parser.add_argument("--only", action="append", choices=CONDITIONS, help="one of the runs; may be repeated")
    parser.add_argument("--marks", default="not slow", help="which tests, as of pytest -m")
    parser.add_argument("--workers", default="auto", help="processes that run tests, as of pytest --numprocesses")
    given = parser.parse_args(arguments)
    table, failures = Table("condition", "passed", "failed", "which"), 0
    for name in given.only or CONDITIONS:
        try:
            outcome = run_tests(CONDITIONS[name], given.tests, given.marks, given.workers)
        except OSError as error:
            table.add_row(name, "", "", f"not here: {error.strerror or error}")
            continue
        failures += len(outcome.failed) + (not outcome.passed)
        table.add_row(name, str(outcome.passed), str(len(outcome.failed)), "\n".join(outcome.failed))
    Console().print(table)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
