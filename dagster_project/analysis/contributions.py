"""The step of contributions: the weight of each position, and its part in a head's output.

Holds means over sequences of α_i, of ‖α_i v_i‖ and of cosines of value states.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dagster_project.analysis.sources import Rows, Sources
from geometry.arrays import F64
from geometry.statistics.intervals import Mean
from storage.warehouse.rows import build_batch, index_columns
from storage.zarr.layers import BLOCK_BYTES, list_attending_layers, read_layer, split_sequences


@dataclass(frozen=True)
class _LayerMeans:
    """Means over sequences of one layer."""

    weights: Mean = field(default_factory=Mean)
    """Of α_i, (head, position)."""
    norms: Mean = field(default_factory=Mean)
    """Of ‖α_i v_i‖, (head, position)."""
    last: Mean = field(default_factory=Mean)
    """Of cos(v_i, v_last), (KV head, position)."""
    sink: Mean = field(default_factory=Mean)
    """Of cos(v_0, v_i), (KV head, position)."""


def compute_contributions(sources: Sources) -> Rows:
    """Weight and contribution of each position, and cosines of its value state with the sink's and the last.

    One layer of one query after the other, of which as many sequences as fit in ``BLOCK_BYTES`` are in memory.
    """
    first_key = sources.tensors.read("first_key", slice(None)).max(axis=0)
    for index, query in enumerate(sources.queries):
        for layer in list_attending_layers(sources.tensors):
            yield from _measure_layer(sources, index, layer, slice(int(first_key[index, layer]), query + 1))


def _measure_layer(sources: Sources, index: int, layer: int, seen: slice) -> Rows:
    """The rows of one layer, at one index along ``query``."""
    metrics, size, means = sources.metrics, sources.tensors.layers[layer], _LayerMeans()
    of_one = 8 * size.heads * (seen.stop - seen.start)
    for part in split_sequences(metrics.sequences, of_one, BLOCK_BYTES):
        weight = read_layer(sources.tensors, "attention", layer, sequence=part, query=index, key=seen)
        length, cos_sink = (
            metrics.read(name, layer, sequences=part)[..., seen] for name in ("value_norm", "cos_sink_of_keys")
        )
        of_heads = length.repeat(size.heads // size.kv_heads, axis=1)
        means.weights.add(weight)
        means.norms.add(np.multiply(weight, of_heads, dtype=np.float64))
        means.last.add(metrics.read("cos_last_of_keys", layer, query=index, sequences=part))
        means.sink.add(cos_sink)
    return _build_rows(sources, layer, seen, means)


def _build_rows(sources: Sources, layer: int, seen: slice, means: _LayerMeans) -> Rows:
    """The rows of one query and one layer.

    Positions that the window of any sequence hides have no row: a window hides the same in all of them.
    """
    size = sources.metrics.layers[layer]
    group, keys = size.heads // size.kv_heads, seen.stop - seen.start
    cos_sink = means.sink.value.repeat(group, axis=0) if seen.start == 0 else np.full((size.heads, keys), np.nan)
    constant = {"query": seen.stop - 1, "sequences": sources.metrics.sequences, "layer": layer}
    place = index_columns((size.heads, keys), "head", "position", **constant)
    place["position"] += np.int32(seen.start)
    columns = {
        "mean_weight": _flatten(means.weights.value),
        "mean_norm_y": _flatten(means.norms.value),
        "mean_cos_last": _flatten(means.last.value.repeat(group, axis=0)),
        "mean_cos_sink": _flatten(cos_sink),
    }
    yield "attention_by_position", build_batch(place | columns)


def _flatten(statistic: F64) -> NDArray[np.float32]:
    """A column of a statistic, (head, position)."""
    return statistic.astype(np.float32).ravel()
