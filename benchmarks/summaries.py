"""The small tables and the claims of a made-up model, against reading what they are computed from.

Holds the benchmarks ``summaries`` (every step that only averages, in times of reading its arrays from the stores, one
sequence after the other), ``summaries.claims`` (all measures and claims, in times of their limit) and
``summaries.landing`` (the same in times of landing the study). All are seconds of processors, over all threads.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import duckdb
import numpy as np

from benchmarks.measure import Benchmark, Result, compare
from benchmarks.metrics import NAME, SHAPE, SMALL, write_tensors
from dagster_project.analysis.claims.judging import compute_claims
from dagster_project.assets.asset import Work
from dagster_project.assets.catalogue import ASSETS, find_asset
from dagster_project.assets.landing import land_study
from dagster_project.assets.metrics import make_metrics
from dagster_project.assets.summaries import SUMMARIES
from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from extract.settings import SYNTHETIC
from storage.warehouse.landing import Landing
from storage.zarr.sequences import SequenceStore

AVERAGES = ("assumption_norms", "attention_by_position", "selection_means", "sink_effect", "coverage", "contributions")
"""The steps that only average what is stored."""

TARGET = 1.5
"""Most times of reading its input that a step should take that only averages."""

LIMIT = 2.0
"""Most seconds that all measures and claims should take."""

Read = tuple[SequenceStore, list[str]]


def measure_summaries(
    *, sequences: int, layers: int, heads: int, kv_heads: int, head_dim: int, queries: Sequence[int], repeats: int
) -> list[Result]:
    """Each step in turn with reading the arrays that it reads; then landing, and the claims of what is landed."""
    sizes = {"sequence": sequences, "query": len(queries), "layer": layers, "head": heads, "kv_head": kv_heads}
    sizes |= {"key": queries[-1] + 1, "head_dim": head_dim}
    with TemporaryDirectory() as folder:
        home = Home(Path(folder))
        home.prepare()
        write_tensors(home, sizes, queries)
        work = Work(home, NAME, describe_study(sizes, queries), ASSETS)
        make_metrics(work)
        results = [_measure_step(work, name, sizes, repeats) for name in AVERAGES]
        for asset in SUMMARIES:
            asset.make(work)
        return [*results, *_measure_claims(work, sizes, repeats)]


def describe_study(sizes: Mapping[str, int], queries: Sequence[int]) -> Study:
    """The settings of the artificial study."""
    shape = {"layers": "layer", "heads": "head", "kv_heads": "kv_head", "head_dim": "head_dim"}
    return Study.model_validate(
        {
            "model": SYNTHETIC,
            "synthetic": {name: sizes[axis] for name, axis in shape.items()},
            "context_length": sizes["key"],
            "sequences": sizes["sequence"],
            "queries": list(queries),
        }
    )


def _measure_step(work: Work, name: str, sizes: Mapping[str, int], repeats: int) -> Result:
    """One step, made anew, and reading its arrays; both from open stores, which the steps of a study share."""
    read = _find_reads(_open_anew(work), name)  # compiles what is compiled, too
    seconds = np.empty((repeats, 2))
    for row in seconds:
        fresh, stores = _open_anew(work), _open_stores(read)
        row[0] = _time(partial(find_asset(name).make, fresh))
        row[1] = _time(partial(_read_all, stores))
    arrays = ", ".join(sorted({array for _, arrays in read for array in arrays}))
    return compare(
        f"summaries.{name}",
        "cost",
        (f"the step {name}", seconds[:, 0]),
        (f"reading its arrays, one sequence after the other: {arrays}", seconds[:, 1]),
        sizes=sizes,
        target=TARGET,
    )


def _find_reads(work: Work, name: str) -> list[Read]:
    """Make a step, and find which arrays of which stores it reads."""
    reads: dict[str, Read] = {}
    read = SequenceStore.read

    def follow(store: SequenceStore, array: str, *index: Any, **how: Any) -> Any:
        arrays = reads.setdefault(str(store.path), (store, []))[1]
        arrays += [] if array in arrays else [array]
        return read(store, array, *index, **how)

    with patch.object(SequenceStore, "read", follow):
        find_asset(name).make(work)
    return list(reads.values())


def _open_anew(work: Work) -> Work:
    """The study with its stores opened anew, because an open store keeps what it reads."""
    anew = replace(work, force=True)
    assert anew.sources.queries
    return anew


def _open_stores(read: Sequence[Read]) -> list[Read]:
    """The stores opened anew, with the names of their arrays."""
    return [
        (SequenceStore.open(store.path, list(store.specs.values())).require_complete(), arrays)
        for store, arrays in read
    ]


def _read_all(read: Sequence[Read]) -> None:
    """Read arrays whole, a sequence at a time."""
    for store, arrays in read:
        for array in arrays:
            for sequence in range(store.sizes["sequence"]):
                store.read(array, sequence)


def _measure_claims(work: Work, sizes: Mapping[str, int], repeats: int) -> list[Result]:
    """All measures and claims of what is landed, against their limit and against landing."""
    landed: list[Landing] = []
    seconds = np.empty((repeats, 2))
    for row in seconds:
        row[1] = _time(lambda: landed.append(land_study(work)))
        with closing(duckdb.connect(str(landed[-1].path), read_only=True)) as connection:
            row[0] = _time(lambda connection=connection: list(compute_claims(connection, None)))
    ours, limit = ("all measures and claims", seconds[:, 0]), (f"{LIMIT:g} s", np.full(repeats, LIMIT))
    landing = ("landing the study, claims included", seconds[:, 1])
    return [
        compare("summaries.claims", "cost", ours, limit, sizes=sizes, target=1.0),
        compare("summaries.landing", "cost", ours, landing, sizes=sizes),
    ]


def _time(do: Any) -> float:
    """Seconds of processors that a function takes, however busy the machine is."""
    started = time.process_time()
    do()
    return time.process_time() - started


BENCHMARK = Benchmark(
    "summaries",
    full=partial(measure_summaries, sequences=8, **SHAPE, repeats=3),
    small=partial(measure_summaries, sequences=2, **SMALL, repeats=1),
)
