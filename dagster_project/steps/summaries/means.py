"""The step of the means of Precision, Recall, F and specificity, with bootstrap intervals over sequences.

Holds their rows, query by query and layer by layer.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagster_project.steps.sources import Rows, Sources
from geometry.arrays import F64
from storage.warehouse.rows import build_batch
from storage.zarr.layers import read_layer


def compute_selection_means(sources: Sources) -> Rows:
    """Mean Precision, Recall, F and specificity of every query, head and N, and of the whole model, with intervals.

    The resampled means of the model at one query are in memory.
    """
    from geometry.statistics.bootstrap import ModelMeans, draw_sequences

    drawn = draw_sequences(sources.metrics.sizes["sequence"])
    for index, query in enumerate(sources.queries):
        model = ModelMeans(query + 1, drawn.shape[1])
        for rows in _compute_layer_means(sources, index, drawn, model):
            yield "selection_means", rows
        for rows in _compute_model_means(sources, query, model):
            yield "selection_means_model", rows


def _compute_layer_means(
    sources: Sources, index: int, drawn: NDArray[np.float32], model: Any
) -> Iterator[pa.RecordBatch]:
    """The rows of one query, one batch per layer; every layer is added to ``model``."""
    from tqdm import tqdm

    from geometry.statistics.bootstrap import selection_means as means_of_layer

    metrics, query = sources.metrics, sources.queries[index]
    n_keys = metrics.read("n_keys", (slice(None), index)).max(axis=0)  # -1 in layers without attention
    for layer in tqdm(np.flatnonzero(n_keys > 1), desc=f"bootstrap, query {query}", unit="layer", disable=None):

        def counts(layer: int = int(layer)) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int32]]]:
            for sequence in range(metrics.sizes["sequence"]):
                k_in, k_out = (
                    read_layer(metrics, name, layer, sequence=sequence, query=index) for name in ("k_in", "k_out")
                )
                yield k_in, k_out

        heads = metrics.layers[layer].heads
        means = means_of_layer(counts, heads=heads, n_keys=int(n_keys[layer]), drawn=drawn)
        model.add(means)
        head, n = (axis.ravel() for axis in np.indices(means.mean.shape[1:], dtype=np.int32))
        place = {"layer": np.full(head.size, layer, np.int16), "head": head.astype(np.int16), "n": n + 1}
        yield build_batch(
            _build_constant_columns(sources, query, head.size)
            | place
            | _build_interval_columns(means.mean, means.low, means.high)
        )


def _compute_model_means(sources: Sources, query: int, model: Any) -> Iterator[pa.RecordBatch]:
    """The rows of ``selection_means_model`` of one query."""
    seen = model.heads > 0
    parts = [part[:, seen] for part in (model.mean, *model.interval())]
    if seen.any():
        place = {"n": np.flatnonzero(seen).astype(np.int32) + 1, "heads": model.heads[seen].astype(np.int32)}
        yield build_batch(
            _build_constant_columns(sources, query, int(seen.sum())) | place | _build_interval_columns(*parts)
        )


def _build_constant_columns(sources: Sources, query: int, rows: int) -> dict[str, NDArray[np.int32]]:
    constant = {"query": query, "sequences": sources.metrics.sizes["sequence"]}
    return {name: np.full(rows, value, np.int32) for name, value in constant.items()}


def _build_interval_columns(mean: F64, low: F64, high: F64) -> dict[str, F64]:
    """Columns of means and the ends of their intervals, each (metric, …)."""
    from geometry.statistics.bootstrap import METRICS

    parts = {"": mean, "_ci_low": low, "_ci_high": high}
    return {
        f"{metric}{end}": part[index].ravel() for end, part in parts.items() for index, metric in enumerate(METRICS)
    }
