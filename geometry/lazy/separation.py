"""Measures and their null models over whole studies: ``separability`` as lazy Dask arrays, block by block.

Builds lazy Dask arrays of ``geometry.separation.chance.separability``. Nothing here opens a file or computes an array.
What does not belong here: kernels, and reading or writing the arrays.
"""

from collections.abc import Mapping, Sequence

import dask.array as da
import numpy as np

from geometry.arrays import F32, I64
from geometry.lazy.blocks import (
    Index,
    check_stores,
    find_attended_keys,
    group_heads,
    make_key_arguments,
    map_queries,
    rechunk,
)
from geometry.separation.chance import estimate_scratch_bytes, separability
from geometry.separation.comparisons import MEASURES
from geometry.separation.nulls import NULLS

SOURCES = ("observed", *NULLS)
"""Sources of the measures, in order: the selections themselves, and the null models."""


def build_separability_arrays(
    attention: da.Array,
    values: da.Array,
    first_key: da.Array,
    queries: Sequence[int],
    *,
    sequences: Sequence[int],
    layers: Sequence[int],
    n: I64,
    draws: int,
    seed: int,
    device: str | None = None,
) -> dict[str, da.Array]:
    """``separability`` of every sequence, query, layer and head, lazily.

    Parameters
    ----------
    attention, values, first_key, queries
        Weights of some queries, float32 (sequence, query, layer, head, key); value states, float32 (sequence, layer,
        kv_head, key, head_dim), query head h reads KV head h // (head / kv_head); the first key that each query may
        attend to, int (sequence, query, layer); and the position of each query, the same in every sequence.
    sequences, layers
        Numbers of these sequences and layers in the study. With ``seed``, the position of the query and the head, they
        identify the random draws, which are therefore the same for any division of a study into arrays.
    n
        N, ascending, (grid,), the same for all queries; ``log_grid`` of the longest query's number of keys.
    draws
        Draws of each null, at least 0.
    seed
        A whole number ≥ 0.
    device
        As for ``selection_profile``.

    Returns
    -------
    dict
        By name of ``SOURCES``, float32 (sequence, query, layer, head, measure, grid), measures in the order of
        ``MEASURES``. NaN where N is not below the number of keys of a query. One block is one layer of one query of
        one sequence (or some of its heads, if ``values`` is chunked along kv_head).

    Raises
    ------
    ValueError
        If axes that must agree do not, or a query is not a valid position.
    """
    check_stores(attention, values, first_key, queries)
    if (len(sequences), len(layers)) != values.shape[:2]:
        msg = f"{len(sequences)} sequences and {len(layers)} layers do not match values {values.shape}"
        raise ValueError(msg)
    values = rechunk(values, {0: 1, 1: 1, 3: -1, 4: -1})
    group = attention.shape[3] // values.shape[2]
    head_chunks = tuple(group * length for length in values.chunks[2])
    places = np.meshgrid(sequences, queries, layers, np.arange(attention.shape[3]), indexing="ij")
    words = np.stack([np.full_like(places[0], seed), *places], axis=-1)
    stacked = map_queries(
        _compute_separability_block,
        "xsqlhmn",
        *(rechunk(attention, (1, 1, 1, head_chunks, -1)), "sqlhk"),
        *(values, "slhkd"),  # h counts KV heads here: their blocks are paired with those of the query heads
        *make_key_arguments(first_key, queries),
        *(da.from_array(words, chunks=(1, 1, 1, head_chunks, -1)), "sqlhw"),
        new_axes={"x": len(SOURCES), "m": len(MEASURES), "n": len(n)},
        n=np.asarray(n),
        draws=draws,
        device=device,
    )
    return {name: stacked[index] for index, name in enumerate(SOURCES)}


def estimate_block_bytes(sizes: Mapping[str, int], heads: int, kv_heads: int, grid: int) -> int:
    """Upper bound in bytes of the memory of one block of ``build_separability_arrays``, computed on the CPU.

    It includes the input of this block and of the next; the measures in float64 and stacked, those of the previous
    block and their copies by name; and the scratch memory of one head. A run of one query on T threads holds at most T
    of these at a time, for a study of any length.

    Parameters
    ----------
    sizes
        Sizes of the axes ``key`` and ``head_dim``.
    heads, kv_heads
        Query heads and KV heads of one block.
    grid
        Number of N.
    """
    keys, head_dim = sizes["key"], sizes["head_dim"]
    loaded = 2 * 4 * keys * (heads + kv_heads * head_dim)
    results = (2 * 8 + 3 * 4) * len(SOURCES) * len(MEASURES) * heads * grid
    return loaded + results + estimate_scratch_bytes(keys, head_dim, grid)


def _compute_separability_block(
    attention: F32,
    values: F32,
    first_key: Index,
    query: Index,
    words: I64,
    *,
    n: I64,
    draws: int,
    device: str | None,
) -> F32:
    """One block; arrays as in ``build_separability_arrays``, (1, 1, 1, head, words) → (x, 1, 1, 1, head, m, grid)."""
    weights, keys = group_heads(attention, values.shape[2]), find_attended_keys(first_key, query)
    found = np.full((len(SOURCES), *weights.shape[:2], len(MEASURES), len(n)), np.nan, np.float32)
    below = n < keys.stop - keys.start
    if below.any():
        seen = separability(
            weights[..., keys],
            values[0, 0, :, None, keys],
            n[below],
            draws=draws,
            seed=words.reshape(*weights.shape[:2], -1),
            sink=keys.start == 0,
            device=device,
        )
        for index, name in enumerate(SOURCES):
            found[index][..., below] = getattr(seen, name)
    return found.reshape(len(SOURCES), 1, 1, 1, attention.shape[3], len(MEASURES), len(n))
