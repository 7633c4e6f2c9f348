"""Fitting a curve of every head and of the model, layer by layer, with what each sequence contributes to the fit.

Holds the parts that Assumptions 2 and 3 share.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dagster_project.analysis.cluster import limit_threads, run_in_parallel
from geometry.arrays import F64
from geometry.statistics.moments import Moments
from storage.zarr.layers import list_attending_layers, read_layer

if TYPE_CHECKING:
    from storage.zarr.sequences import SequenceStore

HEADS_PER_TASK = 4
"""Heads fitted by one task."""


@dataclass(frozen=True)
class Curves:
    """What is fitted head by head: one array of a store, its mean over sequences as a function of its last axis."""

    store: "SequenceStore"
    name: str
    """The array, (sequence, layer, head, key), or (sequence, query, layer, head, key)."""
    fit: Callable[[F64], Any]
    """From a curve, (key,), NaN where it has no value, to a fit."""
    influence: Callable[[Any], F64]
    """From a fit to the derivatives of its parameters by every element of the curve, (parameter, key)."""
    change: Callable[[F64, F64], F64] = lambda deviation, _: deviation
    """From the deviation of one sequence, and the mean, to the change of the quantity that the influence is about."""
    query: int | None = None
    """Index of the query, for an array that has that axis."""
    first: NDArray[np.integer] | None = None
    """First element of every layer that is not NaN, (layer,), if a window hides some."""
    stop: int | None = None
    """How many elements the curves have, if fewer than the array."""

    def read_curves(self, sequence: int, layer: int) -> F64:
        """The curves of one layer of one sequence, (head, key)."""
        where = {} if self.query is None else {"query": self.query}
        curves = read_layer(self.store, self.name, layer, sequence=sequence, **where)[:, : self.stop].astype(np.float64)
        if self.first is not None:
            curves[:, : self.first[layer]] = np.nan
        return curves


@dataclass(frozen=True)
class LayerFits:
    """The fits of one layer, or of the model."""

    layer: int | None
    """None for the model."""
    fits: list[Any]
    moves: F64
    """How far each sequence moves each parameter to first order, times S: its jackknife pseudo-value is the parameter
    plus this, (sequence, head, parameter)."""
    curves: F64
    """Of the model the curves of its sequences, (sequence, key); of a layer empty."""
    mean: F64
    """The curves that were fitted, (head, key)."""


def fit_curves(curves: Curves, what: str) -> Iterator[LayerFits]:
    """Fit every head of every layer, then the mean over all heads.

    In memory are one layer of all sequences, the influences of its fits, and the model's curve of every sequence.
    """
    from tqdm import tqdm

    sequences = range(curves.store.sizes["sequence"])
    of_model = [Moments() for _ in sequences]
    for layer in tqdm(list_attending_layers(curves.store), desc=what, unit="layer", disable=None):
        parts = np.stack([curves.read_curves(sequence, layer) for sequence in sequences])
        for over_heads, part in zip(of_model, parts, strict=True):
            over_heads.add(part)
        yield _fit_parts(curves, layer, parts, np.empty((len(parts), 0)))
    model = np.stack([over_heads.mean for over_heads in of_model])
    yield _fit_parts(curves, None, model[:, None], model)


def _fit_parts(curves: Curves, layer: int | None, parts: F64, model: F64) -> LayerFits:
    """Fit the means of the curves of all sequences, (sequence, head, key)."""
    moments = Moments()
    moments.add(parts)
    fits = fit_heads(curves.fit, moments.mean)
    influences = np.array([curves.influence(fit) for fit in fits])
    moved = np.nan_to_num(curves.change(np.nan_to_num(parts - moments.mean), moments.mean))
    return LayerFits(layer, fits, np.einsum("hpk,shk->shp", influences, moved), model, moments.mean)


def fit_heads(fit: Callable[[F64], Any], curves: F64) -> list[Any]:
    """Fit every row of ``curves``, (head, key), through Dask, ``HEADS_PER_TASK`` to a task; results in order."""
    starts = range(0, len(curves), HEADS_PER_TASK)
    tasks = (partial(_fit_all, fit, curves[start : start + HEADS_PER_TASK]) for start in starts)
    fits = run_in_parallel(tasks, threads=limit_threads(curves.shape[1]))
    return [result for part in fits for result in part]


def _fit_all(fit: Callable[[F64], Any], curves: F64) -> list[Any]:
    return [fit(curve) for curve in curves]
