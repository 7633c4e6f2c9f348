"""The step of temperatures: selections with the weights that the same logits have at other temperatures.

Holds means over sequences on a log grid of N, how spread the weights are, and how far they move when their logits do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dagster_project.analysis.cluster import run_in_parallel
from dagster_project.analysis.metrics_store import compute_provenance_digest
from dagster_project.analysis.sources import Rows, Sources
from geometry.arrays import F64, I64
from geometry.grids import half_octave_grid
from geometry.statistics.intervals import DIFFERENCE
from geometry.statistics.moments import estimate_mean
from storage.files.places import Place
from storage.warehouse.rows import build_batch
from storage.zarr.arrays import TENSORS
from storage.zarr.layers import list_attending_layers, read_layer
from storage.zarr.sequences import SequenceStore

GAINS = ("recall", "auc")
"""Measures whose difference from T = 1 has an interval: a temperature is chosen by these."""


def compute_temperature(sources: Sources) -> Rows:
    """Selections at other temperatures: Precision, Recall, AUC, distance, spread of the weights, and sensitivity.

    One query of one layer is computed after the other, its sequences in parallel. Sensitivity is computed for all
    sequences, the other quantities for the first few. One sequence takes at most ``estimate_temperature_bytes``, and a
    thread computes one at a time.
    """
    from tqdm import tqdm

    tensors = sources.tensors
    places = [(query, layer) for query in range(len(sources.queries)) for layer in list_attending_layers(tensors)]
    for query, layer in tqdm(places, desc="temperatures", unit="layer", disable=None):
        first = read_layer(tensors, "first_key", layer, query=query)
        found = _Asked.of(sources, query, layer, int(first.min()))
        tasks = [
            partial(_compute_sequence, found, sequence, whole=sequence < sources.study.analysis.temperature_sequences)
            for sequence in range(first.size)
        ]
        yield from _build_rows(found, run_in_parallel(tasks))


def estimate_temperature_bytes(sizes: Mapping[str, int], heads: int, kv_heads: int, temperatures: int) -> int:
    """Upper bound of the memory that one layer of one query of one sequence takes, in bytes, results included.

    It is the sum of the weights and value states as they are stored, of their decoded copies, and of
    ``geometry.limits.tempered.estimate_scratch_bytes`` and ``geometry.limits.jacobian.estimate_scratch_bytes``.

    Parameters
    ----------
    sizes
        Sizes of the axes ``key`` and ``head_dim``.
    heads, kv_heads
        Query heads and KV heads of the layer.
    temperatures
        How many there are.
    """
    from geometry.limits import jacobian, tempered

    keys, head_dim = sizes["key"], sizes["head_dim"]
    read = 2 * 4 * keys * (heads + kv_heads * head_dim)
    selections = tempered.estimate_scratch_bytes(
        heads, keys, head_dim, half_octave_grid(max(2, keys)).size, temperatures
    )
    return read + selections + jacobian.estimate_scratch_bytes(heads, keys)


@dataclass(frozen=True)
class _Asked:
    """What a task computes; it opens the store by itself, so that nothing large is sent."""

    tensors: "_Store"
    query: int
    """Index along the axis ``query``."""
    position: int
    layer: int
    temperatures: tuple[float, ...]
    grid: I64
    """N, (grid,); empty for one key."""

    @classmethod
    def of(cls, sources: Sources, query: int, layer: int, first: int) -> "_Asked":
        """One layer of one query whose keys begin at position ``first`` or after it."""
        position = sources.queries[query]
        grid = half_octave_grid(position + 1 - first) if position > first else np.empty(0, np.int64)
        store, temperatures = sources.tensors, sources.study.analysis.temperatures
        return cls(_Store(store.path, compute_provenance_digest(store)), query, position, layer, temperatures, grid)


@dataclass(frozen=True)
class _Found:
    """The results of a task: those of one sequence."""

    norms: F64
    """Spectral norms, (head, temperature)."""
    selections: F64 | None
    """``SELECTIONS``, (quantity, head, temperature, grid), NaN where N is not below the keys; None if not computed."""
    spreads: F64 | None
    """``SPREADS`` and how many keys underflowed, (quantity, head, temperature)."""


@dataclass(frozen=True)
class _Store:
    """A store, and the digest of its provenance, which differs for a store that has replaced it."""

    place: Place
    made_of: str


@lru_cache(maxsize=2)
def _open_store(store: _Store) -> SequenceStore:
    """The store with this provenance, opened once in a process."""
    return SequenceStore.open(store.place, TENSORS).require_complete()


def _compute_sequence(asked: _Asked, sequence: int, *, whole: bool) -> _Found:
    """The task: one sequence, with its selections if ``whole``."""
    from geometry.limits.jacobian import sensitivity
    from geometry.limits.tempered import selection_by_temperature

    store, place = _open_store(asked.tensors), {"sequence": sequence, "query": asked.query}
    first = int(read_layer(store, "first_key", asked.layer, **place))
    keys = slice(first, asked.position + 1)
    weights = read_layer(store, "attention", asked.layer, **place, key=keys)
    learned = read_layer(store, "learned_sink", asked.layer, **place)
    norms = sensitivity(weights, asked.temperatures, learned)
    if not whole:
        return _Found(norms, None, None)
    values = read_layer(store, "values", asked.layer, sequence=sequence, key=keys)
    by_kv_head = (len(values), -1)
    found = selection_by_temperature(
        weights.reshape(*by_kv_head, weights.shape[-1]),
        values[:, None],
        asked.temperatures,
        asked.grid[asked.grid < weights.shape[-1]],
        learned_sink=learned.reshape(by_kv_head),
        sink=first == 0,
    )
    beyond = len(asked.grid) - len(found.n)
    lengths = np.stack([found.distance, found.random_distance], axis=-2)
    selections = np.concatenate([found.measures, lengths], axis=-2)  # (KV head, head, T, quantity, N)
    selections = np.pad(selections, [(0, 0)] * 4 + [(0, beyond)], constant_values=np.nan)
    spreads = np.concatenate([found.spreads, found.underflowed[..., None]], axis=-1)
    heads = len(weights)
    return _Found(
        norms,
        np.moveaxis(selections.reshape(heads, *selections.shape[2:]), 2, 0),
        np.moveaxis(spreads.reshape(heads, *spreads.shape[2:]), 2, 0),
    )


def _build_rows(asked: _Asked, found: Sequence[_Found]) -> Rows:
    """The rows of one query of one layer."""
    for sequence, of_sequence in enumerate(found):
        yield "sensitivity", build_batch(_build_sensitivity_columns(asked, sequence, of_sequence.norms))
    selections = [of_sequence.selections for of_sequence in found if of_sequence.selections is not None]
    spreads = [of_sequence.spreads for of_sequence in found if of_sequence.spreads is not None]
    yield "temperature_concentration", build_batch(_build_spread_columns(asked, spreads))
    if asked.grid.size:
        yield "temperature_means", build_batch(_build_selection_columns(asked, selections))


def _build_sensitivity_columns(asked: _Asked, sequence: int, norms: F64) -> dict[str, Any]:
    """Columns of ``sensitivity`` of one sequence."""
    place = _build_place_columns(asked, norms.shape)
    return {"sequence": np.full(norms.size, sequence, np.int32)} | place | {"spectral_norm": norms.ravel()}


def _build_spread_columns(asked: _Asked, parts: Sequence[F64]) -> dict[str, Any]:
    """Columns of ``temperature_concentration``."""
    from geometry.limits.tempered import SPREADS

    means = estimate_mean([_mask_unknown(part) for part in parts]).value
    names = (*SPREADS, "underflowed")
    return _build_place_columns(asked, means.shape[1:]) | {
        "sequences": np.full(means[0].size, len(parts), np.int32),
        **{name: mean.ravel() for name, mean in zip(names, means, strict=True)},
    }


def _mask_unknown(spreads: F64) -> F64:
    """Replace numbers of keys that are −1, which stands for no such keys, by NaN."""
    return np.where(spreads < 0, np.nan, spreads)


def _build_selection_columns(asked: _Asked, parts: Sequence[F64]) -> dict[str, Any]:
    """Columns of ``temperature_means``; the differences from T = 1 are those of the same sequences."""
    from geometry.limits.tempered import MEASURES

    names = (*MEASURES, "distance", "random_distance")
    means = estimate_mean(parts).value  # (quantity, head, T, N)
    columns = dict(zip(names, means, strict=True))
    own = asked.temperatures.index(1.0) if 1.0 in asked.temperatures else None
    for name in GAINS:
        of_name = np.stack([part[names.index(name)] for part in parts])  # (sequence, head, T, N)
        gain = estimate_mean(
            np.full(of_name.shape, np.nan) if own is None else of_name - of_name[:, :, [own]], DIFFERENCE
        )
        columns |= {f"{name}_gain": gain.value, f"{name}_gain_low": gain.low, f"{name}_gain_high": gain.high}
    shape = means.shape[1:]
    return _build_place_columns(asked, shape) | {
        "n": np.broadcast_to(asked.grid.astype(np.int32), shape).ravel(),
        "sequences": np.full(means[0].size, len(parts), np.int32),
        **{name: column.ravel() for name, column in columns.items()},
    }


def _build_place_columns(asked: _Asked, shape: tuple[int, ...]) -> dict[str, NDArray[Any]]:
    """The columns that identify the rows of arrays (head, temperature, …)."""
    head, index = (axis.ravel() for axis in np.indices(shape)[:2])
    return {
        "query": np.full(head.size, asked.position, np.int32),
        "layer": np.full(head.size, asked.layer, np.int16),
        "head": head.astype(np.int16),
        "temperature": np.array(asked.temperatures)[index],
    }
