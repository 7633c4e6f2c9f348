"""Compilation: the process that compiles kernels and those that read them from the disk compute the same digits."""

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

COMPUTED = """
import hashlib
import numpy as np
from geometry import selection_profile
from geometry.assumptions.phase_kernels import find_best_edges, cosine_sums, descend, least_squares_by_frequency

rng = np.random.default_rng(0)
z, known, sums = rng.normal(size=100), 1.0 * (rng.random(100) > 0.1), np.zeros((3, 5, 40))
cosine_sums(z, known, 1.0, np.array([5, 10, 20, 50, 90]), sums)
first = np.where(np.tri(5, k=-1) > 0, 0, -1)
weights, values = rng.dirichlet(np.ones(64), size=3), rng.normal(size=(3, 64, 16))
found = {
    "cosine_sums": sums,
    "by_frequency": least_squares_by_frequency(sums, first, rng.random((6, 5)) + 1),
    "descend": descend(z, known, 1.0, 10, 60, rng.random(6) + 1, False, 0.1, 0.2),
    "best_edges": find_best_edges(z, known, 1.0, rng.random((5, 101)), 9.0, rng.random((3, 101)), 1, False, 0.1, 0.2),
    **vars(selection_profile(weights.astype(np.float32), values.astype(np.float32), kappas=(0.5, 5))),
}
for name, value in found.items():
    print(name, hashlib.sha256(np.asarray(value).tobytes()).hexdigest())
"""


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
def test_what_is_read_from_the_disk_computes_what_was_compiled(tmp_path: Path) -> None:
    variables = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", COMPUTED]
    compiled, read = (subprocess.check_output(command, env=variables, text=True).splitlines() for _ in range(2))
    assert list(tmp_path.rglob("*.nbc")) != []
    assert len(compiled) > 10
    assert compiled == read


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
