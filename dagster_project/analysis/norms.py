"""Assumption 1: the norms of the value states of a KV head over all sequences."""

import numpy as np
import pyarrow as pa

from dagster_project.analysis.sources import Rows, Sources
from geometry.arrays import F64
from geometry.assumptions.values import estimate_variation, variation
from geometry.statistics.intervals import POSITIVE, estimate_mean
from storage.warehouse.rows import build_batch, fill_columns, index_columns
from storage.zarr.layers import list_attending_layers


def compute_assumption_norms(sources: Sources) -> Rows:
    """Assumption 1: the norms of the value states of every KV head.

    In memory are those of a layer.
    """
    for layer in list_attending_layers(sources.tensors):
        yield from _build_rows(sources.metrics.read("value_norm", layer).astype(np.float64), layer)


def _build_rows(norms: F64, layer: int) -> Rows:
    """The rows of a layer, from its norms, (sequence, KV head, position)."""
    sink, others = norms[..., 0], norms[..., 1:]
    lengths = np.median(others, axis=-1)
    ratios = np.divide(sink, lengths, out=np.full(sink.shape, np.nan), where=lengths > 0)
    usable = ~np.isnan(ratios).all(axis=0)
    parts = {"c": lengths, "lambda_sink": ratios, "cv_within_sequence": variation(others)}
    whole, left_out = estimate_variation(others)
    place = index_columns(sink.shape, "sequence", "kv_head", layer=layer)
    of_positions = index_columns(norms.shape[1:], "kv_head", "position", layer=layer)
    constant = fill_columns(norms[0].size, sequences=len(norms))
    mean = norms.mean(axis=0).astype(np.float32).ravel()
    yield "value_norm_by_position", build_batch(constant | of_positions | {"mean_norm": mean})
    numbers = {
        **estimate_mean(lengths, POSITIVE).name_ends("c"),
        **estimate_mean(ratios, POSITIVE).name_ends("lambda_sink"),
        "cv_within_sequence": estimate_mean(parts["cv_within_sequence"]).value,
        "cv_of_expected_norm": whole,
        "cv_of_mean_norm": variation(others.mean(axis=0)),
    }
    of_heads = index_columns(usable.shape, "kv_head", layer=layer, sequences=len(norms))
    of_heads |= {"status": pa.array(np.where(usable, "ok", "zero").tolist(), pa.string())}
    yield "assumption_norms", build_batch(of_heads | numbers)
    columns = {name: values.ravel() for name, values in (parts | {"cv_without_sequence": left_out}).items()}
    yield "assumption_norms_by_sequence", build_batch(place | columns)
