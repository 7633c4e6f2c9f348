"""Fitting a curve of every head, layer by layer, with standard errors over sequences.

Holds the parts that the steps of Assumptions 2 and 3 share, and running means and deviations over sequences.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dagster_project.steps.cluster import run_in_parallel
from geometry.arrays import F64
from geometry.statistics.running import Mean, Spread, average_arrays
from storage.zarr.layers import list_attending_layers, read_layer

if TYPE_CHECKING:
    from storage.zarr.sequences import SequenceStore


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

    @property
    def sequences(self) -> int:
        """How many sequences are averaged."""
        return self.store.sizes["sequence"]

    def read_curves(self, sequence: int, layer: int) -> F64:
        """The curves of one layer of one sequence, (head, key)."""
        where = {} if self.query is None else {"query": self.query}
        curves = read_layer(self.store, self.name, layer, sequence=sequence, **where)[:, : self.stop].astype(np.float64)
        if self.first is not None:
            curves[:, : self.first[layer]] = np.nan
        return curves

    def read_model_curve(self, sequence: int) -> F64:
        """The mean over all heads of one sequence, (1, key)."""
        mean = Mean()
        for layer in list_attending_layers(self.store):
            mean.add(self.pad_curves(self.read_curves(sequence, layer)))
        return mean.mean_over_heads()

    def pad_curves(self, curves: F64) -> F64:
        """The curves of one layer, with rows of NaN for the heads that only other layers have."""
        lacking = self.store.sizes[self.store.specs[self.name].dims[-2]] - len(curves)
        return np.pad(curves, ((0, lacking), (0, 0)), constant_values=np.nan)


def compute_spreads(store: "SequenceStore", name: str, **where: int | slice) -> Iterator[tuple[F64, F64]]:
    """Mean and deviation over sequences of an array, (head, key) each, layer by layer.

    ``where`` is as for ``storage.zarr.layers.read_layer``; one layer of one sequence is in memory, with its statistics.
    """
    for layer in range(store.sizes["layer"]):
        spread = Spread()
        for sequence in range(store.sizes["sequence"]):
            spread.add(read_layer(store, name, layer, sequence=sequence, **where).astype(np.float64))
        yield spread.value(), spread.deviation()


def fit_curves(curves: Curves, what: str) -> Iterator[tuple[int | None, list[Any], F64]]:
    """Fit every head of every layer, then the mean over all heads.

    Yields
    ------
    layer, fits, errors
        Layer by layer, and None for the model: the fits of its heads, and their standard errors over sequences,
        (head, parameter), to first order; NaN for one sequence. In memory are the curves, their influences, and one
        sequence of one layer.
    """
    from tqdm import tqdm

    whole = Mean()
    for layer in tqdm(list_attending_layers(curves.store), desc=what, unit="layer", disable=None):
        mean = average_arrays(curves.read_curves(sequence, layer) for sequence in range(curves.sequences))
        whole.add(curves.pad_curves(mean))
        fits = fit_heads(curves.fit, mean)
        parts = (curves.read_curves(sequence, layer) for sequence in range(curves.sequences))
        yield layer, fits, _compute_standard_errors(curves, fits, mean, parts)
    mean = whole.mean_over_heads()
    fits = [curves.fit(mean[0])]
    parts = (curves.read_model_curve(sequence) for sequence in range(curves.sequences))
    yield None, fits, _compute_standard_errors(curves, fits, mean, parts)


HEADS_PER_TASK = 4
"""Heads fitted by one task."""


def fit_heads(fit: Callable[[F64], Any], curves: F64) -> list[Any]:
    """Fit every row of ``curves``, (head, key), through Dask, ``HEADS_PER_TASK`` to a task; results in order."""
    starts = range(0, len(curves), HEADS_PER_TASK)
    found = run_in_parallel(partial(_fit_all, fit, curves[start : start + HEADS_PER_TASK]) for start in starts)
    return [result for part in found for result in part]


def _fit_all(fit: Callable[[F64], Any], curves: F64) -> list[Any]:
    return [fit(curve) for curve in curves]


def _compute_standard_errors(curves: Curves, fits: Sequence[Any], mean: F64, parts: Iterable[F64]) -> F64:
    """Standard errors over sequences of the parameters of ``fits``, (head, parameter); the parts are the sequences'."""
    influences = np.array([curves.influence(fit) for fit in fits])
    squares = np.zeros(influences.shape[:2])
    for part in parts:
        moved = np.nan_to_num(curves.change(np.nan_to_num(part - mean), mean))
        squares += np.einsum("hpk,hk->hp", influences, moved) ** 2
    count = curves.sequences
    errors: F64 = np.sqrt(squares / (count * (count - 1))) if count > 1 else np.full(squares.shape, np.nan)
    return errors
