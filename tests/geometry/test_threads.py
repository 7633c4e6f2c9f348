"""Results are the same, byte for byte, however many threads BLAS may use, and by kernels compiled or read.

And an installation compiles what a first run needs.
"""

import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from geometry.threads import one_blas_thread
from tests.blas import blas_threads, two_blas_threads

COMPUTE = """
import json
import pickle
from hashlib import sha256

import numpy as np
from threadpoolctl import threadpool_info

from geometry import concentration, output_parts, selection_counts, selection_profile
from geometry.assumptions.assumed import AssumedHead, draw_values, weight_profile
from geometry.assumptions.phases import fit_phases
from geometry.assumptions.values import DirectionMoments, cosines_with_one, estimate_variation, unit_vectors
from geometry.bounds.monte_carlo import compare_bounds, measure_parameter_effects
from geometry.limits import fit_exponents
from geometry.selection.metrics import average_metrics
from geometry.statistics.arrangements import associate
from geometry.statistics.intervals import estimate_mean
from tests.geometry.draws import random_head


def digest(*found):
    return sha256(pickle.dumps(found)).hexdigest()


rng, results = np.random.default_rng(0), {}
for n, d in ((65, 16), (301, 64), (1024, 128)):
    head = random_head(n, d, n)
    for function in (selection_profile, selection_counts, output_parts, concentration):
        results[f"{function.__name__} {n}"] = digest(function(*head))
    results[f"cosines_with_one {n}"] = digest(cosines_with_one(*unit_vectors(head[1]), 0))
    moments = DirectionMoments(d)
    moments.add(head[1])
    principal = moments.compute_directions()
    results[f"directions {n}"] = digest(principal, principal.project(head[1]))
for sequences, heads, n in ((20, 1, 12), (33, 3, 640), (8, 90, 128)):
    x, y = rng.exponential(size=(2, sequences, n))
    results[f"estimate_mean {sequences} {n}"] = digest(estimate_mean(x))
    results[f"fit_exponents {sequences} {n}"] = digest(fit_exponents(np.arange(1, n + 1), x))
    results[f"estimate_variation {sequences} {n}"] = digest(*estimate_variation(x))
    association = associate(x, y, np.arange(n) // 4, np.arange(n) // 2)
    results[f"associate {sequences} {n}"] = digest(association.of_sequences, association.p)
    size = np.arange(1, n)
    counts = [rng.integers(0, end + 1, (sequences, heads, n - 1)) for end in (size, n - size)]
    results[f"average_metrics {sequences} {heads} {n}"] = digest(average_metrics(*counts, n))
assumed = AssumedHead(
    lambda_sink=0.1, beta=0.3, rho_0=0.2, p_sink=0.3, eta=0.3, omega=0.3, eta_growth=0.01, t_1=20, t_2=60
)
results["fit_phases"] = digest(fit_phases(weight_profile(assumed, 300) * np.exp(0.1 * rng.standard_normal(300))))
results["draw_values"] = digest(draw_values(assumed, 300, 64, rng))
results["monte_carlo"] = digest(compare_bounds(assumed, 200, 64, draws=4, seed=0, sizes=[1, 4, 16, 64]))
results["parameter_effects"] = digest(
    measure_parameter_effects(assumed, 200, 64, 8, kappa=0.5, scale="unit", draws=4, seed=0)
)
print(json.dumps([[pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"], results]))
"""


def computed(threads: int, **variables: str) -> tuple[list[int], dict[str, str]]:
    """Threads of BLAS and digests of results in a process of its own.

    On x86 with the kernels of BLAS for AVX2, of which all such machines have these and which round edges otherwise.
    """
    kernel = {"OPENBLAS_CORETYPE": "Haswell"} if platform.machine() == "x86_64" else {}
    set_here = {key: value for key, value in os.environ.items() if not key.endswith("_NUM_THREADS")}
    run = subprocess.run(
        [sys.executable, "-c", COMPUTE],
        env=set_here | kernel | variables | {"OMP_NUM_THREADS": str(threads)},
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert run.returncode == 0, run.stderr
    found, results = json.loads(run.stdout)
    return found, results


@pytest.mark.slow
def test_statistics_do_not_depend_on_the_number_of_threads() -> None:
    (one, expected), (two, results) = (computed(threads) for threads in (1, 2))
    assert set(one) == {1}
    assert set(two) == {2}
    assert len(expected) > 20
    assert {name for name in expected if results[name] != expected[name]} == set()


@pytest.mark.long
def test_what_is_read_from_the_disk_computes_what_was_compiled(tmp_path: Path) -> None:
    compiled, read = (computed(1, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(2))
    assert list(tmp_path.rglob("*.nbc")) != []
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


@pytest.fixture
def two_threads() -> Iterator[None]:
    """BLAS may use two threads."""
    with two_blas_threads():
        yield


@pytest.mark.usefixtures("two_threads")
class TestLimit:
    def test_it_is_set_within_and_restored_after(self) -> None:
        with one_blas_thread:
            assert blas_threads() == {1}
            with one_blas_thread:
                assert blas_threads() == {1}
            assert blas_threads() == {1}
        assert blas_threads() == {2}
        with pytest.raises(KeyError), one_blas_thread:
            raise KeyError
        assert blas_threads() == {2}

    def test_it_lasts_until_the_last_thread_has_left(self) -> None:
        entered, left = Barrier(2, timeout=60), Barrier(2, timeout=60)

        def first() -> None:
            with one_blas_thread:
                entered.wait()
            left.wait()

        def second() -> set[int]:
            with one_blas_thread:
                entered.wait()
                left.wait()
                return blas_threads()

        with ThreadPoolExecutor(2) as pool:
            gone, stays = pool.submit(first), pool.submit(second)
            gone.result()
            assert stays.result() == {1}
        assert blas_threads() == {2}
