"""The step of convergence: how close weights are to uniform ones, and how that depends on the number of keys.

Holds means over sequences for every query, and fits against the number of keys.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagster_project.steps.sources import Rows, Sources
from dagster_project.steps.summaries.power_laws import Row, build_fit_batch, find_head_groups, fit_row
from geometry.arrays import F64
from geometry.statistics.running import standard_error
from storage.warehouse.rows import build_batch
from storage.zarr.layers import list_attending_layers, read_layer

MEASURES = ("effective_share", "n_90_share", "largest_deviation")
"""The quantities that are averaged and fitted."""


def compute_convergence(sources: Sources) -> Rows:
    """How close weights are to uniform ones at every query: means, and fits against the number of keys.

    ``estimate_convergence_bytes`` are in memory: three numbers for every sequence, query and head.
    """
    metrics, queries = sources.metrics, np.array(sources.queries)
    groups, layers = find_head_groups(metrics), list_attending_layers(metrics)
    found = {layer: _compute_measures(sources, layer) for layer in layers}
    keys = {layer: read_layer(metrics, "n_keys", layer).max(axis=0) for layer in layers}
    for layer, measures in found.items():
        yield "convergence", build_batch(_build_columns(measures, queries, keys[layer], layer))
        of_heads: list[Row] = [
            {"layer": layer, "head": head, "measure": measure}
            | _fit_head(keys[layer][None], measures[index, :, :, head])
            for head in range(measures.shape[3])
            for index, measure in enumerate(MEASURES)
        ]
        yield "convergence_fits", build_fit_batch(of_heads, measure=pa.string(), layer=pa.int16(), head=pa.int16())
    whole = np.concatenate(list(found.values()), axis=3)
    yield "convergence_model", build_batch(_build_model_columns(whole, queries))
    sizes = np.concatenate([np.repeat(keys[layer][:, None], groups[layer].size, axis=1) for layer in layers], axis=1)
    cluster = np.concatenate([groups[layer] for layer in layers])
    of_model: list[Row] = [
        {"measure": measure} | fit_row(sizes.astype(np.float64), whole[index].mean(axis=0), cluster)
        for index, measure in enumerate(MEASURES)
    ]
    yield "convergence_fits_model", build_fit_batch(of_model, measure=pa.string())


def estimate_convergence_bytes(sizes: Mapping[str, int]) -> int:
    """Upper bound of the memory of the step, in bytes.

    Parameters
    ----------
    sizes
        Sizes of the axes ``sequence``, ``query``, ``layer`` and ``head``.
    """
    heads = sizes["query"] * sizes["layer"] * sizes["head"]
    return 8 * heads * (4 * len(MEASURES) * sizes["sequence"] + 64) + 2**20


def _compute_measures(sources: Sources, layer: int) -> F64:
    """``MEASURES`` of one layer, (measure, sequence, query, head)."""
    metrics = sources.metrics
    keys = read_layer(metrics, "n_keys", layer).astype(np.float64)[..., None]
    effective, n_90, deviation = (
        read_layer(metrics, name, layer).astype(np.float64) for name in ("effective_keys", "n_90", "largest_deviation")
    )
    return np.stack([effective / keys, n_90 / keys, deviation])


def _build_columns(measures: F64, queries: NDArray[np.int64], keys: NDArray[np.integer], layer: int) -> dict[str, Any]:
    """Columns of ``convergence`` of one layer; measures (measure, sequence, query, head), keys (query,)."""
    query, head = (axis.ravel() for axis in np.indices(measures.shape[2:], dtype=np.int32))
    return {
        "query": queries[query].astype(np.int32),
        "layer": np.full(head.size, layer, np.int16),
        "head": head.astype(np.int16),
        "n_keys": keys[query].astype(np.int32),
        "sequences": np.full(head.size, measures.shape[1], np.int32),
        **_compute_means(measures.reshape(*measures.shape[:2], -1)),
    }


def _build_model_columns(measures: F64, queries: NDArray[np.int64]) -> dict[str, Any]:
    """Columns of ``convergence_model``: means over heads, errors over sequences, and the middle 80 % of the heads."""
    of_heads = measures.mean(axis=1)  # (measure, query, head)
    low, high = np.quantile(of_heads, (0.1, 0.9), axis=-1)
    spread = {
        f"{name}_{end}": part[index]
        for index, name in enumerate(MEASURES)
        for end, part in (("p10", low), ("p90", high))
    }
    return {
        "query": queries.astype(np.int32),
        "heads": np.full(queries.size, measures.shape[3], np.int32),
        "sequences": np.full(queries.size, measures.shape[1], np.int32),
        **_compute_means(measures.mean(axis=3)),
        **spread,
    }


def _compute_means(measures: F64) -> dict[str, F64]:
    """Means and standard errors over sequences, (measure, sequence, row)."""
    means = {name: of.mean(axis=0) for name, of in zip(MEASURES, measures, strict=True)}
    return means | {f"{name}_se": standard_error(of) for name, of in zip(MEASURES, measures, strict=True)}


def _fit_head(keys: NDArray[np.integer], measure: F64) -> Row:
    """The fit of one head; keys (1, query), measure (sequence, query), clusters are the sequences."""
    return fit_row(keys.astype(np.float64), measure, np.arange(measure.shape[0])[:, None])
