"""The profile over whole studies: the same numbers as lazy Dask arrays, block by block.

Builds lazy Dask arrays of any size of ``selection_profile`` and of the per-position statistics. Nothing here opens a
file or computes an array. What does not belong here: kernels, and reading or writing the arrays.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import dask.array as da
import numpy as np

from geometry.arrays import F32
from geometry.assumptions.similarity import cosine_by_distance, cosines_with, sink_cosines
from geometry.bounds.scale_free import scale_free_lower_bounds
from geometry.grids import quantile_over_ln_n
from geometry.lazy.blocks import (
    Index,
    check_stores,
    find_attended_keys,
    group_heads,
    make_key_arguments,
    make_meta,
    map_queries,
    rechunk,
)
from geometry.quantities import (
    BY_HEAD,
    BY_KAPPA,
    BY_KV_HEAD,
    BY_N,
    SELECTION,
    Concentration,
    OutputParts,
    ScaleFreeBounds,
    SelectionProfile,
    list_declared,
)
from geometry.selection.concentration import concentration, estimate_concentration_bytes
from geometry.selection.parts import output_parts
from geometry.selection.profile import Scale, estimate_scratch_bytes, selection_profile

PROFILE = tuple(list_declared(SelectionProfile, BY_N))
"""The arrays of a profile with one number per N."""

PER_KAPPA = tuple(list_declared(SelectionProfile, BY_KAPPA))
"""The arrays of a profile with one number per κ and N."""

PER_HEAD = (*list_declared(SelectionProfile, BY_HEAD), *list_declared(OutputParts), *list_declared(Concentration))
"""The arrays with one number per query and head."""

PER_KV_HEAD = (*list_declared(SelectionProfile, BY_KV_HEAD), "rho_0_of_keys")
"""The arrays with one number per query and KV head."""


def build_selection_arrays(
    attention: da.Array,
    values: da.Array,
    first_key: da.Array,
    queries: Sequence[int],
    *,
    kappas: Sequence[float] = (0.5,),
    scale: Scale = "unit",
    device: str | None = None,
) -> dict[str, da.Array]:
    """``selection_profile`` of every sequence, query, layer and head, and other quantities of a query's keys, lazily.

    Parameters
    ----------
    attention
        Weights of some queries, float32 (sequence, query, layer, head, key).
    values
        Value states, float32 (sequence, layer, kv_head, key, head_dim). Query head h reads KV head
        h // (head / kv_head).
    first_key
        First key a query may attend to, int (sequence, query, layer); earlier keys are not used.
    queries
        Position of each query, the same in every sequence; later keys are not used.
    kappas, scale, device
        As for ``selection_profile``.

    Returns
    -------
    dict
        Arrays by name, in the dtypes that ``geometry.quantities.SELECTION`` declares. The axes are (sequence, query,
        layer, head) and N up to the last of ``queries`` for the arrays of ``PROFILE``, κ and N for those of
        ``PER_KAPPA``; elements beyond the n − 1 of a query are −1 or NaN. ``PER_HEAD`` and ``cos_last_p05`` have
        (sequence, query, layer, head), ``PER_KV_HEAD`` (sequence, query, layer, kv_head), ``n_keys`` (sequence, query,
        layer), ``cos_last_of_keys`` (sequence, query, layer, kv_head, key) and ``cos_sink_of_keys`` (sequence, layer,
        kv_head, key). One block is one layer of one query of one sequence (or some of its heads, if ``values`` is
        chunked along kv_head).

    Raises
    ------
    ValueError
        If axes that must agree do not, or a query is not a valid position.
    """
    check_stores(attention, values, first_key, queries)
    values = rechunk(values, {0: 1, 1: 1, 3: -1, 4: -1})
    group = attention.shape[3] // values.shape[2]
    head_chunks = tuple(group * length for length in values.chunks[2])
    of_heads = (rechunk(attention, (1, 1, 1, head_chunks, -1)), "sqlhk")
    of_values = (values, "slhkd")  # h counts KV heads here: their blocks are paired with those of the query heads
    of_keys = make_key_arguments(first_key, queries)
    stacked = map_queries(
        _profile_block,
        "msqlhn",
        *(*of_heads, *of_values, *of_keys),
        new_axes={"m": len(PROFILE) + len(PER_KAPPA) * len(kappas), "n": max(queries)},
        kappas=tuple(kappas),
        scale=scale,
        device=device,
        longest=max(queries),
    )
    totals = map_queries(_compute_head_block, "msqlh", *of_heads, *of_values, *of_keys, new_axes={"m": len(PER_HEAD)})
    profile = _name_arrays(PROFILE, stacked)
    kv_totals = map_queries(
        _compute_kv_head_block,
        "msqlh",
        value_norms(values),
        "slhk",
        *of_values,
        *of_keys,
        new_axes={"m": len(PER_KV_HEAD)},
    )
    return {
        **profile,
        "cos_last_p05": map_queries(_compute_quantile_block, "sqlh", profile["cos_last"], "sqlhn", *of_keys),
        **{
            name: da.moveaxis(stacked[len(PROFILE) + index :: len(PER_KAPPA)], 0, 4)
            for index, name in enumerate(PER_KAPPA)
        },
        **_name_arrays(PER_HEAD, totals),
        **_name_arrays(PER_KV_HEAD, kv_totals),
        "n_keys": (1 - first_key + np.asarray(queries)[:, None]).astype(np.int32),
        "cos_last_of_keys": map_queries(_compute_cos_last_block, "sqlhk", *of_values, *of_keys),
        "cos_sink_of_keys": da.map_blocks(
            _compute_cos_sink_block, values, dtype=np.float32, drop_axis=4, meta=make_meta(4)
        ),
    }


def _name_arrays(names: Sequence[str], stacked: da.Array) -> dict[str, da.Array]:
    """The first arrays of a stack by name, each in the dtype in which it is stored."""
    return {name: stacked[index].astype(SELECTION[name].dtype) for index, name in enumerate(names)}


def value_norms(values: da.Array) -> da.Array:
    """‖v_i‖ of every value state: float32 (sequence, layer, kv_head, key), in model units."""
    norms: da.Array = da.map_blocks(_compute_norm_block, rechunk(values, {4: -1}), dtype=np.float32, drop_axis=4)
    return norms


def build_similarities(values: da.Array) -> dict[str, da.Array]:
    """Cosines of the value states of a sequence (Assumption 2), lazily; a block is one layer of one sequence.

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
    whole: Any = rechunk(values, {0: 1, 1: 1, 3: -1, 4: -1})
    cosines: da.Array = whole.map_blocks(_compute_cosine_block, dtype=np.float32, drop_axis=4, meta=make_meta(4))
    sinks: da.Array = whole.map_blocks(
        _compute_sink_block, dtype=np.float32, drop_axis=4, chunks=_pair_chunks(whole), meta=make_meta(4)
    )
    return {"mean_cosine": cosines, "rho_0": sinks[..., 0], "rho_0_sd": sinks[..., 1]}


def build_scale_free_bounds(
    attention: da.Array, norms: da.Array, first_key: da.Array, queries: Sequence[int], *, head_dim: int
) -> dict[str, da.Array]:
    """``scale_free_lower_bounds`` of every sequence, query, layer and head, lazily.

    Parameters
    ----------
    attention, first_key, queries
        As for ``build_selection_arrays``.
    norms
        ``value_norms`` of the value states, (sequence, layer, kv_head, key).
    head_dim
        d, the length of a value state.

    Returns
    -------
    dict
        ``precision_lower_scale_free`` and ``recall_lower_scale_free``, float32 (sequence, query, layer, head, N), N up
        to the last of ``queries``; elements beyond the n − 1 of a query are NaN. One block is one layer of one query of
        one sequence.
    """
    stacked = map_queries(
        _compute_scale_free_block,
        "msqlhn",
        rechunk(attention, (1, 1, 1, -1, -1)),
        "sqlhk",
        rechunk(norms, (1, 1, -1, -1)),
        "slgk",
        *make_key_arguments(first_key, queries),
        new_axes={"m": len(list_declared(ScaleFreeBounds)), "n": max(queries)},
        head_dim=head_dim,
        longest=max(queries),
    )
    return {f"{name}_scale_free": stacked[index] for index, name in enumerate(list_declared(ScaleFreeBounds))}


def estimate_block_bytes(sizes: Mapping[str, int], heads: int, kv_heads: int, kappas: int = 1) -> int:
    """Upper bound of the memory of one block of ``build_selection_arrays`` while it is computed on the CPU, in bytes.

    It includes the input of this block and of the next; the stacked profile, that of the previous block and its copies
    by name; and the larger of the profile in float64 with the scratch memory of one head, and the memory of
    ``concentration``. A run of one query on T threads holds at most T of these at a time, for a study of any length.
    Queries that are computed together share value states, which Dask then reads ahead of their blocks: compute queries
    one by one.

    Parameters
    ----------
    sizes
        Sizes of the axes ``key`` and ``head_dim``.
    heads, kv_heads
        Query heads and KV heads of one block.
    kappas
        Number of κ.
    """
    n, head_dim = sizes["key"], sizes["head_dim"]
    loaded = 2 * 4 * n * (heads + kv_heads * head_dim)
    numbers = (len(PROFILE) + len(PER_KAPPA) * kappas) * heads * n
    computing = max(8 * numbers + estimate_scratch_bytes(n, head_dim), estimate_concentration_bytes(heads, n))
    return loaded + 3 * 4 * numbers + computing


def estimate_similarity_bytes(sizes: Mapping[str, int], kv_heads: int) -> int:
    """Upper bound of the memory of one block of ``build_similarities`` while it is computed, in bytes.

    It includes the input of this block and of the next, and for one head the directions, their transpose, the padded
    input of the Fourier transform, and its result.

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
    attention: F32,
    values: F32,
    first_key: Index,
    query: Index,
    *,
    kappas: tuple[float, ...],
    scale: Scale,
    device: str | None,
    longest: int,
) -> F32:
    """One block: (1, 1, 1, head, key), (1, 1, kv_head, key, head_dim), (1, 1, 1), (1) → (m, 1, 1, 1, head, longest).

    m runs over the arrays of ``PROFILE``, then over those of ``PER_KAPPA`` for each κ. float32 represents counts of up
    to 2²⁴ keys exactly.
    """
    weights, states = group_heads(attention, values.shape[2]), values[0, 0, :, None]
    stacked = np.full((len(PROFILE) + len(PER_KAPPA) * len(kappas), *weights.shape[:2], longest), np.nan, np.float32)
    for row, name in zip(stacked, PROFILE, strict=False):
        row[:] = SELECTION[name].fill
    keys = find_attended_keys(first_key, query)
    n = keys.stop - keys.start
    if n >= 2:
        seen = selection_profile(
            weights[..., keys], states[..., keys, :], sink=keys.start == 0, kappas=kappas, scale=scale, device=device
        )
        for index, name in enumerate(PROFILE):
            stacked[index, ..., : n - 1] = getattr(seen, name)
        for index, name in enumerate(PER_KAPPA):
            rows = stacked[len(PROFILE) + index :: len(PER_KAPPA), ..., : n - 1]
            rows[:] = np.moveaxis(getattr(seen, name), -2, 0)
    return stacked.reshape(-1, 1, 1, 1, attention.shape[3], longest)


def _compute_head_block(attention: F32, values: F32, first_key: Index, query: Index) -> F32:
    """The arrays of ``PER_HEAD`` of one block, arguments as for ``_profile_block`` → (m, 1, 1, 1, head)."""
    keys = find_attended_keys(first_key, query)
    seen = group_heads(attention, values.shape[2])[..., keys], values[0, 0, :, None, keys]
    of_query = [of(*seen, sink=keys.start == 0) for of in (output_parts, concentration)]
    found = vars(of_query[0]) | vars(of_query[1]) | {"weight_sum": seen[0].sum(axis=-1, dtype=np.float64)}
    return np.stack([found[name].ravel() for name in PER_HEAD]).astype(np.float32)[:, None, None, None]


def _compute_quantile_block(curves: F32, first_key: Index, query: Index) -> F32:
    """The 5 % quantile over ln N of one block: (1, 1, 1, head, N) → (1, 1, 1, head)."""
    keys = find_attended_keys(first_key, query)
    return quantile_over_ln_n(curves[..., : max(keys.stop - keys.start - 1, 0)], 0.05).astype(np.float32)


def _compute_kv_head_block(norms: F32, values: F32, first_key: Index, query: Index) -> F32:
    """The arrays of ``PER_KV_HEAD`` of one block, ``norms`` (1, 1, kv_head, key) → (m, 1, 1, 1, kv_head).

    C is NaN if the sink is the only key, ρ_0 if a window hides the sink.
    """
    keys = find_attended_keys(first_key, query)
    found = np.full((len(PER_KV_HEAD), 1, 1, 1, values.shape[2]), np.nan, np.float32)
    others = norms[0, 0, :, max(keys.start, 1) : keys.stop]
    if others.shape[-1]:
        found[0, 0, 0, 0] = np.median(others, axis=-1)
    if keys.start == 0:
        found[1, 0, 0, 0] = sink_cosines(values[0, 0, :, keys])[0]
    return found


def _compute_cos_last_block(values: F32, first_key: Index, query: Index) -> F32:
    """Cosines with the last token of one layer and query: (1, 1, kv_head, key, d), … → (1, 1, 1, kv_head, key)."""
    keys = find_attended_keys(first_key, query)
    found = np.full((1, *values.shape[:-1]), np.nan, np.float32)
    found[..., keys] = cosines_with(values[..., keys, :], -1)
    return found


def _compute_cos_sink_block(values: F32) -> F32:
    """Cosines with the sink: (…, key, head_dim) → (…, key)."""
    return cosines_with(values, 0).astype(np.float32)


def _pair_chunks(values: da.Array) -> tuple[tuple[int, ...], ...]:
    """Chunks of an array with two numbers for every head of ``values``."""
    return (*values.chunks[:3], (2,))


def _compute_cosine_block(values: F32) -> F32:
    """Mean cosines by distance: (…, key, head_dim) → (…, key)."""
    return cosine_by_distance(values).astype(np.float32)


def _compute_sink_block(values: F32) -> F32:
    """Mean and standard deviation of the sink's cosines: (…, key, head_dim) → (…, 2)."""
    return np.stack(sink_cosines(values), axis=-1).astype(np.float32)


def _compute_scale_free_block(
    attention: F32,
    norms: F32,
    first_key: Index,
    query: Index,
    *,
    head_dim: int,
    longest: int,
) -> F32:
    """Bounds, one layer of one query: (1, 1, 1, head, key), (1, 1, kv_head, key), … → (m, 1, 1, 1, head, longest)."""
    weights, keys = group_heads(attention, norms.shape[2]), find_attended_keys(first_key, query)
    found = np.full((len(list_declared(ScaleFreeBounds)), *weights.shape[:2], longest), np.nan, np.float32)
    n = keys.stop - keys.start
    if n >= 2:
        bounds = scale_free_lower_bounds(weights[..., keys], norms[0, 0, :, None, keys], head_dim)
        for row, name in zip(found, list_declared(ScaleFreeBounds), strict=True):
            row[..., : n - 1] = getattr(bounds, name)
    return found.reshape(-1, 1, 1, 1, attention.shape[3], longest)


def _compute_norm_block(values: F32) -> F32:
    """Norms along the last axis, summed in float64."""
    norms: F32 = np.sqrt(np.einsum("...d,...d->...", values, values, dtype=np.float64)).astype(np.float32)
    return norms
