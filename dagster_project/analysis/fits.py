"""Assumptions 2 and 3: fits of similarity by distance and of weight by position, with intervals over sequences."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagster_project.analysis.cluster import limit_threads, run_in_parallel
from dagster_project.analysis.sources import Rows, Sources
from geometry.arrays import F64
from geometry.assumptions.decay import fit_decay
from geometry.statistics.intervals import DIFFERENCE, Moments, average_known, estimate_mean, leave_one_out
from storage.warehouse.rows import build_batch, fill_columns, index_columns
from storage.zarr.layers import find_present_heads, list_attending_layers, read_layer

SIMILARITY = ("beta", "beta_floor", "floor")  # Parameters of Assumption 2 with an interval

INFLUENCED = (*SIMILARITY, "mae", "gain")
"""These, the error of the fit and its gain over others, of which each sequence has a share."""

WEIGHTS = ("p_base", "eta", "eta_growth", "omega", "p_sink")  # Parameters of Assumption 3 with an interval
LOGARITHMIC = ("p_base", "p_sink")  # Parameters whose intervals are made of their logarithms
TEXTS = ("status", "status_floor", "variant", "preferred")  # Columns of fits that are strings
COUNTS = ("distances", "positions", "zero_positions", "t_1", "t_2")  # Columns of fits that are integers, or unknown
HEADS_PER_TASK = 4  # Heads fitted by one task


@dataclass(frozen=True)
class Curves:
    """What is fitted head by head: the mean over sequences of a quantity, as a function of its last axis."""

    layers: list[int]  # Numbers of the layers that have heads
    read: Callable[[int], NDArray[np.floating]]  # From the number of a layer to its curves, (sequence, head, key)
    fit: Callable[[F64], Any]  # From a curve, (key,), NaN where it has no value, to a fit
    influence: Callable[[Any], F64]
    """From a fit to the derivatives of its parameters by every element of the curve, (parameter, key)."""
    change: Callable[[F64, F64], F64] = lambda deviation, _: deviation
    """From the deviation of one sequence, and the mean, to the change of the quantity that the influence is about."""
    first: NDArray[np.integer] | None = None
    """First element of every layer that is not NaN, (layer,), if a window hides some."""


@dataclass(frozen=True)
class LayerFits:
    """The fits of one layer, or of the model."""

    layer: int | None  # None for the model
    fits: list[Any]
    moves: F64
    """How far each sequence moves each parameter to first order, times S: its jackknife pseudo-value is the parameter
    plus this, (sequence, head, parameter)."""
    curves: F64  # Of the model the curves of its sequences, (sequence, key); of a layer empty
    mean: F64  # The curves that were fitted, (head, key)


def fit_curves(curves: Curves) -> Iterator[LayerFits]:
    """Fit every head of every layer, then the mean over all heads.

    In memory are one layer of all sequences, the influences of its fits, and the model's curve of every sequence.
    """
    of_model: list[Moments] = []
    for layer in curves.layers:
        parts = curves.read(layer).astype(np.float64)
        if curves.first is not None:
            parts[..., : curves.first[layer]] = np.nan
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


def compute_assumption_similarity(sources: Sources) -> Rows:
    """Assumption 2: fits of the mean cosine against distance, for every KV head and for the whole model."""
    metrics, layers = sources.metrics, list_attending_layers(sources.tensors)
    curves = Curves(
        layers,
        partial(metrics.read, "mean_cosine"),
        fit_decay,
        lambda fit: np.array([getattr(fit, f"{name}_influence") for name in INFLUENCED]),
    )
    rho = [{layer: metrics.read(name, layer).astype(np.float64) for layer in layers} for name in ("rho_0", "rho_0_sd")]
    for fit_of_curve in fit_curves(curves):
        columns = _build_columns(fit_of_curve, SIMILARITY)
        if fit_of_curve.layer is None:
            of_model = [np.concatenate([*given.values()], axis=1) for given in rho]
            parts = [average_known(given.T)[:, None] for given in of_model]
            constant = fill_columns(1, kv_heads=of_model[0].shape[1])
            yield "assumption_similarity_model", build_batch(columns | _build_rho_columns(*parts) | constant)
        else:
            parts = [given[fit_of_curve.layer] for given in rho]
            place = index_columns((len(fit_of_curve.fits),), "kv_head", layer=fit_of_curve.layer)
            yield "assumption_similarity", build_batch(place | columns | _build_rho_columns(*parts))
            yield "cosine_by_distance", build_batch(_build_distance_columns(fit_of_curve, fit_of_curve.layer))
            yield (
                "assumption_similarity_by_sequence",
                build_batch(_build_sequence_columns(fit_of_curve, fit_of_curve.layer, parts[0])),
            )


def _build_rho_columns(rho_0: F64, spread: F64) -> dict[str, F64]:
    """Columns of ρ_0, from those of every sequence, (sequence, head)."""
    mean, within = estimate_mean(rho_0, DIFFERENCE), estimate_mean(spread)
    return {**mean.name_ends("rho_0"), "rho_0_sd": within.value}


def _build_distance_columns(fitted: LayerFits, layer: int) -> dict[str, Any]:
    """Columns of ``cosine_by_distance`` of one layer, the curves that were fitted.

    Distance 0, and the greatest, at which there is no pair without the sink, get no row.
    """
    cosines = fitted.mean[:, 1:-1]
    place = index_columns(cosines.shape, "kv_head", "distance", layer=layer)
    place["distance"] += 1
    constant = fill_columns(cosines.size, sequences=len(fitted.moves))
    return place | constant | {"mean_cosine": cosines.astype(np.float32).ravel()}


def _build_sequence_columns(mean: LayerFits, layer: int, rho_0: F64) -> dict[str, Any]:
    """Columns of ``assumption_similarity_by_sequence`` of one layer: jackknife pseudo-values of the fits, and ρ_0."""
    pseudo = {
        name: (mean.moves[..., INFLUENCED.index(name)] + [getattr(fit, name) for fit in mean.fits]).ravel()
        for name in ("mae", "floor", "gain")
    }
    place = index_columns(rho_0.shape, "sequence", "kv_head", layer=layer)
    return place | pseudo | {"rho_0": rho_0.ravel()}


def compute_assumption_weights(sources: Sources) -> Rows:
    """Assumption 3: fits of the four phases to the mean weight by position, for every query, head and the model."""
    for index, query in enumerate(sources.queries):
        for fit in fit_curves(_build_weight_curves(sources, index, query)):
            columns = _build_columns(fit, WEIGHTS)
            if fit.layer is None:
                place = fill_columns(1, query=query, heads=int(find_present_heads(sources.tensors).sum()))
                yield "assumption_weights_model", build_batch(columns | place)
                if query == sources.query:
                    yield "assumption_weights_by_sequence", build_batch(_leave_out_sequences(fit.curves))
            else:
                place = index_columns((len(fit.fits),), "head", query=query, layer=fit.layer)
                yield "assumption_weights", build_batch(place | columns)


def _build_weight_curves(sources: Sources, index: int, query: int) -> Curves:
    """The weights that the query at one position gives to the keys up to its own."""
    keys = query + 1

    def read(layer: int) -> NDArray[np.floating]:
        return read_layer(sources.tensors, "attention", layer, query=index)[..., :keys]

    return Curves(
        list_attending_layers(sources.tensors),
        read,
        _fit_phases,
        lambda fit: np.vstack(
            [np.pad(fit.influence, ((0, 0), (keys - fit.influence.shape[1], 0))), np.eye(1, keys)]  # p_sink: a weight
        ),
        lambda deviation, mean: np.divide(deviation, mean, out=np.zeros_like(deviation), where=mean > 0),
        sources.tensors.read("first_key", (slice(None), index)).max(axis=0),
    )


def _fit_phases(curve: F64) -> Any:
    """``fit_phases`` of a curve that is NaN where a window hides the position."""
    from geometry.assumptions.phases import fit_phases

    first = int(np.isnan(curve).sum())
    return fit_phases(curve[first:], first=first)


def _leave_out_sequences(curves: F64) -> dict[str, Any]:
    """Columns of ``assumption_weights_by_sequence``: the model's fit without each sequence; of its (sequence, key)."""
    fits = fit_heads(_fit_phases, leave_one_out(curves)) if len(curves) > 1 else []
    return {
        "sequence": np.arange(len(fits), dtype=np.int32),
        **{name: np.array([getattr(fit, name) for fit in fits], np.float64) for name in ("p_sink", "p_base", "r2_log")},
        "oscillation": np.array([measure_oscillation(vars(fit)) for fit in fits], np.float64),
    }


def measure_oscillation(fit: Mapping[str, Any]) -> float:
    """By how much the smallest BIC of a variant that oscillates is below that of one that does not, per position.

    How many independent positions a fit is worth is itself uncertain, and scales both criteria alike. NaN if no
    oscillation could be fitted.
    """
    without, oscillating = (
        [fit[f"bic_{name}"] for name in names] for names in (("plateau", "growth"), ("tied", "untied"))
    )
    fitted = [bic for bic in oscillating if not np.isnan(bic)]
    return float((min(without) - min(fitted)) / fit["effective_points"]) if fitted else math.nan


def _build_columns(phase_fit: LayerFits, parameters: Sequence[str]) -> dict[str, Any]:
    """Columns of fits: their fields, and the ends of the intervals of their parameters."""
    rows = [{name: value for name, value in vars(fit).items() if "influence" not in name} for fit in phase_fit.fits]
    columns = {name: _build_column(name, [row[name] for row in rows]) for name in rows[0]}
    columns |= {"oscillation": np.array([measure_oscillation(row) for row in rows])} if "bic_tied" in columns else {}
    spread = estimate_mean(phase_fit.moves)
    reach = spread.high - spread.value
    for index, name in enumerate(parameters):
        value = np.asarray(columns[name], np.float64)
        for end, way in (("low", -reach[:, index]), ("high", reach[:, index])):
            columns[f"{name}_{end}"] = _scale_weight(value, way) if name in LOGARITHMIC else value + way
    return columns | fill_columns(len(rows), sequences=len(phase_fit.moves))


def _scale_weight(weight: F64, logarithm: F64) -> F64:
    """A weight times the exponential of a number: above 0, and at most 1, which few sequences' intervals exceed."""
    scaled = weight * np.exp(np.clip(logarithm, -700, 700))  # of which float64 holds both
    return np.clip(scaled, np.minimum(weight, np.finfo(np.float64).tiny), np.maximum(weight, 1))


def _build_column(name: str, values: list[Any]) -> Any:
    """A column of one type, also if all its values are unknown."""
    if name in TEXTS:
        return pa.array(values, pa.string())
    if name in COUNTS:
        return pa.array(values, pa.int64())
    return np.array([np.nan if value is None else value for value in values], np.float64)
