"""The steps of Assumptions 2 and 3: fits of similarity by distance and of weight by position.

Holds what is fitted to what, and the columns of the tables.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_project.steps.sources import Rows, Sources
from dagster_project.steps.summaries.curves import Curves, fit_curves
from geometry.arrays import F64
from geometry.statistics.running import average_arrays, standard_error
from storage.warehouse.rows import build_batch
from storage.zarr.layers import Head, find_present_heads

DECAY_PARAMETERS = ("beta", "beta_floor", "floor")
"""Parameters of Assumption 2 with an influence and a standard error."""


def fit_assumption_similarity(sources: Sources) -> Rows:
    """Assumption 2: fits of the mean cosine against distance, for every KV head and for the whole model."""
    from geometry.assumptions.decay import fit_decay

    metrics = sources.metrics
    curves = Curves(
        metrics,
        "mean_cosine",
        fit_decay,
        lambda fit: np.array([getattr(fit, f"{name}_influence") for name in DECAY_PARAMETERS]),
    )
    rho = [metrics.read(name, slice(None)).astype(np.float64) for name in ("rho_0", "rho_0_sd")]
    there = find_present_heads(metrics, "kv_head")  # (layer, kv_head), the last axes of rho
    for is_model, columns in _fit_columns(curves, "Assumption 2", "kv_head", _build_decay_row, {}):
        if is_model:
            parts = (average_arrays(given[:, there].T)[:, None] for given in rho)
            yield "assumption_similarity_model", build_batch(columns | _build_rho_columns(*parts))
        else:
            layer = int(columns["layer"][0])
            parts = (given[:, layer, there[layer]] for given in rho)
            yield "assumption_similarity", build_batch(columns | _build_rho_columns(*parts))


def _build_decay_row(fit: Any, errors: F64) -> dict[str, Any]:
    """Columns of ``assumption_similarity`` that come from a fit."""
    row = {name: value for name, value in vars(fit).items() if not name.endswith("_influence")}
    return row | {f"{name}_se": error for name, error in zip(DECAY_PARAMETERS, errors, strict=True)}


def _build_rho_columns(rho_0: F64, spread: F64) -> dict[str, F64]:
    """Columns of ρ_0, from those of every sequence, (sequence, head)."""
    return {"rho_0": average_arrays(rho_0), "rho_0_sd": average_arrays(spread), "rho_0_se": standard_error(rho_0)}


PHASE_PARAMETERS = ("p_base", "eta", "eta_growth", "omega", "p_sink")
"""Parameters of Assumption 3 with an influence and a standard error, p_base and p_sink through their logarithms."""


def fit_assumption_weights(sources: Sources) -> Rows:
    """Assumption 3: fits of the four phases to the mean weight by position, for every query, head and the model."""
    for index, query in enumerate(sources.queries):
        curves = _build_weight_curves(sources, index, query)
        for is_model, columns in _fit_columns(
            curves, f"Assumption 3, query {query}", "head", _build_phase_row, {"query": query}
        ):
            yield "assumption_weights_model" if is_model else "assumption_weights", build_batch(columns)


def _build_weight_curves(sources: Sources, index: int, query: int) -> Curves:
    """The weights that the query at one position gives to the keys up to its own."""
    keys = query + 1
    return Curves(
        sources.tensors,
        "attention",
        _fit_phases,
        lambda fit: np.vstack(
            [np.pad(fit.influence, ((0, 0), (keys - fit.influence.shape[1], 0))), np.eye(1, keys)]  # p_sink: a weight
        ),
        _compute_relative,
        index,
        sources.tensors.read("first_key", (slice(None), index)).max(axis=0),
        keys,
    )


def _fit_phases(curve: F64) -> Any:
    """``fit_phases`` of a curve that is NaN where a window hides the position."""
    from geometry.assumptions.phases import fit_phases

    first = int(np.isnan(curve).sum())
    return fit_phases(curve[first:], first=first)


def _compute_relative(deviation: F64, mean: F64) -> F64:
    """First-order deviation of the logarithm of a weight; 0 where the mean weight is 0."""
    return np.divide(deviation, mean, out=np.zeros_like(deviation), where=mean > 0)


def _build_phase_row(fit: Any, errors: F64) -> dict[str, Any]:
    """Columns of ``assumption_weights`` that come from a fit."""
    row = {name: value for name, value in vars(fit).items() if name != "influence"}
    edges = {name: np.nan if row[name] is None else float(row[name]) for name in ("t_1", "t_2")}
    named = {f"{name}_se": error for name, error in zip(PHASE_PARAMETERS, errors, strict=True)}
    for name in ("p_base", "p_sink"):
        named[f"{name}_se"] *= getattr(fit, name)  # the influence is that of its logarithm
    return row | edges | named


def _fit_columns(
    curves: Curves, what: str, head: Head, row: Callable[[Any, F64], dict[str, Any]], extra: Mapping[str, Any]
) -> Iterator[tuple[bool, dict[str, Any]]]:
    """Columns of one layer after the other, then of the model (True); ``extra`` columns have one value each."""
    sequences, heads = curves.store.sizes["sequence"], int(find_present_heads(curves.store, head).sum())
    for layer, fits, errors in fit_curves(curves, what):
        rows = [row(fit, error) for fit, error in zip(fits, errors, strict=True)]
        columns = {name: _build_column(name, [given[name] for given in rows]) for name in rows[0]}
        constant = {"sequences": sequences, **extra}
        constant |= {f"{head}s": heads} if layer is None else {"layer": layer}
        place = {} if layer is None else {head: np.arange(len(rows), dtype=np.int16)}
        yield layer is None, place | columns | {name: np.full(len(rows), value) for name, value in constant.items()}


TEXTS = ("status", "status_floor", "variant", "preferred")
"""Columns of fits that are strings."""


def _build_column(name: str, values: list[Any]) -> Any:
    """A column of one type, also if all its values are unknown."""
    return pa.array(values, pa.string()) if name in TEXTS else np.array(values)
