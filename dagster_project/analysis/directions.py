"""The step of the directions of value states: which of them a KV head uses.

Holds the rows of principal directions, and of the value states of one sequence along them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dagster_project.analysis.sources import Rows, Sources
from geometry.threads import one_blas_thread
from storage.warehouse.rows import build_batch, fill_columns, index_columns
from storage.zarr.layers import list_attending_layers, read_layer

if TYPE_CHECKING:
    from geometry.assumptions.values import PrincipalDirections
    from storage.zarr.sequences import SequenceStore

    Heads = Sequence[PrincipalDirections | None]


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


def _compute_directions(tensors: "SequenceStore", layer: int) -> "Heads":
    """Principal directions of the KV heads of a layer, over all sequences and all positions but the sink."""
    from geometry.assumptions.values import DirectionMoments

    size = tensors.layers[layer]
    moments = [DirectionMoments(size.head_dim) for _ in range(size.kv_heads)]
    with one_blas_thread:  # products this small take longer on more threads
        for sequence in range(tensors.sizes["sequence"]):
            values = read_layer(tensors, "values", layer, sequence=sequence)
            for of_head, states in zip(moments, values, strict=True):
                of_head.add(states[1:])
        return [of_head.compute_directions() for of_head in moments]


def _build_point_columns(tensors: "SequenceStore", heads: "Heads", layer: int) -> dict[str, Any]:
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
