"""The step of the logit range: norms of queries and keys, and the extreme weights that they bound.

Holds its rows.
"""

from typing import Any

import numpy as np

from dagster_project.analysis.sources import Rows, Sources
from storage.warehouse.rows import build_batch
from storage.zarr.layers import list_attending_layers, read_layer


def compute_logit_range(sources: Sources) -> Rows:
    """Norms of queries and keys, which bound every logit, with the smallest and the largest weight.

    One layer of one query of one sequence is in memory at a time.
    """
    from tqdm import tqdm

    for layer in tqdm(list_attending_layers(sources.tensors), desc="logit range", unit="layer", disable=None):
        for sequence in range(sources.tensors.sizes["sequence"]):
            for query in range(len(sources.queries)):
                yield "logit_range", build_batch(_build_columns(sources, layer, sequence, query))


def _build_columns(sources: Sources, layer: int, sequence: int, query: int) -> dict[str, Any]:
    """Columns of ``logit_range`` for one layer of one query of one sequence."""
    tensors, place, position = sources.tensors, {"sequence": sequence, "query": query}, sources.queries[query]
    first = int(read_layer(tensors, "first_key", layer, **place))
    weights = read_layer(tensors, "attention", layer, **place, key=slice(first, position + 1))
    shares = weights / weights.sum(axis=-1, keepdims=True, dtype=np.float64)
    heads = len(weights)
    constant = {"sequence": sequence, "query": position, "n_keys": weights.shape[-1]}
    norms = {name: read_layer(tensors, name, layer, **place) for name in ("query_norm", "key_norm")}
    return {
        **{name: np.full(heads, value, np.int32) for name, value in constant.items()},
        "layer": np.full(heads, layer, np.int16),
        "head": np.arange(heads, dtype=np.int16),
        **norms,
        "logit_cap": np.full(heads, read_layer(tensors, "logit_cap", layer, sequence=sequence), np.float32),
        "least_weight": shares.min(axis=-1),
        "largest_weight": shares.max(axis=-1),
        "underflowed": (weights == 0).sum(axis=-1).astype(np.int32),
    }
