"""The asset ``selection_metrics`` of a made-up model, against the bare matrix products of all its heads.

Holds the benchmark ``metrics``: processor seconds of both on one core.
"""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dask.config
import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.heads import F32, draw_layer
from benchmarks.measure import Benchmark, Result, compare, make_product
from dagster_project.assets.asset import Work
from dagster_project.assets.catalogue import ASSETS
from dagster_project.assets.metrics import make_metrics
from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from extract.settings import SYNTHETIC
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore

NAME = "metrics"

SHAPE: dict[str, Any] = {"layers": 30, "heads": 9, "kv_heads": 3, "head_dim": 64, "queries": (127, 255, 511, 1023)}
"""That of SmolLM2, and the queries of a study."""

SMALL: dict[str, Any] = {"layers": 2, "heads": 2, "kv_heads": 1, "head_dim": 8, "queries": (15, 31)}


def measure_asset(
    *, sequences: int, layers: int, heads: int, kv_heads: int, head_dim: int, queries: Sequence[int], repeats: int
) -> list[Result]:
    """The asset from its tensor store to its metrics store, in turn with one product n x d x n for every head."""
    sizes = {"sequence": sequences, "query": len(queries), "layer": layers, "head": heads, "kv_head": kv_heads}
    sizes |= {"key": queries[-1] + 1, "head_dim": head_dim}
    seconds = np.empty((repeats, 2))
    with TemporaryDirectory() as folder, dask.config.set(num_workers=1):
        home = Home(Path(folder))
        states = write_tensors(home, sizes, queries)
        make_again(home)  # compiles the kernels
        for row in seconds:
            started = time.process_time()
            make_again(home)
            row[0] = time.process_time() - started
            row[1] = multiply_heads(states, queries, sequences * layers * heads)
    asset = f"selection_metrics of {sequences} sequences, {layers} layers of {heads} heads, on one core"
    ours = (f"processor seconds of {asset}", seconds[:, 0])
    products = ("those of a float32 matrix product n x d x n for every query of every head", seconds[:, 1])
    return [compare("metrics.products", "cost", ours, products, sizes=sizes, target=6.0)]


def write_tensors(home: Home, sizes: Mapping[str, int], queries: Sequence[int]) -> F32:
    """Write the tensor store of an artificial study; returns the value states of one head."""
    settings = {"model": {"id": SYNTHETIC}, "corpus": {"id": SYNTHETIC}, "dtype": "float32"}
    provenance = {"study": NAME, "settings": settings, "inputs": {"model": {}}, "versions": {"device": "cpu"}}
    store = SequenceStore.resume(home.tensors(NAME), TENSORS, sizes, provenance)
    shape = {"heads": sizes["head"], "kv_heads": sizes["kv_head"], "n": sizes["key"], "head_dim": sizes["head_dim"]}
    for sequence in range(sizes["sequence"]):
        rng = np.random.default_rng(sequence)
        weights, values = map(np.stack, zip(*(draw_layer(rng, **shape) for _ in range(sizes["layer"])), strict=True))
        attention = np.stack([np.where(np.arange(sizes["key"]) <= query, weights, 0) for query in queries])
        tensors = {
            "attention": attention / attention.sum(axis=-1, keepdims=True),
            "values": values,
            "tokens": np.arange(sizes["key"], dtype=np.int32),
            "first_key": np.zeros(attention.shape[:2], np.int32),
            "query_position": np.array(queries, np.int32),
            "learned_sink": np.zeros(attention.shape[:-1], np.float32),
            "batch": np.array(1, np.int32),
        }
        store.write(sequence, tensors)
    return np.asarray(values[0, 0])


def make_again(home: Home) -> None:
    """Remove the metrics of the study of ``write_tensors``, and compute them."""
    home.metrics(NAME).remove()
    study = Study.model_validate({"model": "made-up", "corpus": "made-up", "context_length": 2, "sequences": 1})
    make_metrics(Work(home, NAME, study, ASSETS))


def multiply_heads(states: F32, queries: Sequence[int], heads: int) -> float:
    """Processor seconds of the bare products of all heads, by one BLAS thread."""
    products = [make_product(states[: query + 1]) for query in queries]
    with threadpool_limits(1):
        started = time.process_time()
        for _ in range(heads):
            for product in products:
                product()
        return time.process_time() - started


BENCHMARK = Benchmark(
    "metrics",
    full=partial(measure_asset, sequences=4, **SHAPE, repeats=3),
    small=partial(measure_asset, sequences=2, **SMALL, repeats=1),
)
