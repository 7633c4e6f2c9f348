"""The step of temperatures: selections with the weights that the same logits have at other temperatures.

Holds means over sequences on a log grid of N, and how far the weights move when their logits do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dagster_project.analysis.cluster import limit_threads, run_in_parallel
from dagster_project.analysis.sources import Rows, Sources
from geometry.arrays import F64, I64
from geometry.grids import half_octave_grid
from geometry.limits import jacobian, tempered
from geometry.statistics.intervals import DIFFERENCE
from geometry.statistics.moments import estimate_mean
from storage.warehouse.rows import build_batch, fill_columns, index_columns
from storage.zarr.layers import list_attending_layers, read_layer
from storage.zarr.sequences import SequenceStore

GAINS = ("recall", "auc")
"""Measures whose difference from T = 1 has an interval: a temperature is chosen by these."""


def compute_temperature(sources: Sources) -> Rows:
    """Selections at other temperatures: Precision, Recall, AUC, distance, and sensitivity.

    One query of one layer is computed after the other, its sequences in parallel. Sensitivity is computed for all
    sequences, the other quantities for the first few. A thread has one sequence in memory at a time.
    """
    tensors, whole = sources.tensors, sources.study.analysis.temperature_sequences
    places = [(query, layer) for query in range(len(sources.queries)) for layer in list_attending_layers(tensors)]
    for query, layer in places:
        first, sinks = (read_layer(tensors, name, layer, query=query) for name in ("first_key", "learned_sink"))
        task = _Task.of(sources, query, layer, int(first.min()))
        tasks = [
            partial(_compute_sequence, task, sequence, int(first[sequence]), sinks[sequence], whole=sequence < whole)
            for sequence in range(first.size)
        ]
        yield from _build_rows(task, run_in_parallel(tasks, threads=limit_threads(task.position + 1)))


@dataclass(frozen=True)
class _Task:
    """What a task computes."""

    tensors: SequenceStore
    query: int
    """Index along the axis ``query``."""
    position: int
    layer: int
    temperatures: tuple[float, ...]
    grid: I64
    """N, (grid,); empty for one key."""

    @classmethod
    def of(cls, sources: Sources, query: int, layer: int, first: int) -> "_Task":
        """One layer of one query whose keys begin at position ``first`` or after it."""
        position = sources.queries[query]
        grid = half_octave_grid(position + 1 - first) if position > first else np.empty(0, np.int64)
        return cls(sources.tensors, query, position, layer, sources.study.analysis.temperatures, grid)


def _compute_sequence(
    task: _Task, sequence: int, first: int, learned: NDArray[np.float32], *, whole: bool
) -> tuple[F64, F64 | None]:
    """The task: spectral norms (head, T) of one sequence, and its selections if ``whole``, (quantity, head, T, N).

    Selections are NaN where N is not below the number of keys; ``first`` is the first key, ``learned`` the weight of
    the learned sink, (head,).
    """
    store, keys = task.tensors, slice(first, task.position + 1)
    weights = read_layer(store, "attention", task.layer, sequence=sequence, query=task.query, key=keys)
    norms = jacobian.sensitivity(weights, task.temperatures, learned)
    if not whole:
        return norms, None
    values = read_layer(store, "values", task.layer, sequence=sequence, key=keys)
    by_kv_head = (len(values), -1)
    by_temperature = tempered.selection_by_temperature(
        weights.reshape(*by_kv_head, weights.shape[-1]),
        values[:, None],
        task.temperatures,
        task.grid[task.grid < weights.shape[-1]],
        learned_sink=learned.reshape(by_kv_head) if learned.any() else None,
    )
    beyond = len(task.grid) - len(by_temperature.n)
    lengths = np.stack([by_temperature.distance, by_temperature.random_distance], axis=-2)
    selections = np.concatenate([by_temperature.measures, lengths], axis=-2)  # (KV head, head, T, quantity, N)
    selections = np.pad(selections, [(0, 0)] * 4 + [(0, beyond)], constant_values=np.nan)
    return norms, np.moveaxis(selections.reshape(len(weights), *selections.shape[2:]), 2, 0)


def _build_rows(task: _Task, results: Sequence[tuple[F64, F64 | None]]) -> Rows:
    """The rows of one query of one layer."""
    for sequence, (norms, _) in enumerate(results):
        place = fill_columns(norms.size, sequence=sequence) | _build_place_columns(task, norms.shape)
        yield "sensitivity", build_batch(place | {"spectral_norm": norms.ravel()})
    if task.grid.size:
        selections = [of_sequence for _, of_sequence in results if of_sequence is not None]
        yield "temperature_means", build_batch(_build_selection_columns(task, selections))


def _build_selection_columns(task: _Task, parts: Sequence[F64]) -> dict[str, Any]:
    """Columns of ``temperature_means``; the differences from T = 1 are those of the same sequences."""
    names = (*tempered.MEASURES, "distance", "random_distance")
    means = estimate_mean(parts).value  # (quantity, head, T, N)
    columns = dict(zip(names, means, strict=True))
    own = task.temperatures.index(1.0) if 1.0 in task.temperatures else None
    for name in GAINS:
        of_name = np.stack([part[names.index(name)] for part in parts])  # (sequence, head, T, N)
        gain = estimate_mean(
            np.full(of_name.shape, np.nan) if own is None else of_name - of_name[:, :, [own]], DIFFERENCE
        )
        columns |= gain.name_ends(f"{name}_gain")
    shape = means.shape[1:]
    return _build_place_columns(task, shape) | {
        "n": np.broadcast_to(task.grid.astype(np.int32), shape).ravel(),
        **fill_columns(means[0].size, sequences=len(parts)),
        **{name: column.ravel() for name, column in columns.items()},
    }


def _build_place_columns(task: _Task, shape: tuple[int, ...]) -> dict[str, NDArray[Any]]:
    """The columns that identify the rows of arrays (head, temperature, …)."""
    axes = ("head", "temperature", "n")[: len(shape)]
    place = index_columns(shape, *axes, query=task.position, layer=task.layer)
    return place | {"temperature": np.array(task.temperatures)[place["temperature"]]}
