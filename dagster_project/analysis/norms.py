"""Assumption 1: the norms of the value states of a KV head over all sequences."""

import numpy as np
import pyarrow as pa

from dagster_project.analysis.curves import BLOCK_BYTES
from dagster_project.analysis.sources import Rows, Sources
from geometry.arrays import F64
from geometry.assumptions.norms import estimate_variation, variation
from geometry.statistics.intervals import POSITIVE
from geometry.statistics.jackknife import estimate_jackknife
from geometry.statistics.moments import estimate_mean
from storage.warehouse.rows import build_batch
from storage.zarr.layers import list_runs, read_layers, split_run


def compute_assumption_norms(sources: Sources) -> Rows:
    """Assumption 1: the norms of the value states of every KV head.

    In memory are those of a layer, or of as many as fit in ``BLOCK_BYTES``.
    """
    metrics = sources.metrics
    sizes = metrics.sizes
    for run in list_runs(metrics):
        of_one = 8 * sizes["sequence"] * metrics.layers[run.start].kv_heads * sizes["key"]
        for layers, _ in split_run(run, 1, of_one, BLOCK_BYTES) if of_one else []:
            norms = read_layers(metrics, "value_norm", layers).astype(np.float64)
            for layer, of_layer in enumerate(np.moveaxis(norms, 1, 0), layers.start):
                yield from _build_rows(of_layer, layer)


def _build_rows(norms: F64, layer: int) -> Rows:
    """The rows of one layer, from its norms, (sequence, KV head, position)."""
    sequences, kv_heads, _ = norms.shape
    sink, others = norms[..., 0], norms[..., 1:]
    lengths = np.median(others, axis=-1)
    ratios = np.divide(sink, lengths, out=np.full(sink.shape, np.nan), where=lengths > 0)
    usable = ~np.isnan(ratios).all(axis=0)
    parts = {"c": lengths, "lambda_sink": ratios, "cv_within_sequence": variation(others)}
    estimates = {name: estimate_mean(values, POSITIVE) for name, values in parts.items()}
    expected = [estimate_variation(others[:, head]) for head in range(kv_heads)]
    whole, left_out = (np.stack(of_heads, axis=-1) for of_heads in zip(*expected, strict=True))
    estimates["cv_of_expected_norm"] = estimate_jackknife(whole, left_out, POSITIVE)
    ends = {"": "value", "_low": "low", "_high": "high"}
    yield (
        "assumption_norms",
        build_batch(
            {
                "layer": np.full(kv_heads, layer, np.int16),
                "kv_head": np.arange(kv_heads, dtype=np.int16),
                "sequences": np.full(kv_heads, sequences, np.int32),
                "status": pa.array(np.where(usable, "ok", "zero").tolist(), pa.string()),
                **{
                    f"{name}{end}": getattr(one, field)
                    for name, one in estimates.items()
                    for end, field in ends.items()
                },
                "cv_of_mean_norm": variation(others.mean(axis=0)),
            }
        ),
    )
    sequence, kv_head = (axis.ravel() for axis in np.indices((sequences, kv_heads), dtype=np.int32))
    yield (
        "assumption_norms_by_sequence",
        build_batch(
            {
                "sequence": sequence,
                "layer": np.full(sequence.size, layer, np.int16),
                "kv_head": kv_head.astype(np.int16),
                **{name: values.ravel() for name, values in parts.items()},
                "cv_without_sequence": left_out.ravel(),
            }
        ),
    )
