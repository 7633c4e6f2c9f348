"""The step of contributions: the weight of each position, and its part in a head's output.

Holds means over sequences of α_i, of ‖α_i v_i‖ and of cosines of value states.
"""

import numpy as np

from dagster_project.analysis.sources import Rows, Sources
from geometry.statistics.intervals import Mean
from storage.warehouse.rows import build_batch, index_columns
from storage.zarr.layers import BLOCK_BYTES, list_attending_layers, read_layer, split_sequences


def compute_contributions(sources: Sources) -> Rows:
    """Weight and contribution of each position, and cosines of its value state with the sink's and the last.

    One layer of one query after the other, of which as many sequences as fit in ``BLOCK_BYTES`` are in memory.
    """
    first_key = sources.tensors.read("first_key", slice(None)).max(axis=0)
    for index, query in enumerate(sources.queries):
        for layer in list_attending_layers(sources.tensors):
            yield from _measure_layer(sources, index, layer, slice(int(first_key[index, layer]), query + 1))


def _measure_layer(sources: Sources, index: int, layer: int, seen: slice) -> Rows:
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
