"""The step of weights by position: how much attention each position gets, on average over sequences.

Holds its rows.
"""

from collections.abc import Iterator

import numpy as np

from dagster_project.analysis.sources import Rows, Sources
from geometry.arrays import F64
from geometry.statistics.moments import Mean
from storage.warehouse.rows import build_batch, fill_columns, index_columns
from storage.zarr.layers import BLOCK_BYTES, read_layer, split_sequences
from storage.zarr.sequences import SequenceStore


def compute_attention_by_position(sources: Sources) -> Rows:
    """Mean over sequences of the weight that each head gives to each position; one layer in memory."""
    tensors = sources.tensors
    first_key = tensors.read("first_key", slice(None)).max(axis=0)
    for index, query in enumerate(sources.queries):
        for layer, mean in enumerate(_average_layers(tensors, index, query + 1)):
            first = int(first_key[index, layer])
            weights = mean[:, first:].astype(np.float32)
            place = index_columns(weights.shape, "head", "position", query=query, layer=layer)
            place["position"] += np.int32(first)
            constant = fill_columns(weights.size, sequences=tensors.sizes["sequence"])
            yield "attention_by_position", build_batch(place | constant | {"mean_weight": weights.ravel()})


def _average_layers(tensors: SequenceStore, query: int, keys: int) -> Iterator[F64]:
    """The mean weights at one query, (head, key), layer by layer; no heads in a layer without attention.

    In memory are as many sequences of a layer as fit in ``BLOCK_BYTES``, or one, and one mean.
    """
    sequences, of_one = tensors.sizes["sequence"], 8 * tensors.sizes["head"] * tensors.sizes["key"]
    for layer in range(len(tensors.layers)):
        mean = Mean()
        for part in split_sequences(sequences, of_one, BLOCK_BYTES):
            mean.add(read_layer(tensors, "attention", layer, sequence=part, query=query, key=slice(keys)))
        yield mean.value
