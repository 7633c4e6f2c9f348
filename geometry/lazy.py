"""The profile over whole studies: the same numbers as lazy Dask arrays, block by block.

Holds the lifting of ``selection_profile`` and of the per-position statistics to Dask arrays of any size. What does not
belong here: kernels, and where the arrays come from or go to; nothing here opens a file or computes.
"""

from collections.abc import Mapping, Sequence

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from geometry.profile import PER_KAPPA, PROFILE, Scale, scratch_bytes, selection_profile
from geometry.scale_free import scale_free_lower_bounds
from geometry.similarity import cosine_by_distance, sink_cosines

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


def similarities(values: da.Array) -> dict[str, da.Array]:
    """How the value states of a sequence lie to each other (Assumption 2), lazily, one layer of a sequence to a block.

    Parameters
    ----------
    values
        Value states of all positions, float32 (sequence, layer, kv_head, key, head_dim).

    Returns
    -------
    dict
        ``mean_cosine``, float32 (sequence, layer, kv_head, key): ``cosine_by_distance``, element i for distance i;
        ``rho_0`` and ``rho_0_sd``, float32 (sequence, layer, kv_head): ``sink_cosines``.
    """
    whole = values.rechunk({0: 1, 1: 1, 3: -1, 4: -1})
    cosines: da.Array = whole.map_blocks(_cosine_block, dtype=np.float32, drop_axis=4, meta=_empty(4))
    sinks: da.Array = whole.map_blocks(_sink_block, dtype=np.float32, drop_axis=4, chunks=_pairs(whole), meta=_empty(4))
    return {"mean_cosine": cosines, "rho_0": sinks[..., 0], "rho_0_sd": sinks[..., 1]}


def scale_free_bounds(
    attention: da.Array, norms: da.Array, first_key: da.Array, *, head_dim: int
) -> dict[str, da.Array]:
    """``scale_free_lower_bounds`` of every sequence, layer and head, lazily.

    Parameters
    ----------
    attention, first_key
        As for ``selection_arrays``.
    norms
        ``value_norms`` of the value states, (sequence, layer, kv_head, key).
    head_dim
        d, the length of a value state.

    Returns
    -------
    dict
        ``precision_lower_scale_free`` and ``recall_lower_scale_free``, float32 (sequence, layer, head, N); elements
        beyond a layer's own n − 1 hold NaN. One block is one layer of one sequence.
    """
    keys = attention.shape[3]
    stacked = da.blockwise(
        _scale_free_block,
        "mslhn",
        attention.rechunk((1, 1, -1, -1)),
        "slhk",
        norms.rechunk((1, 1, -1, -1)),
        "slgk",
        first_key.rechunk((1, 1)),
        "sl",
        new_axes={"m": 2, "n": keys - 1},
        concatenate=True,
        dtype=np.float32,
        meta=_empty(5),
        head_dim=head_dim,
    )
    return {"precision_lower_scale_free": stacked[0], "recall_lower_scale_free": stacked[1]}


def over_sequences(array: da.Array) -> tuple[da.Array, da.Array]:
    """Mean and standard deviation (divisor: their number) along the first axis of what is no NaN, float64.

    Not ``da.nanstd``, which warns where everything is NaN.
    """
    mean = da.nanmean(array, axis=0, dtype=np.float64)
    return mean, da.sqrt(da.nanmean(da.square(array - mean), axis=0))


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


def similarity_bytes(sizes: Mapping[str, int], kv_heads: int) -> int:
    """Upper bound of the memory one block of ``similarities`` takes while it is computed, in bytes.

    The input of this block and of the next, and for one head the directions, their transpose, what the Fourier
    transform pads them to, and its result.

    Parameters
    ----------
    sizes
        Sizes of the axes ``key`` and ``head_dim``.
    kv_heads
        KV heads of one block.
    """
    numbers = sizes["key"] * sizes["head_dim"]
    return 2 * 4 * kv_heads * numbers + (4 + 2 + 2) * 8 * numbers + 32 * sizes["key"] * kv_heads + 2**18


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


def _empty(axes: int) -> NDArray[np.float32]:
    """What Dask takes a block's type from."""
    return np.empty((0,) * axes, np.float32)


def _pairs(values: da.Array) -> tuple[tuple[int, ...], ...]:
    """Chunks of an array with two numbers for every head of ``values``."""
    return (*values.chunks[:3], (2,))


def _cosine_block(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """(…, key, head_dim) → (…, key)."""
    return cosine_by_distance(values).astype(np.float32)


def _sink_block(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """(…, key, head_dim) → (…, 2): mean and spread."""
    return np.stack(sink_cosines(values), axis=-1).astype(np.float32)


def _scale_free_block(
    attention: NDArray[np.float32], norms: NDArray[np.float32], first_key: NDArray[np.integer], *, head_dim: int
) -> NDArray[np.float32]:
    """One layer: (1, 1, head, key), (1, 1, kv_head, key), (1, 1) → (2, 1, 1, head, key − 1)."""
    _, _, heads, keys = attention.shape
    kv_heads, first = norms.shape[2], int(first_key[0, 0])
    found = np.full((2, kv_heads, heads // kv_heads, keys - 1), np.nan, np.float32)
    n = keys - first
    if n >= 2:
        bounds = scale_free_lower_bounds(
            attention[0, 0, :, first:].reshape(kv_heads, heads // kv_heads, n), norms[0, 0, :, None, first:], head_dim
        )
        found[0, ..., : n - 1], found[1, ..., : n - 1] = bounds.precision_lower, bounds.recall_lower
    return found.reshape(2, 1, 1, heads, keys - 1)


def _norm_block(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Norms along the last axis, summed in float64."""
    norms: NDArray[np.float32] = np.sqrt(np.einsum("...d,...d->...", values, values, dtype=np.float64)).astype(
        np.float32
    )
    return norms
