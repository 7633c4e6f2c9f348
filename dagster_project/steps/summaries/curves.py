"""Fitting a curve of every head, layer by layer, with standard errors over sequences.

Holds what the steps of Assumptions 2 and 3 share, and the running statistics of all that is averaged over sequences.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dagster_project.steps.cluster import in_parallel
from dagster_project.steps.summaries.sources import F64
from storage.zarr.layers import attending, of_layer

if TYPE_CHECKING:
    from storage.zarr.sequences import SequenceStore


@dataclass(frozen=True)
class Curves:
    """What is fitted head by head: one array of a store, its mean over sequences as a function of its last axis."""

    store: "SequenceStore"
    name: str
    """The array, (sequence, layer, head, key), or (sequence, query, layer, head, key)."""
    fit: Callable[[F64], Any]
    """From a curve, (key,), NaN where there is nothing, to a fit."""
    influence: Callable[[Any], F64]
    """From a fit to the derivatives of its parameters by every element of the curve, (parameter, key)."""
    change: Callable[[F64, F64], F64] = lambda deviation, _: deviation
    """From the deviation of one sequence, and the mean, to the change of what the influence is about."""
    query: int | None = None
    """Index of the query, for an array that has that axis."""
    first: NDArray[np.integer] | None = None
    """First element of every layer that is no NaN, (layer,), where a window hides some."""
    stop: int | None = None
    """How many elements the curves have, if fewer than the array."""

    @property
    def sequences(self) -> int:
        """How many sequences are averaged."""
        return self.store.sizes["sequence"]

    def of(self, sequence: int, layer: int) -> F64:
        """The curves of one layer of one sequence, (head, key)."""
        where = {} if self.query is None else {"query": self.query}
        curves = of_layer(self.store, self.name, layer, sequence=sequence, **where)[:, : self.stop].astype(np.float64)
        if self.first is not None:
            curves[:, : self.first[layer]] = np.nan
        return curves

    def of_model(self, sequence: int) -> F64:
        """The mean over all heads of one sequence, (1, key)."""
        mean = Mean()
        for layer in attending(self.store):
            mean.add(self.padded(self.of(sequence, layer)))
        return mean.over_heads()

    def padded(self, curves: F64) -> F64:
        """The curves of one layer, with rows of NaN for the heads that only other layers have."""
        lacking = self.store.sizes[self.store.specs[self.name].dims[-2]] - len(curves)
        return np.pad(curves, ((0, lacking), (0, 0)), constant_values=np.nan)


class Mean:
    """A running mean of arrays of one shape, element by element, without NaN."""

    def __init__(self) -> None:
        self._total: Any = 0.0
        self._known: Any = 0

    def add(self, part: F64) -> None:
        """Take in one array."""
        self._total = self._total + np.nan_to_num(part)
        self._known = self._known + ~np.isnan(part)

    def value(self) -> F64:
        """The mean; NaN where everything was."""
        return _ratio(self._total, self._known)

    def over_heads(self) -> F64:
        """The mean over the first axis as well, which keeps length 1."""
        return _ratio(self._total.sum(axis=0, keepdims=True), self._known.sum(axis=0, keepdims=True))


class Spread:
    """A running mean and standard deviation of arrays of one shape, element by element, without NaN.

    Welford's recurrence, so that a deviation small beside the mean loses no digits.
    """

    def __init__(self) -> None:
        self._mean: Any = 0.0
        self._squares: Any = 0.0
        self._known: Any = 0

    def add(self, part: F64) -> None:
        """Take in one array."""
        known = ~np.isnan(part)
        self._known = self._known + known
        before = np.where(known, part - self._mean, 0)
        self._mean = self._mean + before / np.maximum(self._known, 1)
        self._squares = self._squares + before * np.where(known, part - self._mean, 0)

    def value(self) -> F64:
        """The mean; NaN where everything was."""
        return np.where(self._known > 0, self._mean, np.nan)

    def deviation(self) -> F64:
        """The standard deviation, whose divisor is how many were no NaN; NaN where everything was."""
        return np.sqrt(_ratio(self._squares, self._known))


def spreads(store: "SequenceStore", name: str, **where: int | slice) -> Iterator[tuple[F64, F64]]:
    """Mean and deviation over sequences of an array, (head, key) each, layer by layer.

    ``where`` is as for ``storage.zarr.layers.of_layer``; in memory is one layer of one sequence, with its statistics.
    """
    for layer in range(store.sizes["layer"]):
        spread = Spread()
        for sequence in range(store.sizes["sequence"]):
            spread.add(of_layer(store, name, layer, sequence=sequence, **where).astype(np.float64))
        yield spread.value(), spread.deviation()


def _ratio(total: F64, known: NDArray[np.integer]) -> F64:
    ratio: F64 = np.divide(total, known, out=np.full(total.shape, np.nan), where=known > 0)
    return ratio


def fitted(curves: Curves, what: str) -> Iterator[tuple[int | None, list[Any], F64]]:
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
    for layer in tqdm(attending(curves.store), desc=what, unit="layer", disable=None):
        mean = mean_of(curves.of(sequence, layer) for sequence in range(curves.sequences))
        whole.add(curves.padded(mean))
        fits = fits_of_heads(curves.fit, mean)
        parts = (curves.of(sequence, layer) for sequence in range(curves.sequences))
        yield layer, fits, _standard_errors(curves, fits, mean, parts)
    mean = whole.over_heads()
    fits = [curves.fit(mean[0])]
    parts = (curves.of_model(sequence) for sequence in range(curves.sequences))
    yield None, fits, _standard_errors(curves, fits, mean, parts)


def mean_of(parts: Iterable[F64]) -> F64:
    """Mean of arrays of one shape, element by element, without NaN."""
    mean = Mean()
    for part in parts:
        mean.add(part)
    return mean.value()


HEADS_PER_TASK = 4
"""Heads fitted by one task."""


def fits_of_heads(fit: Callable[[F64], Any], curves: F64) -> list[Any]:
    """Fit every row of ``curves``, (head, key), through Dask, ``HEADS_PER_TASK`` to a task; results in order."""
    starts = range(0, len(curves), HEADS_PER_TASK)
    found = in_parallel(partial(_fit_all, fit, curves[start : start + HEADS_PER_TASK]) for start in starts)
    return [result for part in found for result in part]


def _fit_all(fit: Callable[[F64], Any], curves: F64) -> list[Any]:
    return [fit(curve) for curve in curves]


def _standard_errors(curves: Curves, fits: Sequence[Any], mean: F64, parts: Iterable[F64]) -> F64:
    """Standard errors over sequences of the parameters of ``fits``, (head, parameter); the parts are the sequences'."""
    influences = np.array([curves.influence(fit) for fit in fits])
    squares = np.zeros(influences.shape[:2])
    for part in parts:
        moved = np.nan_to_num(curves.change(np.nan_to_num(part - mean), mean))
        squares += np.einsum("hpk,hk->hp", influences, moved) ** 2
    count = curves.sequences
    errors: F64 = np.sqrt(squares / (count * (count - 1))) if count > 1 else np.full(squares.shape, np.nan)
    return errors
