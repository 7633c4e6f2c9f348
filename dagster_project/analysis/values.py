"""Value states by KV head and position: their norms and directions, what each position contributes, and top keys."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dagster_project.analysis.sources import Rows, Sources
from geometry.arrays import F64
from geometry.assumptions.values import DirectionMoments, PrincipalDirections, estimate_variation, variation
from geometry.selection.top_keys import top_keys
from geometry.statistics.intervals import POSITIVE, Mean, estimate_mean
from geometry.threads import one_blas_thread
from storage.warehouse.rows import build_batch, build_top_key_rows, fill_columns, index_columns
from storage.zarr.layers import BLOCK_BYTES, list_attending_layers, read_layer, split_sequences

if TYPE_CHECKING:
    from storage.zarr.sequences import SequenceStore

Heads = Sequence[PrincipalDirections | None]

SELECTED = 4
"""N of s_N: that of the maps by default, but no setting, since tensors may have been dropped when that changes."""


def compute_assumption_norms(sources: Sources) -> Rows:
    """Assumption 1: the norms of the value states of every KV head.

    In memory are those of a layer.
    """
    for layer in list_attending_layers(sources.tensors):
        yield from _build_norm_rows(sources.metrics.read("value_norm", layer).astype(np.float64), layer)


def _build_norm_rows(norms: F64, layer: int) -> Rows:
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


def compute_value_directions(sources: Sources) -> Rows:
    """Principal directions of the value states of every KV head, and the value states of sequence 0 along them.

    The value states are read once; one layer of one sequence and the moments of its KV heads are in memory.
    """
    tensors = sources.tensors
    for layer in list_attending_layers(tensors):
        heads = _compute_directions(tensors, layer)
        shares = np.array([head.shares[:3] if head else np.full(3, np.nan) for head in heads])
        columns = {
            **index_columns((len(heads),), "kv_head", layer=layer, sequences=tensors.sizes["sequence"]),
            "status": pa.array(["ok" if head else "zero" for head in heads], pa.string()),
            **{f"share_{index + 1}": share for index, share in enumerate(shares.T)},
            "effective_dimension": np.array([head.effective_dimension if head else np.nan for head in heads]),
        }
        yield "principal_directions", build_batch(columns)
        yield "value_directions", build_batch(_build_point_columns(tensors, heads, layer))


def _compute_directions(tensors: "SequenceStore", layer: int) -> Heads:
    """Principal directions of the KV heads of a layer, over all sequences and all positions but the sink."""
    size = tensors.layers[layer]
    moments = [DirectionMoments(size.head_dim) for _ in range(size.kv_heads)]
    with one_blas_thread:  # products this small take longer on more threads
        for sequence in range(tensors.sizes["sequence"]):
            values = read_layer(tensors, "values", layer, sequence=sequence)
            for of_head, states in zip(moments, values, strict=True):
                of_head.add(states[1:])
        return [of_head.compute_directions() for of_head in moments]


def _build_point_columns(tensors: "SequenceStore", heads: Heads, layer: int) -> dict[str, Any]:
    """Columns of ``value_directions`` for one layer."""
    values = read_layer(tensors, "values", layer, sequence=0)
    nothing = np.full((tensors.sizes["key"], 3), np.nan)
    points = np.array([head.project(states) if head else nothing for head, states in zip(heads, values, strict=True)])
    kv_head, position = np.nonzero(np.isfinite(points).all(axis=-1))
    return {
        **fill_columns(position.size, layer=layer),
        "kv_head": kv_head.astype(np.int16),
        "position": position.astype(np.int32),
        **dict(zip("xyz", points[kv_head, position].T.astype(np.float32), strict=True)),
    }


def compute_contributions(sources: Sources) -> Rows:
    """Weight and contribution of each position, and cosines of its value state with the sink's and the last.

    One layer of one query after the other, of which as many sequences as fit in ``BLOCK_BYTES`` are in memory.
    """
    first_key = sources.tensors.read("first_key", slice(None)).max(axis=0)
    for index, query in enumerate(sources.queries):
        for layer in list_attending_layers(sources.tensors):
            yield from _measure_contributions(sources, index, layer, slice(int(first_key[index, layer]), query + 1))


def _measure_contributions(sources: Sources, index: int, layer: int, seen: slice) -> Rows:
    """The rows of one layer, at one index along ``query``.

    Positions that the window of any sequence hides have no row: a window hides the same in all of them.
    """
    metrics, size = sources.metrics, sources.tensors.layers[layer]
    weights, norms, last, sink = Mean(), Mean(), Mean(), Mean()  # (head, position), cosines (KV head, position)
    keys, group = seen.stop - seen.start, size.heads // size.kv_heads
    of_one = 8 * size.heads * keys
    for part in split_sequences(metrics.sequences, of_one, BLOCK_BYTES):
        weight = read_layer(sources.tensors, "attention", layer, sequence=part, query=index, key=seen)
        length, cos_sink = (
            metrics.read(name, layer, sequences=part)[..., seen] for name in ("value_norm", "cos_sink_of_keys")
        )
        weights.add(weight)
        norms.add(np.multiply(weight, length.repeat(group, axis=1), dtype=np.float64))
        last.add(metrics.read("cos_last_of_keys", layer, query=index, sequences=part))
        sink.add(cos_sink)
    columns = {
        "mean_weight": weights.value,
        "mean_norm_y": norms.value,
        "mean_cos_last": last.value.repeat(group, axis=0),
        "mean_cos_sink": np.where(seen.start == 0, sink.value, np.nan).repeat(group, axis=0),
    }
    constant = {"query": seen.stop - 1, "sequences": metrics.sequences, "layer": layer}
    place = index_columns((size.heads, keys), "head", "position", **constant)
    place["position"] += np.int32(seen.start)
    flat = {name: statistic.astype(np.float32).ravel() for name, statistic in columns.items()}
    yield "attention_by_position", build_batch(place | flat)


def compute_top_keys(sources: Sources) -> Rows:
    """The keys of largest weight of every sequence, query and head, with their distances from s_N at N = ``SELECTED``.

    ``BLOCK_BYTES`` of the weights and value states of a layer are in memory.
    """
    tensors = sources.tensors
    for layer in list_attending_layers(tensors):
        size, first_keys = tensors.layers[layer], tensors.read("first_key", (slice(None), slice(None), layer))
        of_key = len(sources.queries) * size.heads + size.kv_heads * size.head_dim
        for block in split_sequences(tensors.sizes["sequence"], 4 * tensors.sizes["key"] * of_key, BLOCK_BYTES):
            values, attention = (read_layer(tensors, name, layer, sequence=block) for name in ("values", "attention"))
            for at, sequence in enumerate(range(block.start, block.stop)):
                for index, query in enumerate(sources.queries):
                    seen = slice(int(first_keys[sequence, index]), query + 1)
                    grouped = attention[at, index, :, seen].reshape(size.kv_heads, -1, seen.stop - seen.start)
                    at_n = min(SELECTED, seen.stop - seen.start)
                    ranked = top_keys(grouped, values[at, :, None, seen], n=at_n)
                    place = {"sequence": sequence, "query": query, "layer": layer}
                    yield "top_keys", build_top_key_rows(vars(ranked), first=seen.start, n=at_n, **place)
