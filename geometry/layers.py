"""All quantities of a selection for one layer of one sequence, or some of its heads.

Holds ``measure_layer``, which fills arrays of ``geometry.quantities.SELECTION``. What depends on value states alone is
computed once for all queries, and once for all query heads of a KV group. What does not belong here: files, Dask, and
how a quantity is computed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geometry.arrays import F32
from geometry.assumptions.values import cosines_with_one, mean_cosines, summarise_cosines, unit_vectors
from geometry.bounds.scale_free import bound_ordered
from geometry.grids import quantile_over_ln_n
from geometry.inputs import check_heads, choose_device
from geometry.quantities import SELECTION, ScaleFreeBounds, SelectionProfile, list_declared
from geometry.selection.concentration import concentration, estimate_concentration_bytes
from geometry.selection.host import CURVES, Scan, choose_unit, make_arrays, prepare_scan, profile_group
from geometry.selection.outputs import ERRORS, fill_errors, output_parts
from geometry.selection.profile import Scale, estimate_scratch_bytes
from geometry.selection.scan import Keys
from geometry.threads import one_blas_thread

Out = Mapping[str, NDArray[Any]]
"""Arrays of ``SELECTION`` by name."""


def make_outputs(sizes: Mapping[str, int]) -> dict[str, NDArray[Any]]:
    """Arrays of one layer by name that ``measure_layer`` fills, each with the fill value of its quantity.

    ``sizes`` are those of all axes but ``layer``.
    """
    return {
        name: np.full([sizes[axis] for axis in quantity.axes if axis != "layer"], quantity.fill, quantity.dtype)
        for name, quantity in SELECTION.items()
    }


@one_blas_thread
def measure_layer(
    weights: Iterable[F32],
    values: F32,
    first_keys: Sequence[int],
    queries: Sequence[int],
    out: Out,
    *,
    kappas: Sequence[float] = (0.5,),
    scale: Scale = "unit",
    device: str | None = None,
) -> None:
    """Fill the arrays of ``SELECTION`` except ``learned_sink`` for one layer of one sequence, or some of its heads.

    Parameters
    ----------
    weights
        Weights of each query, float32 (head, key); those of all queries are in memory.
    values
        Value states, float32 (kv_head, key, head_dim). Query head h reads KV head h // (head / kv_head).
    first_keys
        First key that each query may attend to, (query,); earlier keys are not used.
    queries
        Position of each query; later keys are not used.
    out
        Output by name: the axes that ``SELECTION`` declares except ``layer``, N up to the largest of ``queries``. The
        arrays hold the fill value of their quantity, which stays where the quantity does not exist.
    kappas, scale, device
        As for ``selection_profile``.

    Raises
    ------
    ValueError
        If axes that must agree do not, or a query is not a valid position; or as for ``selection_profile``.
    """
    if len(first_keys) != len(queries):
        raise ValueError(f"the {len(first_keys)} first keys do not match the {len(queries)} queries")
    if not all(0 < query < values.shape[1] for query in queries):
        raise ValueError(f"queries must be positions from 1 to {values.shape[1] - 1}, got {list(queries)}")
    seen = [slice(int(first), query + 1) for first, query in zip(first_keys, queries, strict=True)]
    _fill_positions(values, seen, out)
    settings: dict[str, Any] = {"kappas": kappas, "scale": scale}
    by_query: list[tuple[F32, slice, Out]] = []
    for index, (keys, of_query) in enumerate(zip(seen, weights, strict=True)):
        if of_query.shape[1] != values.shape[1] or of_query.shape[0] % values.shape[0]:
            raise ValueError(f"values {values.shape} do not match weights {of_query.shape} along head or key")
        grouped, states = of_query.reshape(len(values), -1, of_query.shape[-1])[..., keys], values[:, None, keys]
        target: Out = {name: array[index, ...] for name, array in out.items() if SELECTION[name].axes[0] == "query"}
        if keys.stop - keys.start >= 2:  # otherwise nothing is left out
            check_heads(grouped, states)
        by_query.append((grouped, keys, target))
    place = choose_device(None, values, device)
    for kv_head, states in enumerate(values):
        _fill_group(kv_head, *prepare_scan(states, place), by_query, settings)
    for grouped, keys, target in by_query:
        _fill_totals(grouped, values[:, None, keys], target, sink=keys.start == 0)


def _fill_positions(values: F32, seen: Sequence[slice], out: Out) -> None:
    """Fill the arrays that depend on value states and positions alone; seen: the keys of each query."""
    norms = np.sqrt(np.einsum("hkd,hkd->hk", values, values, dtype=np.float64))
    out["value_norm"][:] = norms
    for head, states in enumerate(values):
        unit, directed = unit_vectors(states)
        of_sink = cosines_with_one(unit, directed, 0)
        out["cos_sink_of_keys"][head], out["mean_cosine"][head] = of_sink, mean_cosines(unit, directed)
        out["rho_0"][head], out["rho_0_sd"][head] = summarise_cosines(of_sink)
        for query, keys in enumerate(seen):
            others = norms[head, max(keys.start, 1) : keys.stop]
            if others.size:
                out["value_scale"][query, head] = np.median(others)
            if keys.start == 0:
                out["rho_0_of_keys"][query, head] = summarise_cosines(of_sink[keys])[0]
            out["cos_last_of_keys"][query, head, keys] = cosines_with_one(unit[keys], directed[keys], -1)
    out["n_keys"][:] = [keys.stop - keys.start for keys in seen]


def _fill_group(
    kv_head: int, of_positions: Keys, scan: Scan, by_query: Sequence[tuple[F32, slice, Out]], settings: dict[str, Any]
) -> None:
    """Fill the arrays with a number per N for the heads of a KV group and every query; its keys are freed after it."""
    for grouped, keys, target in by_query:
        if keys.stop - keys.start >= 2:
            head, seen_keys = kv_head * grouped.shape[1], of_positions.select(keys)
            _fill_profiles(grouped[kv_head], seen_keys, scan, target, head, sink=keys.start == 0, **settings)


def _fill_profiles(
    weights: F32, keys: Keys, scan: Scan, out: Out, head: int, *, kappas: Sequence[float], scale: Scale, sink: bool
) -> None:
    """Fill the arrays with a number per N for the heads of a KV group, from ``head`` on; weights (group, n)."""
    unit = choose_unit(scale, float(np.median(keys.norm[int(sink) :])), keys.exponent)
    steepness = np.asarray(kappas, np.float64)
    arrays = make_arrays(SelectionProfile, (len(weights),), len(keys.norm), len(kappas))
    outs = [{name: arrays[name][index] for name in CURVES} for index in range(len(weights))]
    filled = profile_group(weights, keys, scan, outs, kappas=steepness, unit=unit, sink=sink)
    mean, errors = keys.states.mean(axis=0, dtype=np.float64), np.empty((len(ERRORS), len(keys.norm) - 1))
    for index, (arranged, curves) in enumerate(zip(filled, outs, strict=True)):
        bounds = bound_ordered((arranged.alpha * keys.norm)[arranged.order], keys.states.shape[1])
        fill_errors(arranged.alpha, keys.states, mean, arranged.order, errors)
        of_bounds = {f"{name}_scale_free": array for name, array in vars(bounds).items()}
        for name, array in (curves | of_bounds | dict(zip(ERRORS, errors, strict=True))).items():
            out[name][head + index, ..., : array.shape[-1]] = array  # as long as there are N


def _fill_totals(weights: F32, states: F32, out: Out, *, sink: bool) -> None:
    """Fill the arrays with a number per head for one query; weights (kv_head, group, n), states (kv_head, 1, n, d)."""
    parts, spread = output_parts(weights, states, sink=sink), concentration(weights, states, sink=sink)
    for name, array in (vars(parts) | vars(spread)).items():
        out[name][:] = array.ravel()
    out["weight_sum"][:] = weights.sum(axis=-1, dtype=np.float64).ravel()
    out["cos_last_p05"][:] = quantile_over_ln_n(out["cos_last"][:, : weights.shape[-1] - 1], 0.05)


def estimate_layer_bytes(sizes: Mapping[str, int], heads: int, kv_heads: int, kappas: int = 1) -> int:
    """Upper bound of the memory of ``measure_layer`` without its outputs, in bytes.

    It includes the value states and the weights of all queries; and the largest of what follows: the directions of one
    head in float64 with their transforms; the profiles of heads with their scratch memory; and the memory of
    ``concentration`` and ``output_parts``.

    Parameters
    ----------
    sizes
        Sizes of the axes ``query``, ``key`` and ``head_dim``.
    heads, kv_heads
        Query heads and KV heads.
    kappas
        Number of κ.
    """
    n, d = sizes["key"], sizes["head_dim"]
    given = 4 * kv_heads * n * d + 4 * sizes["query"] * heads * n
    similarity = (4 + 2 + 2) * 8 * n * d + 2**18
    numbers = (len(CURVES) + len(list_declared(ScaleFreeBounds)) + len(ERRORS) + 2 * kappas) * n
    profile = 8 * numbers * heads + estimate_scratch_bytes(n, d, kappas)
    return given + max(similarity, profile, estimate_concentration_bytes(heads, n) + 8 * n * d)
