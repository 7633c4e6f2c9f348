"""The fast tests under conditions that no one has tuned them for: other processors, few cores, load, places, users.

``make test-anywhere`` runs all of them, under conditions that do not contradict one another together, and ends with a
table of what failed; ``python -m tests.conditions --only "one core" tests/storage`` runs some under one.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
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
    load: int = 0
    """Busy processes beside the tests."""
    copy: str = ""
    """The name of a folder with a copy of the checkout, in which the tests run."""
    user: int | None = None


CONDITIONS = {
    "BLAS of an older processor": Condition({"OPENBLAS_CORETYPE": "Haswell"}),
    "Numba for any processor": Condition({"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}),
    "MKL without AVX": Condition({"MKL_ENABLE_INSTRUCTIONS": "SSE4_2"}),
    "one core": Condition(cores=1),
    "one thread": Condition({"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}),
    "four threads": Condition({"OMP_NUM_THREADS": "4", "NUMBA_NUM_THREADS": "4"}),
    "a load of four": Condition(load=4),
    "TMPDIR in memory": Condition({"TMPDIR": "/dev/shm"}),
    "another locale and time zone": Condition({"LC_ALL": "C", "TZ": "Asia/Kathmandu"}),
    "a path with spaces": Condition(copy="a path with spaces"),
    "an unprivileged user": Condition(copy="copy", user=NOBODY),
}

TOGETHER = (
    ("BLAS of an older processor", "Numba for any processor", "MKL without AVX", "one thread"),
    ("one core", "TMPDIR in memory", "another locale and time zone", "a path with spaces"),
    ("four threads", "a load of four"),
    ("an unprivileged user",),
)
"""Conditions that are tried in one run; what fails there can be tried under each of them alone."""


def combine(names: Sequence[str]) -> Condition:
    """All of these conditions at once."""
    conditions = [CONDITIONS[name] for name in names]
    return Condition(
        {name: value for each in conditions for name, value in each.variables.items()},
        cores=next((each.cores for each in conditions if each.cores), None),
        load=sum(each.load for each in conditions),
        copy=next((each.copy for each in conditions if each.copy), ""),
        user=next((each.user for each in conditions if each.user), None),
    )


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
        stack.enter_context(busy(condition.load))
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


@contextmanager
def busy(number: int) -> Iterator[None]:
    """Keep so many processes busy inside the context."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run tests under all or some conditions, and print what failed; 1 if anything did."""
    parser = argparse.ArgumentParser(prog="python -m tests.conditions", description=__doc__.splitlines()[0])
    parser.add_argument("tests", nargs="*", default=["tests"], help="files, folders or names of tests; else all")
    some = parser.add_mutually_exclusive_group()
    some.add_argument("--only", action="append", choices=CONDITIONS, help="a condition; may be repeated")
    some.add_argument("--together", action="store_true", help="what does not contradict one another in one run")
    parser.add_argument("--marks", default="not slow", help="which tests, as of pytest -m")
    parser.add_argument("--workers", default="auto", help="processes that run tests, as of pytest --numprocesses")
    given = parser.parse_args(arguments)
    table, failures = Table("condition", "passed", "failed", "which"), 0
    runs = TOGETHER if given.together else [(name,) for name in given.only or CONDITIONS]
    for names in runs:
        name = ", ".join(names)
        try:
            outcome = run_tests(combine(names), given.tests, given.marks, given.workers)
        except OSError as error:
            table.add_row(name, "", "", f"not here: {error.strerror or error}")
            continue
        failures += len(outcome.failed) + (not outcome.passed)
        table.add_row(name, str(outcome.passed), str(len(outcome.failed)), "\n".join(outcome.failed))
    Console().print(table)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
