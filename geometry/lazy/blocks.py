"""Blocks of lazy arrays: their input, how they are mapped over queries, and the keys that a query attends to."""

from collections.abc import Callable, Sequence
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from geometry.arrays import F32

Index = NDArray[np.integer]
"""The keys of the query of a block: the first key, and the position of the query."""


def check_stores(attention: da.Array, values: da.Array, first_key: da.Array, queries: Sequence[int]) -> None:
    """Raise a ValueError if axes that must agree do not."""
    sequences, asked, layers, heads, keys = attention.shape
    if values.shape[:2] != (sequences, layers) or values.shape[3] != keys or heads % values.shape[2]:
        msg = f"values {values.shape} do not match attention {attention.shape} along sequence, layer, head or key"
        raise ValueError(msg)
    if first_key.shape != (sequences, asked, layers) or len(queries) != asked:
        msg = (
            f"first_key {first_key.shape} and the {len(queries)} queries do not match attention {attention.shape} "
            "along sequence, query or layer"
        )
        raise ValueError(msg)
    if not all(0 < query < keys for query in queries):
        msg = f"queries must be positions from 1 to {keys - 1}, got {list(queries)}"
        raise ValueError(msg)


def make_key_arguments(first_key: da.Array, queries: Sequence[int]) -> tuple[da.Array, str, da.Array, str]:
    """Arguments of ``map_queries`` for the keys of a query: the first key, and the position of the query."""
    return rechunk(first_key, (1, 1, 1)), "sql", da.from_array(np.asarray(queries), chunks=1), "q"


def map_queries(block: Callable[..., F32], axes: str, *arrays: object, **settings: Any) -> da.Array:
    """Apply ``block`` to blocks of ``arrays``, each followed by its axes, one query and layer to a block; float32."""
    result: da.Array = da.blockwise(
        block,
        axes,
        *arrays,
        concatenate=True,
        align_arrays=False,
        dtype=np.float32,
        meta=make_meta(len(axes)),
        **settings,
    )
    return result


def rechunk(array: da.Array, chunks: Any) -> da.Array:
    """Rechunk by tasks: without an explicit method, Dask would import the distributed package to choose one."""
    result: da.Array = array.rechunk(chunks, method="tasks")
    return result


def find_attended_keys(first_key: Index, query: Index) -> slice:
    """The keys of the query of one block, as a slice."""
    return slice(int(first_key[0, 0, 0]), int(query[0]) + 1)


def group_heads(attention: F32, kv_heads: int) -> F32:
    """The weights of one block by KV head: (1, 1, 1, head, key) → (kv_head, group, key)."""
    return attention.reshape(kv_heads, -1, attention.shape[-1])


def make_meta(axes: int) -> F32:
    """An empty array, from which Dask takes the type of a block."""
    return np.empty((0,) * axes, np.float32)
