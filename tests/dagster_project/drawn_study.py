"""A small study of drawn tensors, at three queries, with a window that hides the sink in one layer."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore
from tests.dagster_project import making

SIZES = {"sequence": 5, "query": 3, "layer": 2, "head": 4, "kv_head": 2, "key": 40, "head_dim": 6}
QUERIES = (14, 35, 39)
FIRST = np.array([[0, 0], [0, 3], [0, 7]])
"""First key of each query in each layer: a window of 33 keys hides the sink from the later queries in layer 1."""
ANALYSIS = {"nulls": {"draws": 2}, "temperatures": (0.5, 1.0, 4.0), "temperature_sequences": 3}
GIVEN = {"model": "m", "corpus": "c", "context_length": 40, "sequences": 5, "queries": QUERIES}
STUDY = Study.model_validate(GIVEN | {"analysis": ANALYSIS})
NAME = "drawn"
PLACES = [(query, layer) for query in range(3) for layer in range(2)]
"""Index of every query and layer."""


def draw(rng: np.random.Generator, keys: int = 40, head_dim: int = 6) -> dict[str, np.ndarray]:
    """Tensors of one sequence: value states that share a direction with their neighbours, weights that grow."""
    shape = (2, 2, keys, head_dim)
    values = rng.standard_normal(shape).cumsum(axis=2) * 0.3 + rng.standard_normal(shape)
    values[0, 1, 0] = 0  # a sink without a direction
    queries = np.array([*QUERIES[:-1], keys - 1])
    noise = rng.spawn(1)[0].standard_normal((3, 2, 4, keys))
    noise[-1] = rng.standard_normal((2, 4, keys))
    logits = 4 / keys * np.arange(keys) + 0.2 * noise
    logits[..., 0] = 5
    position, first = np.arange(keys), FIRST[:, :, None, None]
    seen = (position >= first) & (position <= queries[:, None, None, None])
    weights = np.where(seen, np.exp(logits), 0)
    return {
        "attention": (weights / weights.sum(axis=-1, keepdims=True)).astype(np.float32),
        "values": values.astype(np.float32),
        "tokens": np.arange(keys, dtype=np.int32),
        "first_key": FIRST.astype(np.int32),
        "query_position": queries.astype(np.int32),
        "learned_sink": np.zeros(weights.shape[:-1], np.float32),
        "batch": np.array(1, np.int32),
    }


def write_tensors(home: Home, sequences: list[dict[str, np.ndarray]], specs: Any = TENSORS, **known: object) -> None:
    """Create a data root with the tensors of drawn sequences alone, of which that provenance is known."""
    home.prepare()
    provenance = {"study": NAME, "settings": {}, "inputs": {}, "versions": {"device": "cpu"}, **known}
    axes = {"attention": ("query", "layer", "head", "key"), "values": ("layer", "kv_head", "key", "head_dim")}
    sizes = {"sequence": len(sequences)}
    for name, of_array in axes.items():
        sizes |= dict(zip(of_array, sequences[0][name].shape, strict=True))
    store = SequenceStore.resume(home.tensors(NAME), specs, sizes, provenance)
    for index, sequence in enumerate(sequences):
        store.write(index, sequence)


def measured(root: Path, sequences: list[dict[str, np.ndarray]]) -> Home:
    """A data root with the tensors and metrics of drawn sequences."""
    home = Home(root)
    write_tensors(home, sequences)
    making.measure(home, NAME, STUDY)
    return home


def several(sequences: int = 5, keys: int = 40, head_dim: int = 6) -> list[dict[str, np.ndarray]]:
    """Drawn sequences, always the same."""
    rng = np.random.default_rng(7)
    return [draw(rng, keys, head_dim) for _ in range(sequences)]


def rows(home: Home, table: str) -> list[dict[str, Any]]:
    """The rows of a small table of the study."""
    return making.rows(home, NAME, table)


@cache
def read_tensor(home: Home, name: str) -> np.ndarray:
    """An array of the tensors, in float64."""
    return np.asarray(SequenceStore.open(home.tensors(NAME), TENSORS).array(name)[:], np.float64)


def read_keys(home: Home, sequence: int, query: int, layer: int, head: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights and value states of the keys that a query, given by its index, attends to."""
    keys = slice(FIRST[query, layer], QUERIES[query] + 1)
    weights, values = read_tensor(home, "attention"), read_tensor(home, "values")
    return weights[sequence, query, layer, head, keys], values[sequence, layer, head // 2, keys]
