"""Compiled passes over all N of one head: tiles of cosines, and what each row of a tile gives.

Letters as in ``geometry.selection.kernels``. A *row* is one N; a tile has ``TILE_ROWS`` rows at most. Row N − 1 of the
products follows from the row before it and the cosines of the key that N adds, so one matrix product (n × d × n) gives
both ⟨s_N, v_l⟩ for all N and the cosines of all pairs, from which ρ_out follows.
"""

from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np

from geometry.accelerate import compile_kernel, compile_row_kernel, compile_row_sum_kernel
from geometry.arrays import F32, F64, I32, Floats
from geometry.quantities import BY_KAPPA, BY_N, SelectionProfile, list_declared
from geometry.selection import bound_kernels as bounds
from geometry.selection import kernels
from geometry.selection.kernels import Head, inner

TILE_ROWS = 128
"""Rows of a tile: enough for a matrix product to be fast, few enough for its results to stay in the cache of a core."""


class Counts(NamedTuple):
    """Outputs of ``count_row`` for all N, (n − 1,) each."""

    k_in: I32
    k_out: I32
    r_min: F64
    r_max: F64


CURVES = tuple(sorted([*list_declared(SelectionProfile, BY_N), *list_declared(SelectionProfile, BY_KAPPA)]))
"""The declared arrays of a profile with one number per N, or per κ and N.

Sorted, so that kernels in the cache of the compiler, which know the arrays by their places, fit any order of the
declarations.
"""

Profile: Any = namedtuple("Profile", CURVES)  # type: ignore[misc]  # noqa: PYI024
"""Outputs of ``profile_head``: the arrays of ``CURVES``, (n − 1,) or (κ, n − 1)."""


class Room(NamedTuple):
    """Memory that is reused for all tiles and rows."""

    left: F32
    """The left factor of the product: the centre at the first row, and the u of the keys that follow, (1 + t, d)."""
    tile: F32
    """The product: ⟨s, u⟩ at the first row, and the cosines of the keys that follow, (1 + t, w)."""
    low: F32
    high: F32
    """Ends of the intervals of E, (w,)."""
    reached: F32
    """Running maxima of the cosines with selected keys, 0 at first, (w,)."""
    nothing: F32
    """Zeros, (w,)."""
    every: F64
    rest: F64
    but_last: F64
    """Sums so far of all y, of those without the sink's, and of those without the last token's, (d,)."""


@compile_kernel
def clear(room: Room) -> None:
    """Prepare the sums and the running maxima for the first key of a head."""
    for k in range(room.rest.size):
        room.every[k], room.rest[k], room.but_last[k] = 0.0, 0.0, 0.0
    for k in range(room.reached.size):
        room.reached[k] = np.float32(0.0)


@compile_kernel
def multiply_tile(head: Head, first: int, rows: int, room: Room) -> float:
    """Fill the tile that begins when ``first`` keys have been added to the sums; returns ‖s'‖ at this point, lifted."""
    for k in range(head.unit.shape[1]):
        room.left[0, k] = np.float32(head.factor * room.rest[k])
    for row in range(rows):
        at = head.order[first + row]
        for k in range(head.unit.shape[1]):
            room.left[1 + row, k] = head.unit[at, k]
    np.dot(room.left[: rows + 1], head.columns, room.tile[: rows + 1])
    if head.twins.size:
        share_products(room.tile[: rows + 1], head.twins)
    return float(head.factor * np.sqrt(inner(room.rest, room.rest)))


@compile_row_kernel
def share_products(products: F32, twins: Any) -> None:
    """Set the products (t, w) with equal keys to the same value, in place; twins: the first equal key, (n,).

    They may differ in the last digit, because rounding differs at the edges of a matrix.
    """
    for row in range(products.shape[0]):
        for key in range(twins.size):
            products[row, key] = products[row, twins[key]]


@compile_row_sum_kernel
def add_key(alpha: F64, states: Floats, sink: int, last: int, key: int, every: F64, rest: F64, but_last: F64) -> None:
    """Add y of a key to the three sums, (d,)."""
    weight = alpha[key]
    but_sink = 0.0 if key == sink else weight
    without_last = 0.0 if key == last else weight
    for k in range(every.size):
        state = np.float64(states[key, k])
        every[k] += weight * state
        rest[k] += but_sink * state
        but_last[k] += without_last * state


@compile_row_kernel
def find_reach(head: Head, size: float) -> np.float32:
    """The factor of a in the error bound of E, for a centre of at most this norm, lifted."""
    return head.slope * np.float32(size) + head.trifle


@compile_kernel
def count_head(head: Head, room: Room, out: Counts) -> None:
    """K_in, K_out and the radii (eq. 19-20) for every N of a head that has no sink."""
    alpha, states, a, least, sink, last = head.alpha, head.states, head.a, head.least, head.sink, head.last
    tile, low, high, nothing = room.tile, room.low, room.high, room.nothing
    every, rest, but_last = room.every, room.rest, room.but_last
    k_in, k_out, r_min, r_max = out
    clear(room)
    for first in range(0, alpha.size - 1, TILE_ROWS):
        rows = min(TILE_ROWS, alpha.size - 1 - first)
        size = multiply_tile(head, first, rows, room)
        for row in range(rows):
            key = first + row
            size += np.float64(a[key])
            add_key(alpha, states, sink, last, key, every, rest, but_last)
            kernels.advance(tile, row + 1, a[key])
            kernels.enclose(tile, nothing, a, least, find_reach(head, size), head.bend, low, high)
            fill_counts(key, every, alpha, states, least, low, high, k_in, k_out, r_min, r_max)


@compile_row_kernel
def fill_counts(
    row: int,
    s: F64,
    alpha: F64,
    states: Floats,
    least: F32,
    low: F32,
    high: F32,
    k_in: I32,
    k_out: I32,
    r_min: F64,
    r_max: F64,
) -> None:
    """Fill the counts and the radii of a row, N = row + 1."""
    k_in[row], k_out[row], nearest, farthest = kernels.count_row(row + 1, s, alpha, states, least, low, high)
    r_min[row] = kernels.distance(s, alpha, states, nearest)
    r_max[row] = kernels.distance(s, alpha, states, farthest)


@compile_kernel
def profile_head(head: Head, kappas: F64, unit: float, room: Room, out: Any) -> None:
    """The arrays of ``Profile`` for every N; unit: the divisor of the value states in the upper bounds."""
    alpha, states, a, least, sink, last = head.alpha, head.states, head.a, head.least, head.sink, head.last
    tile, low, high, nothing, reached = room.tile, room.low, room.high, room.nothing, room.reached
    every, rest, but_last, n = room.every, room.rest, room.but_last, head.alpha.size
    k_in, k_out, r_min, r_max = out.k_in, out.k_out, out.r_min, out.r_max
    clear(room)
    whole, ends = make_ends(head)
    precision, recall = out.precision_upper, out.recall_upper
    steepness = np.sqrt(2.0 * kappas * states.shape[1]) / head.factor / head.factor / bounds.SHRINK
    bounds.gather_ingredients(alpha * head.norm, sink, out.s_in, out.a_min_in, out.a_max_in, out.a_max_out)
    for first in range(0, n - 1, TILE_ROWS):
        rows = min(TILE_ROWS, n - 1 - first)
        size = multiply_tile(head, first, rows, room)
        for row in range(first, first + rows):
            has_sink, weight = row >= sink, np.float32(0.0) if row == sink else a[row]
            size += np.float64(weight)
            add_key(alpha, states, sink, last, row, every, rest, but_last)
            kernels.advance(tile, row - first + 1, weight)
            reach = find_reach(head, size + np.float64(a[sink]) if has_sink else size)
            kernels.enclose(tile, head.along if has_sink else nothing, a, least, reach, head.bend, low, high)
            fill_counts(row, every, alpha, states, least, low, high, k_in, k_out, r_min, r_max)
            fill_directions(row, every, rest, but_last, whole, ends, head, out)
            if row != sink:
                bounds.raise_maxima(reached, tile, row - first + 1, row + 1, n)
            cosine = kernels.find_most(reached, reached, row + 1, n)[0]
            out.rho_out[row] = np.nan if row == 0 == sink else min(cosine, np.float32(1.0))
            if kappas.size:
                early = int(k_in[row])
                if has_sink:
                    kernels.enclose(tile, nothing, a, least, find_reach(head, size), head.bend, low, high)
                    early = kernels.count_nearer(row + 1, rest, alpha, states, least, low, high)
                breadth = (out.a_max_in[row] + out.a_max_out[row] + out.s_in[row]) * unit
                late = row + 1 - early
                if not bounds.fill_upper_bounds(row, n, late, steepness, breadth, low, high, precision, recall):
                    bounds.refine_upper_bounds(row, n, late, steepness, breadth, low, high, precision, recall)


@compile_kernel
def make_ends(head: Head) -> tuple[F64, F64]:
    """s_n, (d,), added in the order of ``add_key``, and the directions of the sink and of the last token, (2, d).

    A direction that does not exist is 0.
    """
    d = head.states.shape[1]
    whole, ends = np.zeros(d), np.zeros((2, d))
    for key in range(head.alpha.size):
        for k in range(d):
            whole[k] += head.alpha[key] * np.float64(head.states[key, k])
            if key == head.sink and head.norm[key] > 0.0:
                ends[0, k] = head.states[key, k] / head.norm[key]
            if key == head.last and head.norm[key] > 0.0:
                ends[1, k] = head.states[key, k] / head.norm[key]
    return whole, ends


@compile_row_sum_kernel
def fill_directions(row: int, s: F64, rest: F64, but_last: F64, whole: F64, ends: F64, head: Head, out: Any) -> None:
    """‖s_N‖ with and without its parts, ‖s_n − 2 s_N‖ and cosines with the sink and the last token (§4.2), and a_0.

    s, rest, but_last: as in ``Room``; whole, ends: from ``make_ends``. NaN where a quantity does not exist.
    """
    square, of_rest, of_last, apart, along_sink, along_last = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for k in range(s.size):
        square += s[k] * s[k]
        of_rest += rest[k] * rest[k]
        of_last += but_last[k] * but_last[k]
        apart += (whole[k] - 2.0 * s[k]) ** 2
        along_sink += s[k] * ends[0, k]
        along_last += s[k] * ends[1, k]
    norm, has_sink = np.sqrt(square), head.sink < head.norm.size
    out.norm_s[row], out.norm_s_without_last[row], out.distance_rest[row] = norm, np.sqrt(of_last), np.sqrt(apart)
    out.norm_s_without_sink[row] = np.sqrt(of_rest) if has_sink else np.nan
    out.cos_last[row] = along_last / norm if norm * head.norm[head.last] > 0.0 else np.nan
    out.cos_sink[row] = along_sink / norm if has_sink and norm * head.norm[head.sink] > 0.0 else np.nan
    out.a_0[row] = head.alpha[head.sink] * head.norm[head.sink] if row >= head.sink else np.nan
