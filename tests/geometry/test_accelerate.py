"""Compilation of kernels: which get wide vectors, and that an installation compiles what a first run needs."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

from geometry.accelerate import widen_vectors


def test_only_kernels_that_ask_for_wide_vectors_get_them() -> None:
    def add_widely(numbers: np.ndarray) -> None:
        widen_vectors()
        for k in range(numbers.size):
            numbers[k] += 1

    def add(numbers: np.ndarray) -> None:
        for k in range(numbers.size):
            numbers[k] += 1

    for function, is_wide in ((add_widely, True), (add, False)):
        kernel = numba.njit(function)
        kernel(numbers := np.zeros(40))
        assert (numbers == 1).all()
        assert ('"prefer-vector-width"="512"' in "".join(kernel.inspect_llvm().values())) == is_wide


@pytest.mark.long
def test_a_first_run_compiles_nothing_after_the_installation(tmp_path: Path) -> None:
    """Whatever `make` runs to compile the kernels leaves none to the embedded study and its twin."""
    makefile = Path(__file__).parents[2].joinpath("Makefile").read_text()
    (smallest,) = re.findall(r"^KERNELS := (.*)$", makefile, re.MULTILINE)
    compiled = tmp_path / "compiled"
    variables = {**os.environ, "NUMBA_CACHE_DIR": str(compiled), "ATTENTION_GEOMETRY_HOME": str(tmp_path / "data")}
    command = [sys.executable, "-m", "dagster_project.command.program", "--quiet"]
    subprocess.run([*command, *shlex.split(smallest)], env=variables, check=True, capture_output=True)
    before = {path.name for path in compiled.rglob("*.nbc")}
    assert len(before) > 50
    subprocess.run([*command, "run", "embedded"], env=variables, check=True, capture_output=True)
    assert {path.name for path in compiled.rglob("*.nbc")} == before
