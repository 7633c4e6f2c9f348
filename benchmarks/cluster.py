"""Metrics and fits on a Dask cluster of two workers with one thread each, against two threads on the same data.

Holds the benchmark ``cluster``.
"""

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import dask

from benchmarks.fits import F64, WORKERS, draw
from benchmarks.measure import Benchmark, Result, alternate, compare
from benchmarks.metrics import make_again, write_tensors
from dagster_project.analysis.cluster import use_scheduler
from dagster_project.analysis.curves import fit_heads
from dagster_project.study.home import Home
from geometry.assumptions.phases import fit_phases

TARGET = 0.85
"""Speed of a cluster relative to the same number of threads, connecting included."""


def measure_cluster(
    *, sequences: int, layers: int, heads: int, context: int, fitted: int, positions: int, repeats: int
) -> list[Result]:
    """The metrics of some sequences, and four-phase fits of some heads, on a cluster that is already warm."""
    from distributed import LocalCluster

    sizes = {"sequence": sequences, "query": 1, "layer": layers, "head": heads, "kv_head": heads, "key": context}
    weights = draw(fitted, positions)
    with (
        TemporaryDirectory() as folder,
        patch("os.cpu_count", lambda: WORKERS),
        dask.config.set(num_workers=WORKERS),
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
    ):
        home, address = Home(Path(folder)), cluster.scheduler_address
        write_tensors(home, sizes | {"head_dim": 64}, [context - 1])
        seconds = alternate(
            *(partial(make_again, home, scheduler) for scheduler in (address, "threads")),
            *(partial(_fit, weights, scheduler) for scheduler in (address, "threads")),
            repeats=repeats,
        )
    there, here = f"on {WORKERS} workers of one thread each", f"on {WORKERS} threads"
    measured = {"sequences": sequences, "layers": layers, "heads": heads, "context": context}
    return [
        compare(
            "cluster.metrics",
            "speed",
            (f"metrics {there}, connecting included", seconds[:, 0]),
            (f"metrics {here}", seconds[:, 1]),
            sizes=measured,
            target=TARGET,
        ),
        compare(
            "cluster.fits",
            "speed",
            (f"four-phase fits {there}, connecting included", seconds[:, 2]),
            (f"four-phase fits {here}", seconds[:, 3]),
            sizes={"heads": fitted, "n": positions},
            target=TARGET,
        ),
    ]


def _fit(weights: F64, scheduler: str) -> None:
    with use_scheduler(scheduler):
        fit_heads(fit_phases, weights)


def _find_missing() -> str | None:
    return None if find_spec("distributed") else "distributed is not installed"


BENCHMARK = Benchmark(
    "cluster",
    full=partial(measure_cluster, sequences=8, layers=8, heads=12, context=1024, fitted=64, positions=1024, repeats=5),
    small=partial(measure_cluster, sequences=2, layers=1, heads=2, context=32, fitted=8, positions=64, repeats=2),
    missing=_find_missing,
)
