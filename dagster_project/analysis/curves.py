"""Fitting a curve of every head and of the model, layer by layer, with what each sequence contributes to the fit.

Holds the parts that Assumptions 2 and 3 share.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dagster_project.analysis.cluster import limit_threads, run_in_parallel
from geometry.arrays import F64
from geometry.statistics.moments import Moments

HEADS_PER_TASK = 4
"""Heads fitted by one task."""


@dataclass(frozen=True)
class Curves:
    """What is fitted head by head: the mean over sequences of a quantity, as a function of its last axis."""

    layers: list[int]
    """Numbers of the layers that have heads."""
    read: Callable[[int], NDArray[np.floating]]
    """From the number of a layer to its curves, (sequence, head, key)."""
    fit: Callable[[F64], Any]
    """From a curve, (key,), NaN where it has no value, to a fit."""
    influence: Callable[[Any], F64]
    """From a fit to the derivatives of its parameters by every element of the curve, (parameter, key)."""
    change: Callable[[F64, F64], F64] = lambda deviation, _: deviation
    """From the deviation of one sequence, and the mean, to the change of the quantity that the influence is about."""
    first: NDArray[np.integer] | None = None
    """First element of every layer that is not NaN, (layer,), if a window hides some."""

    def read_curves(self, layer: int) -> F64:
        """The curves of one layer, (sequence, head, key)."""
        curves = self.read(layer).astype(np.float64)
        if self.first is not None:
            curves[..., : self.first[layer]] = np.nan
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


def fit_curves(curves: Curves) -> Iterator[LayerFits]:
    """Fit every head of every layer, then the mean over all heads.

    In memory are one layer of all sequences, the influences of its fits, and the model's curve of every sequence.
    """
    of_model: list[Moments] = []
    for layer in curves.layers:
        parts = curves.read_curves(layer)
        of_model = of_model or [Moments() for _ in parts]
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
