"""The profile of one head on the CPU: order of the keys, tiles of matrix products, kernels over them.

Computes the arrays of ``SelectionProfile`` from the weights and value states of a head with NumPy and the compiled
kernels. What does not belong here: checks of the input (``geometry.selection.profile``), and other devices
(``geometry.selection.cuda``).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geometry.accelerate import compile_kernel, compile_sum_kernel
from geometry.arrays import F32, F64, I64, Floats
from geometry.quantities import MODEL_UNITS, SelectionCounts, SelectionProfile, list_declared
from geometry.selection import bound_kernels as bounds
from geometry.selection import kernels
from geometry.selection.kernels import Factors, inner

Arrays = Mapping[str, NDArray[Any]]
"""The arrays of a profile by their names."""

COUNTS = tuple(list_declared(SelectionCounts))
"""Names of the arrays that ``kernels.count_tile`` computes, in the order of its outputs."""

INGREDIENTS = ("s_in", "a_min_in", "a_max_in", "a_max_out")
"""Names of the arrays that ``bounds.gather_ingredients`` computes, in the order of its outputs."""

LENGTHS = frozenset(name for name, made in list_declared(SelectionProfile).items() if made.unit == MODEL_UNITS)
"""Names of the arrays in the unit of the value states."""

TILE_BYTES = 2**20
"""Size of one tile of inner products: small enough to stay in the cache of a core."""

TILE_ROWS = 32
"""Least number of rows of a tile: with fewer, a matrix product spends most of its time on packing."""

LARGEST_EXPONENT = 20
"""Value states whose largest component is beyond 2^±20 are scaled by a power of two, so that no float32 overflows."""

LIFT = 80
"""Energies are multiplied by 2^LIFT over the squared scale of the values: the smallest float32 weights stay normal."""


@dataclass(frozen=True)
class Head:
    """One head, keys in order of falling weight."""

    alpha: F64
    """Weights, (n,)."""
    states: Floats
    """Value states times 2^−exponent, (n, d)."""
    states32: F32
    """``states`` in float32."""
    norm: F64
    """‖v‖, (n,), times 2^−exponent."""
    exponent: int
    sink: int
    """Rank of the sink; n if there is none."""
    last: int
    """Rank of the last token."""
    factors: Factors
    less: F32
    """2α ⟨y_0, v⟩, lifted, (n,)."""
    lift: int
    """Lifted energies are energies times 2^lift."""

    @cached_property
    def twins(self) -> I64:
        """For each key the first key of the same weight and value state, (n,); empty if no two keys are equal.

        Their float32 products may differ in the last digit, because rounding differs at the edges of a matrix.
        """
        keys, first = np.arange(self.alpha.size), dict[tuple[float, bytes], int]()
        equal = (self.alpha[1:] == self.alpha[:-1]) & (self.alpha[1:] > 0)
        if not equal.any():
            return keys[:0]
        for key in np.flatnonzero(np.append(equal, False) | np.append(False, equal)).tolist():
            keys[key] = first.setdefault((self.alpha[key], (self.states[key] + 0.0).tobytes()), key)
        return keys if (np.diff(keys) != 1).any() else keys[:0]


def arrange(weights: Floats, values: Floats, *, sink: bool) -> Head:
    """Sort the keys of a head, weights (n,) and values (n, d), and compute the factors of its energies."""
    order = np.argsort(-weights, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    states, exponent, size = scale_states(values[order])
    alpha = weights[order].astype(np.float64)
    place = int(rank[0]) if sink else order.size
    norm, along = np.empty(order.size), np.zeros(order.size)
    measure(states, place, norm, along)
    if sink:
        along *= 2 * alpha[place] * alpha
    lift = LIFT - 2 * size
    a, d = alpha * norm, states.shape[1]
    trifle = bound_underflow(alpha, d, size, lift) * (a > 0)
    factors = np.ldexp([2 * alpha, a * a, kernels.error_slope(d) * a, kernels.ERROR_BEND * a * a], lift)
    factors[3] += trifle
    return Head(
        alpha=alpha,
        states=states,
        states32=states.astype(np.float32, copy=False),
        norm=norm,
        exponent=exponent,
        sink=place,
        last=int(rank[-1]),
        factors=factors.astype(np.float32),
        less=np.ldexp(along, lift).astype(np.float32),
        lift=lift,
    )


def bound_underflow(alpha: F64, head_dim: int, size: int, lift: int) -> F64:
    """Upper bound of the error of one lifted energy due to underflow in float32, (n,).

    Centres and value states have components below 2^size. Subnormal numbers have an error of at most 2⁻¹⁵⁰. They may be
    components of a centre or of a value state, and products of both, which enter the energy times 2α · 2^lift; and the
    elements of ``Factors``, which enter it multiplied by an inner product or unchanged.
    """
    excess = max(size, 0)
    trifle: F64 = np.ldexp(alpha * head_dim, lift + excess - 146) + np.ldexp(float(head_dim), 2 * excess - 145)
    return trifle


def scale_states(states: Floats) -> tuple[Floats, int, int]:
    """Scale value states to the range of float32: states, exponent removed, and exponent of the largest component."""
    largest = max(float(states.max()), -float(states.min()))
    size = int(np.frexp(largest)[1])
    if states.dtype == np.float32 and abs(size) <= LARGEST_EXPONENT:  # float32 represents them exactly
        return np.ascontiguousarray(states), 0, size
    return np.ldexp(states.astype(np.float64), -size), size, 0


@compile_kernel
def length(vector: Floats) -> float:
    """‖vector‖ of a vector (d,), accurate even if the squares of its components underflow; they must not overflow."""
    square = inner(vector, vector)
    if square > 1e-200:
        return float(np.sqrt(square))
    largest = 0.0
    for k in range(vector.size):
        largest = max(largest, np.abs(np.float64(vector[k])))
    square = 0.0
    if largest > 0.0:
        for k in range(vector.size):
            square += (np.float64(vector[k]) / largest) ** 2
    return float(largest * np.sqrt(square))


@compile_kernel
def measure(states: Floats, sink: int, norm: F64, along: F64) -> None:
    """Norm of each value state, and its inner product with the sink's if there is one; outputs (n,)."""
    for key in range(states.shape[0]):
        norm[key] = length(states[key])
        if sink < states.shape[0]:
            along[key] = inner(states[key], states[sink])


@dataclass(frozen=True)
class Tile:
    """The rows N = first + 1, …, first + t of a head."""

    first: int
    s: F64
    """s_N, (t, d)."""
    rest: F64
    """s_N without the sink's part, (t, d)."""
    size: F64
    """‖rest‖, (t,)."""
    without_last: F64
    """‖s_N − y_L·[L∈I_N]‖, (t,)."""
    products: F32
    """⟨rest, v⟩, (t, n)."""

    @property
    def rows(self) -> slice:
        """The rows as a slice of all N."""
        return slice(self.first, self.first + len(self.s))


def iterate_tiles(head: Head) -> Iterator[Tile]:
    """Iterate over the tiles of a head, which share the same memory."""
    n, d = head.states32.shape
    rows = count_tile_rows(n)
    s, rest, sizes, running = np.empty((rows, d)), np.empty((rows, d)), np.empty((2, rows)), np.zeros((3, d))
    rest32, products = np.empty((rows, d), np.float32), np.empty((rows, n), np.float32)
    for first in range(0, n - 1, rows):
        t = min(rows, n - 1 - first)
        accumulate(first, head.alpha, head.states, head.sink, head.last, running, s[:t], rest[:t], rest32[:t], sizes)
        np.matmul(rest32[:t], head.states32.T, out=products[:t])
        if head.twins.size:
            share_products(products[:t], head.twins)
        yield Tile(first, s[:t], rest[:t], sizes[0, :t], sizes[1, :t], products[:t])


@compile_kernel
def share_products(products: F32, twins: I64) -> None:
    """Set the inner products (t, n) of equal keys to the same value, in place; twins: the first equal key, (n,)."""
    for row in range(products.shape[0]):
        for key in range(twins.size):
            products[row, key] = products[row, twins[key]]


def count_tile_rows(n: int) -> int:
    """Rows of a tile of n keys, at most n − 1."""
    return min(n - 1, max(TILE_ROWS, TILE_BYTES // (4 * n)))


@compile_kernel
def accumulate(
    first: int,
    alpha: F64,
    states: Floats,
    sink: int,
    last: int,
    running: F64,
    s: F64,
    rest: F64,
    rest32: F32,
    sizes: F64,
) -> None:
    """s_N with and without the sink's part for the rows of a tile, (t, d) each, and norms of s_N, (2, t).

    running: the sums so far, of all keys, without the sink, and without the last token, (3, d); sizes: the norms of the
    second and of the third.
    """
    for row in range(s.shape[0]):
        key = first + row
        weight = alpha[key]
        but_sink = 0.0 if key == sink else weight
        but_last = 0.0 if key == last else weight
        for k in range(s.shape[1]):
            state = np.float64(states[key, k])
            every = running[0, k] + weight * state
            others = running[1, k] + but_sink * state
            running[0, k], s[row, k] = every, every
            running[1, k], rest[row, k], rest32[row, k] = others, others, np.float32(others)
            running[2, k] += but_last * state
        sizes[0, row] = np.sqrt(inner(running[1], running[1]))
        sizes[1, row] = np.sqrt(inner(running[2], running[2]))


@compile_kernel
def sum_contributions(alpha: F64, states: Floats, whole: F64) -> None:
    """s_n, the sum of all y, added in the order of ``accumulate``; whole: output, (d,)."""
    whole[:] = 0.0
    for key in range(states.shape[0]):
        for k in range(states.shape[1]):
            whole[k] += alpha[key] * np.float64(states[key, k])


@compile_sum_kernel
def compute_directions(
    s: F64,
    whole: F64,
    states: Floats,
    norm: F64,
    sink: int,
    last: int,
    norm_s: F64,
    distance_rest: F64,
    cos_sink: F64,
    cos_last: F64,
) -> None:
    """‖s_N‖, ‖s_n − 2 s_N‖ and cosines of s_N with the sink and the last token for the rows of a tile (§4.2).

    whole: s_n, (d,); sink, last: their ranks; outputs (t,), not written where a quantity does not exist.
    """
    for row in range(s.shape[0]):
        size, square = np.sqrt(inner(s[row], s[row])), 0.0
        for k in range(whole.size):
            square += (whole[k] - 2.0 * s[row, k]) ** 2
        norm_s[row], distance_rest[row] = size, np.sqrt(square)
        if size * norm[last] > 0.0:
            cos_last[row] = inner(s[row], states[last]) / (size * norm[last])
        if sink < norm.size and size * norm[sink] > 0.0:
            cos_sink[row] = inner(s[row], states[sink]) / (size * norm[sink])


def bound_centre_norms(head: Head, tile: Tile) -> F32:
    """Upper bounds of ‖s_N‖ for a tile's rows, (t,): ‖s_N‖ without the sink plus the sink's norm."""
    size = tile.size.copy()
    if head.sink < tile.rows.stop:
        size[max(0, head.sink - tile.first) :] += head.alpha[head.sink] * head.norm[head.sink]
    return size.astype(np.float32)


def fill_counts(head: Head, tile: Tile, out: Arrays) -> None:
    """Fill K_in, K_out and the radii of a tile's rows in the arrays ``out`` (n − 1,)."""
    kernels.count_tile(
        tile.first,
        tile.products,
        head.less,
        head.sink,
        tile.s,
        bound_centre_norms(head, tile),
        head.alpha,
        head.states,
        head.factors,
        *(out[name][tile.rows] for name in COUNTS),
    )


def fill_head_counts(weights: Floats, values: Floats, out: Arrays) -> None:
    """Fill the arrays of ``SelectionCounts``, (n − 1,) each; weights (n,), values (n, d)."""
    head = arrange(weights, values, sink=False)
    for tile in iterate_tiles(head):
        fill_counts(head, tile, out)
    _restore_lengths(out, head.exponent)


def fill_head_profile(
    weights: Floats, values: Floats, out: Arrays, *, kappas: Sequence[float], scale: str, sink: bool
) -> None:
    """Fill the arrays of ``SelectionProfile`` for one head; weights (n,), values (n, d).

    out: arrays (n − 1,), (κ, n − 1) or (), filled with NaN where a quantity may not exist.
    """
    head = arrange(weights, values, sink=sink)
    out["value_scale"][()] = np.median(np.delete(head.norm, head.sink) if sink else head.norm)
    out["weight_sum"][()] = head.alpha.sum()
    fill_ingredients(head, out)
    fill_rho_out(head, out["rho_out"])
    unit = float(out["value_scale"]) if scale == "unit" else 2.0 ** min(-head.exponent, 1000)
    curvature, whole = compute_curvatures(head, out, kappas, unit), np.empty(head.states.shape[1])
    sum_contributions(head.alpha, head.states, whole)
    for tile in iterate_tiles(head):
        fill_counts(head, tile, out)
        fill_directions(head, tile, whole, out)
        if len(kappas):
            fill_upper_bounds(head, tile, curvature, out)
    _restore_lengths(out, head.exponent)


def fill_directions(head: Head, tile: Tile, whole: F64, out: Arrays) -> None:
    """Fill norms, distances and directions of a tile's rows in ``out``; ``whole`` is s_n, (d,)."""
    rows = tile.rows
    results = (out[name][rows] for name in ("norm_s", "distance_rest", "cos_sink", "cos_last"))
    compute_directions(tile.s, whole, head.states, head.norm, head.sink, head.last, *results)
    out["norm_s_without_last"][rows] = tile.without_last
    if head.sink < head.norm.size:
        out["norm_s_without_sink"][rows] = tile.size


def fill_ingredients(head: Head, out: Arrays) -> None:
    """Fill the ingredients of the bounds that are sums and extremes of a = ‖y‖ (eq. 7), and a_0."""
    a = head.alpha * head.norm
    bounds.gather_ingredients(a, head.sink, *(out[name] for name in INGREDIENTS))
    if head.sink < a.size:
        out["a_0"][head.sink :] = a[head.sink]


def compute_curvatures(head: Head, out: Arrays, kappas: Sequence[float], unit: float) -> F64:
    """√(2κd)/B, the c of eq. 10, for lifted energies, (κ, n − 1); NaN where there is no bound.

    unit: the divisor of the values.
    """
    b = (out["a_max_in"] + out["a_max_out"] + out["s_in"]) * unit
    root = np.sqrt(np.asarray(kappas, np.float64)) * np.sqrt(2 * head.states32.shape[1])
    with np.errstate(over="ignore", under="ignore"):
        curvature = np.ldexp(root[:, None] / np.where(b > 0, b, np.nan), -head.lift)
    limits = np.finfo(np.float64)
    held: F64 = curvature.clip(limits.smallest_normal, limits.max)  # p of 0 and of infinity are 0
    return held


def fill_upper_bounds(head: Head, tile: Tile, curvature: F64, out: Arrays) -> None:
    """Fill the upper bounds of a tile's rows in ``out``."""
    bounds.bound_tile(
        tile.first,
        tile.products,
        tile.rest,
        tile.size.astype(np.float32),
        head.alpha,
        head.states,
        head.factors,
        curvature,
        out["precision_upper"],
        out["recall_upper"],
    )


def fill_rho_out(head: Head, rho_out: F64) -> None:
    """Fill ρ_out (eq. 7) for every N: running maxima over a triangle of cosines, tile by tile; output (n − 1,)."""
    n = head.norm.size
    rows = count_tile_rows(n)
    inverse = np.divide(1.0, head.norm, out=np.zeros(n), where=head.norm > 0)
    unit = (head.states * inverse[:, None]).astype(np.float32)
    reached, room = np.zeros(n, np.float32), np.empty(rows * n, np.float32)
    for first in range(0, n - 1, rows):
        tile, later = slice(first, min(first + rows, n - 1)), unit[first + 1 :]
        cosines = room[: len(unit[tile]) * len(later)].reshape(-1, len(later))
        np.matmul(unit[tile], later.T, out=cosines)
        bounds.compute_rho_out(first, cosines, head.sink, reached, rho_out[tile])


def _restore_lengths(out: Arrays, exponent: int) -> None:
    """Multiply lengths by the power of two by which the value states were divided."""
    if exponent:
        for name in LENGTHS.intersection(out):
            np.ldexp(out[name], exponent, out=out[name])
