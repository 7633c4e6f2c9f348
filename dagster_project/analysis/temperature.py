"""The step of temperatures: selections with the weights that the same logits have at other temperatures.

Holds means over sequences on a log grid of N, and how far the weights move when their logits do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dagster_project.analysis.cluster import limit_threads, run_in_parallel
from dagster_project.analysis.sources import Rows, Sources
from geometry import limits
from geometry.arrays import F64, I64
from geometry.grids import half_octave_grid
from geometry.statistics.intervals import DIFFERENCE, estimate_mean
from storage.warehouse.rows import build_batch, fill_columns, index_columns
from storage.zarr.layers import BLOCK_BYTES, list_attending_layers, read_layer, split_sequences

if TYPE_CHECKING:
    from storage.zarr.sequences import SequenceStore

GAINS = ("recall", "auc")  # Measures whose difference from T = 1 has an interval: a temperature is chosen by these


def compute_temperature(sources: Sources) -> Rows:
    """Selections at other temperatures: Precision, Recall, AUC, distance, and sensitivity.

    The layers of a query are computed in parallel. Sensitivity is computed for all sequences, the other quantities for
    the first few. A thread holds one sequence at a time.
    """
    tensors, layers = sources.tensors, list_attending_layers(sources.tensors)
    first_keys = tensors.read("first_key", slice(None))
    for index, position in enumerate(sources.queries):
        tasks = [_Task.of(sources, index, layer, first_keys[:, index, layer]) for layer in layers]
        computed = run_in_parallel(
            (partial(_compute_layer, task) for task in tasks),
            reads=(tensors.path,),
            threads=limit_threads(position + 1),
        )
        for task, results in zip(tasks, computed, strict=True):
            yield from _build_rows(task, results)


@dataclass(frozen=True)
class _Task:
    """What a task computes."""

    tensors: "SequenceStore"
    query: int  # Index along the axis `query`
    position: int
    layer: int
    first_keys: NDArray[np.int32]  # Position of the first key, (sequence,)
    temperatures: tuple[float, ...]
    whole: int  # Sequences of which there are selections, not sensitivity alone
    grid: I64  # N, (grid,); empty for one key

    @classmethod
    def of(cls, sources: Sources, query: int, layer: int, first_keys: NDArray[np.int32]) -> "_Task":
        """One layer of one query."""
        position, analysis, first = sources.queries[query], sources.study.analysis, int(first_keys.min())
        grid = half_octave_grid(position + 1 - first) if position > first else np.empty(0, np.int64)
        whole = analysis.temperature_sequences
        return cls(sources.tensors, query, position, layer, first_keys, analysis.temperatures, whole, grid)


Result = tuple[F64, F64 | None]
"""Of a sequence spectral norms, (head, T), and selections, (quantity, head, T, N), NaN where N is not below keys."""


def _compute_layer(task: _Task) -> list[Result]:
    """The task: the results of every sequence; ``BLOCK_BYTES`` of its tensors are in memory."""
    sequences, size, keys = task.tensors.sizes["sequence"], task.tensors.layers[task.layer], slice(task.position + 1)
    results = []
    for block in split_sequences(sequences, 4 * keys.stop * (size.heads + size.kv_heads * size.head_dim), BLOCK_BYTES):
        where: dict[str, int | slice] = {"sequence": block, "query": task.query}
        learned = read_layer(task.tensors, "learned_sink", task.layer, **where)
        weights = read_layer(task.tensors, "attention", task.layer, **where, key=keys)
        measured = slice(block.start, max(block.start, min(block.stop, task.whole)))
        values = read_layer(task.tensors, "values", task.layer, sequence=measured, key=keys)
        for at in range(block.stop - block.start):
            seen = slice(int(task.first_keys[block.start + at]), keys.stop)
            states = values[at, :, seen] if at < len(values) else None
            results.append(_compute_sequence(task, weights[at, :, seen], states, learned[at]))
    return results


def _compute_sequence(
    task: _Task, weights: NDArray[np.float32], values: NDArray[np.float32] | None, learned: NDArray[np.float32]
) -> Result:
    """The results of one sequence; without value states, (KV head, key, d), sensitivity alone.

    Weights are those of its keys, (head, key), and learned those of the learned sink, (head,).
    """
    norms = limits.sensitivity(weights, task.temperatures, learned)
    if values is None:
        return norms, None
    by_kv_head = (len(values), -1)
    by_temperature = limits.selection_by_temperature(
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


def _build_rows(task: _Task, results: Sequence[Result]) -> Rows:
    """The rows of one query of one layer."""
    for sequence, (norms, _) in enumerate(results):
        place = fill_columns(norms.size, sequence=sequence) | _build_place_columns(task, norms.shape)
        yield "sensitivity", build_batch(place | {"spectral_norm": norms.ravel()})
    if task.grid.size:
        selections = [of_sequence for _, of_sequence in results if of_sequence is not None]
        yield "temperature_means", build_batch(_build_selection_columns(task, selections))


def _build_selection_columns(task: _Task, parts: Sequence[F64]) -> dict[str, Any]:
    """Columns of ``temperature_means``; the differences from T = 1 are those of the same sequences."""
    names = (*limits.MEASURES, "distance", "random_distance")
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
