"""Assumption 1: the norms of the value states of a KV head over all sequences."""

import numpy as np
import pyarrow as pa

from dagster_project.analysis.columns import index_columns
from dagster_project.analysis.sources import Rows, Sources
from geometry.arrays import F64
from geometry.assumptions.norms import estimate_variation, variation
from geometry.statistics.intervals import POSITIVE
from geometry.statistics.moments import estimate_mean
from storage.warehouse.rows import build_batch, fill_columns
from storage.zarr.layers import BLOCK_BYTES, list_runs, read_layers, split_run


def compute_assumption_norms(sources: Sources) -> Rows:
    """Assumption 1: the norms of the value states of every KV head.

    In memory are those of a layer, or of as many as fit in ``BLOCK_BYTES``.
    """
    metrics = sources.metrics
    sizes = metrics.sizes
    for run in list_runs(metrics):
        of_one = 8 * sizes["sequence"] * metrics.layers[run.start].kv_heads * sizes["key"]
        for layers, _ in split_run(run, 1, of_one, BLOCK_BYTES) if of_one else []:
            yield from _build_rows(read_layers(metrics, "value_norm", layers).astype(np.float64), layers)


def _build_rows(norms: F64, layers: slice) -> Rows:
    """The rows of some layers, from their norms, (sequence, layer, KV head, position)."""
    sink, others = norms[..., 0], norms[..., 1:]
    lengths = np.median(others, axis=-1)
    ratios = np.divide(sink, lengths, out=np.full(sink.shape, np.nan), where=lengths > 0)
    usable = ~np.isnan(ratios).all(axis=0)
    parts = {"c": lengths, "lambda_sink": ratios, "cv_within_sequence": variation(others)}
    whole, left_out = estimate_variation(others)
    place = index_columns(sink.shape, "sequence", "layer", "kv_head")
    place["layer"] += np.int16(layers.start)
    of_positions = index_columns(norms.shape[1:], "layer", "kv_head", "position")
    of_positions["layer"] += np.int16(layers.start)
    constant = fill_columns(norms[0].size, sequences=len(norms))
    mean = norms.mean(axis=0).astype(np.float32).ravel()
    yield "value_norm_by_position", build_batch(constant | of_positions | {"mean_norm": mean})
    yield (
        "assumption_norms",
        build_batch(
            {
                **{name: place[name][: usable.size] for name in ("layer", "kv_head")},
                **fill_columns(usable.size, sequences=len(norms)),
                "status": pa.array(np.where(usable, "ok", "zero").ravel().tolist(), pa.string()),
                **{
                    column: values.ravel()
                    for name in ("c", "lambda_sink")
                    for column, values in estimate_mean(parts[name], POSITIVE).name_ends(name).items()
                },
                "cv_within_sequence": estimate_mean(parts["cv_within_sequence"]).value.ravel(),
                "cv_of_expected_norm": whole.ravel(),
                "cv_of_mean_norm": variation(others.mean(axis=0)).ravel(),
            }
        ),
    )
    yield (
        "assumption_norms_by_sequence",
        build_batch(
            {
                **place,
                **{name: values.ravel() for name, values in parts.items()},
                "cv_without_sequence": left_out.ravel(),
            }
        ),
    )
