"""The last line that the tests print is their result, and their exit code is its."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

TESTS = """
import dagster_project.definitions  # whose classes outlive the interpreter, and report it

def test_good():
    pass

def test_bad():
    raise AssertionError
"""


@pytest.mark.slow
def test_nothing_follows_the_result(tmp_path: Path) -> None:
    (tmp_path / "test_both.py").write_text(TESTS, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, tmp_path / "test_both.py"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert re.match("1 failed, 1 passed in ", done.stdout.splitlines()[-1]), done.stdout
