"""The step of contributions: the part of each position in a head's output.

Holds statistics over sequences of ‖α_i v_i‖ and of cosines of value states.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dagster_project.analysis.curves import BLOCK_BYTES
from dagster_project.analysis.sources import Rows, Sources
from geometry.arrays import F64
from geometry.statistics.moments import Moments
from storage.warehouse.rows import build_batch
from storage.zarr.layers import list_attending_layers, read_layer, split_sequences


def compute_contributions(sources: Sources) -> Rows:
    """Contribution of each position to a head's output, and cosines of its value state with the sink's and the last.

    One layer of one query after the other, as many sequences at once as fit in ``BLOCK_BYTES``;
    ``estimate_contributions_bytes`` are in memory, however many sequences there are.
    """
    from tqdm import tqdm

    places = [
        (query, layer) for query in range(len(sources.queries)) for layer in list_attending_layers(sources.metrics)
    ]
    progress = tqdm(places, desc="contributions", unit="layer", disable=None)
    for query, layer in progress:
        yield "contributions", build_batch(_compute_layer(sources, query, layer))


def estimate_contributions_bytes(sizes: Mapping[str, int]) -> int:
    """Upper bound of the memory of the step, in bytes: a layer of some sequences, its statistics and its rows.

    Parameters
    ----------
    sizes
        Sizes of the axes ``head``, ``kv_head`` and ``key``.
    """
    block = max(BLOCK_BYTES, 8 * sizes["head"] * sizes["key"])
    return (200 * sizes["head"] + 100 * sizes["kv_head"]) * sizes["key"] + 5 * block + 2**18


def _compute_layer(sources: Sources, query: int, layer: int) -> dict[str, Any]:
    """Columns of ``contributions`` for one index along ``query`` and one layer.

    Positions that the window of any sequence hides have no row: a window hides the same in all of them.
    """
    tensors, metrics, position = sources.tensors, sources.metrics, sources.queries[query]
    sequences, size = metrics.sizes["sequence"], metrics.layers[layer]
    first = int(read_layer(tensors, "first_key", layer, query=query).max())
    seen, group = slice(first, position + 1), size.heads // size.kv_heads
    places = [(tensors, "attention"), (metrics, "cos_last_of_keys")]
    places += [(metrics, "value_norm"), (metrics, "cos_sink_of_keys")]
    norms, last, sink = Moments(), Moments(), Moments()
    for part in split_sequences(sequences, 8 * size.heads * (position + 1 - first), BLOCK_BYTES):
        weight, cos_last, length, cos_sink = (
            read_layer(store, name, layer, sequence=part, query=query, key=seen).astype(np.float64)
            for store, name in places
        )
        norms.add(weight * length.repeat(group, axis=1))
        last.add(cos_last)
        sink.add(cos_sink)
    head, index = (axis.ravel() for axis in np.indices((size.heads, position + 1 - first), dtype=np.int32))
    constant = {"query": position, "sequences": sequences}
    return {
        **{name: np.full(head.size, value, np.int32) for name, value in constant.items()},
        "layer": np.full(head.size, layer, np.int16),
        "head": head.astype(np.int16),
        "position": index + np.int32(first),
        "mean_norm_y": _flatten(norms.mean),
        "sd_norm_y": _flatten(norms.deviation),
        "mean_cos_last": _flatten(last.mean.repeat(group, axis=0)),
        "mean_cos_sink": _flatten(sink.mean.repeat(group, axis=0) if first == 0 else np.full(head.size, np.nan)),
    }


def _flatten(statistic: F64) -> NDArray[np.float32]:
    """A column of a statistic, (head, position)."""
    return statistic.astype(np.float32).ravel()
