"""The profile over whole studies: the same numbers as lazy Dask arrays, block by block.

Holds the lifting of ``selection_profile`` and of the per-position statistics to Dask arrays of any size. What does not
belong here: kernels, and where the arrays come from or go to; nothing here opens a file or computes.
"""

from collections.abc import Mapping, Sequence

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from geometry.profile import PER_KAPPA, PROFILE, Scale, scratch_bytes, selection_profile

COUNTS = ("k_in", "k_out")
"""The arrays of a profile that are counts (int32); all others are stored as float32."""


def selection_arrays(
    attention: da.Array,
    values: da.Array,
    first_key: da.Array,
    *,
    kappas: Sequence[float] = (0.5,),
    scale: Scale = "unit",
    device: str | None = None,
) -> dict[str, da.Array]:
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
    kappas, scale, device
        As for ``selection_profile``.

    Returns
    -------
    dict
        The arrays of ``SelectionProfile`` by name, int32 or float32 (sequence, layer, head, N), N running to key − 1;
        elements beyond a layer's own n − 1 hold −1 or NaN. Those of one number per κ are (sequence, layer, head, κ, N),
        ``weight_sum`` is (sequence, layer, head), ``value_scale`` (sequence, layer, kv_head); ``n_keys``, int32
        (sequence, layer), goes with them. One block is one layer of one sequence (or some of its heads, if ``values``
        is chunked along kv_head).

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
        new_axes={"m": len(PROFILE) + len(PER_KAPPA) * len(kappas), "n": keys - 1},
        concatenate=True,
        align_arrays=False,
        dtype=np.float32,
        meta=np.empty((0,) * 5, np.float32),
        kappas=tuple(kappas),
        scale=scale,
        device=device,
    )
    return {
        **{name: stacked[index].astype(np.int32) for index, name in enumerate(PROFILE) if name in COUNTS},
        **{name: stacked[index] for index, name in enumerate(PROFILE) if name not in COUNTS},
        **{
            name: da.moveaxis(stacked[len(PROFILE) + index :: len(PER_KAPPA)], 0, 3)
            for index, name in enumerate(PER_KAPPA)
        },
        "weight_sum": attention.sum(axis=-1, dtype=np.float64).astype(np.float32),
        "value_scale": _value_scales(value_norms(values), first_key),
        "n_keys": (keys - first_key).astype(np.int32),
    }


def _value_scales(norms: da.Array, first_key: da.Array) -> da.Array:
    """C of every sequence, layer and KV head: float32 (sequence, layer, kv_head); ``norms`` one layer to a block."""
    scales: da.Array = da.blockwise(
        _scale_block,
        "slh",
        norms,
        "slhk",
        first_key.rechunk((1, 1)),
        "sl",
        concatenate=True,
        dtype=np.float32,
        meta=np.empty((0,) * 3, np.float32),
    )
    return scales


def value_norms(values: da.Array) -> da.Array:
    """‖v_i‖ of every value state: float32 (sequence, layer, kv_head, key), in model units."""
    norms: da.Array = da.map_blocks(_norm_block, values.rechunk({4: -1}), dtype=np.float32, drop_axis=4)
    return norms


def over_sequences(array: da.Array) -> tuple[da.Array, da.Array]:
    """Mean and standard deviation (divisor: sequences) along the first axis, float64 without that axis."""
    return array.mean(axis=0, dtype=np.float64), array.std(axis=0, dtype=np.float64)


def block_bytes(sizes: Mapping[str, int], heads: int, kv_heads: int, kappas: int = 1) -> int:
    """Upper bound of the memory one block of ``selection_arrays`` takes while it is computed on the CPU, in bytes.

    The input of this block and of the next; the profile in float64 and in its stacked form, that of the block before
    and its copies by name; and the scratch of one head. A run on T threads holds at most T of these at once, however
    long the study.

    Parameters
    ----------
    sizes
        Sizes of the axes ``key`` and ``head_dim``.
    heads, kv_heads
        Query heads and KV heads of one block.
    kappas
        How many κ there are.
    """
    n, head_dim = sizes["key"], sizes["head_dim"]
    loaded = 2 * 4 * n * (heads + kv_heads * head_dim)
    results = (8 + 3 * 4) * (len(PROFILE) + len(PER_KAPPA) * kappas) * heads * n
    return loaded + results + scratch_bytes(n, head_dim)


def _profile_block(
    attention: NDArray[np.float32],
    values: NDArray[np.float32],
    first_key: NDArray[np.integer],
    *,
    kappas: tuple[float, ...],
    scale: Scale,
    device: str | None,
) -> NDArray[np.float32]:
    """One block: (1, 1, head, key), (1, 1, kv_head, key, head_dim), (1, 1) → (m, 1, 1, head, key − 1), float32.

    m counts the arrays of ``PROFILE``, then those of ``PER_KAPPA`` for one κ after the other. float32 holds counts
    exactly, up to 2²⁴ keys.
    """
    _, _, heads, keys = attention.shape
    kv_heads = values.shape[2]
    first = int(first_key[0, 0])
    stacked = np.full(
        (len(PROFILE) + len(PER_KAPPA) * len(kappas), kv_heads, heads // kv_heads, keys - 1), np.nan, np.float32
    )
    stacked[[PROFILE.index(name) for name in COUNTS]] = -1
    n = keys - first
    if n >= 2:
        seen = selection_profile(
            attention[0, 0, :, first:].reshape(kv_heads, heads // kv_heads, n),
            values[0, 0, :, None, first:],
            sink=first == 0,
            kappas=kappas,
            scale=scale,
            device=device,
        )
        for index, name in enumerate(PROFILE):
            stacked[index, ..., : n - 1] = getattr(seen, name)
        for index, name in enumerate(PER_KAPPA):
            rows = stacked[len(PROFILE) + index :: len(PER_KAPPA), ..., : n - 1]
            rows[:] = np.moveaxis(getattr(seen, name), -2, 0)
    return stacked.reshape(-1, 1, 1, heads, keys - 1)


def _scale_block(norms: NDArray[np.float32], first_key: NDArray[np.integer]) -> NDArray[np.float32]:
    """C of one layer: (1, 1, kv_head, key), (1, 1) → (1, 1, kv_head); NaN where the sink is the only key."""
    attended = norms[..., max(int(first_key[0, 0]), 1) :]
    if attended.shape[-1] == 0:
        return np.full(norms.shape[:3], np.nan, np.float32)
    scales: NDArray[np.float32] = np.median(attended, axis=-1)
    return scales


def _norm_block(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Norms along the last axis, summed in float64."""
    norms: NDArray[np.float32] = np.sqrt(np.einsum("...d,...d->...", values, values, dtype=np.float64)).astype(
        np.float32
    )
    return norms
