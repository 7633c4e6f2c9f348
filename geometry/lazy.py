"""The profile over whole studies: the same numbers as lazy Dask arrays, block by block.

Holds the lifting of ``selection_profile`` and of the per-position statistics to Dask arrays of any size. What does not
belong here: kernels, and where the arrays come from or go to; nothing here opens a file or computes.
"""

from collections.abc import Mapping

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from geometry.profile import PROFILE, scratch_bytes, selection_profile

COUNTS = ("k_in", "k_out")
"""The arrays of a profile that are counts (int32); all others are stored as float32."""


def selection_arrays(attention: da.Array, values: da.Array, first_key: da.Array) -> dict[str, da.Array]:
    """``selection_profile`` of every sequence, layer and head, lazily.

    Parameters
    ----------
    attention
        Weights of the last query, float32 (sequence, layer, head, key).
    values
        Value states, float32 (sequence, layer, kv_head, key, head_dim). Query head h reads KV head
        h // (head / kv_head).
    first_key
        First key the query may attend to, int (sequence, layer); keys before it are no tokens.

    Returns
    -------
    dict
        The arrays of ``SelectionProfile`` by name, int32 or float32 (sequence, layer, head, N), N running to key − 1;
        elements beyond a layer's own n − 1 hold −1 or NaN. And ``n_keys``, int32 (sequence, layer).
        One block is one layer of one sequence (or some of its heads, if ``values`` is chunked along kv_head).

    Raises
    ------
    ValueError
        If axes that must agree do not.
    """
    sequences, layers, heads, keys = attention.shape
    if values.shape[:2] != (sequences, layers) or values.shape[3] != keys or heads % values.shape[2]:
        msg = f"values {values.shape} do not match attention {attention.shape} along sequence, layer, head or key"
        raise ValueError(msg)
    group = heads // values.shape[2]
    values = values.rechunk({0: 1, 1: 1, 3: -1, 4: -1})
    head_chunks = tuple(group * length for length in values.chunks[2])
    stacked = da.blockwise(
        _profile_block,
        "mslhn",
        attention.rechunk((1, 1, head_chunks, -1)),
        "slhk",
        values,
        "slhkd",  # h here counts KV heads: their blocks pair off with those of the query heads
        first_key.rechunk((1, 1)),
        "sl",
        new_axes={"m": len(PROFILE), "n": keys - 1},
        concatenate=True,
        align_arrays=False,
        dtype=np.float64,
        meta=np.empty((0,) * 5, np.float64),
    )
    arrays = {
        name: stacked[index].astype(np.int32 if name in COUNTS else np.float32) for index, name in enumerate(PROFILE)
    }
    return arrays | {"n_keys": (keys - first_key).astype(np.int32)}


def value_norms(values: da.Array) -> da.Array:
    """‖v_i‖ of every value state: float32 (sequence, layer, kv_head, key), in model units."""
    norms: da.Array = da.map_blocks(_norm_block, values.rechunk({4: -1}), dtype=np.float32, drop_axis=4)
    return norms


def over_sequences(array: da.Array) -> tuple[da.Array, da.Array]:
    """Mean and standard deviation (divisor: sequences) along the first axis, float64 without that axis."""
    return array.mean(axis=0, dtype=np.float64), array.std(axis=0, dtype=np.float64)


def block_bytes(sizes: Mapping[str, int], heads: int, kv_heads: int) -> int:
    """Upper bound of the memory one block of ``selection_arrays`` takes while it is computed, in bytes.

    The input of this block and of the next; the profile, its stacked form and the stacked form of the block before;
    and the scratch of one head. A run on T threads holds at most T of these at once, however long the study.

    Parameters
    ----------
    sizes
        Sizes of the axes ``key`` and ``head_dim``.
    heads, kv_heads
        Query heads and KV heads of one block.
    """
    n, head_dim = sizes["key"], sizes["head_dim"]
    loaded = 2 * 4 * n * (heads + kv_heads * head_dim)
    results = 3 * 8 * len(PROFILE) * heads * n
    return loaded + results + scratch_bytes(n, head_dim)


def _profile_block(
    attention: NDArray[np.float32], values: NDArray[np.float32], first_key: NDArray[np.integer]
) -> NDArray[np.float64]:
    """One block: (1, 1, head, key), (1, 1, kv_head, key, head_dim), (1, 1) → (len(PROFILE), 1, 1, head, key − 1)."""
    _, _, heads, keys = attention.shape
    kv_heads = values.shape[2]
    first = int(first_key[0, 0])
    stacked = np.full((len(PROFILE), kv_heads, heads // kv_heads, keys - 1), np.nan)
    stacked[[PROFILE.index(name) for name in COUNTS]] = -1
    if keys - first >= 2:
        weights = attention[0, 0, :, first:].reshape(kv_heads, heads // kv_heads, keys - first)
        seen = selection_profile(weights, values[0, 0, :, None, first:], sink=first == 0)
        for index, name in enumerate(PROFILE):
            stacked[index, ..., : keys - first - 1] = getattr(seen, name)
    return stacked.reshape(len(PROFILE), 1, 1, heads, keys - 1)


def _norm_block(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Norms along the last axis, summed in float64."""
    norms: NDArray[np.float32] = np.sqrt(np.einsum("...d,...d->...", values, values, dtype=np.float64)).astype(
        np.float32
    )
    return norms
