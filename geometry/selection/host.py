"""The profile of one head on the CPU: order of the keys, factors of their energies, memory for the compiled passes.

Computes the arrays of ``SelectionProfile`` from the weights and value states of a head with NumPy and the compiled
kernels. What does not belong here: checks of the input (``geometry.selection.profile``), and other devices
(``geometry.selection.cuda``).
"""

import math
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from geometry.accelerate import compile_kernel, compile_row_kernel, widen_vectors
from geometry.arrays import F32, F64, I64, Floats
from geometry.quantities import MODEL_UNITS, SelectionProfile, list_declared
from geometry.selection import kernels
from geometry.selection.head_kernels import TILE_ROWS, Counts, Profile, Room, count_head, profile_head
from geometry.selection.kernels import Head, inner

Arrays = Mapping[str, NDArray[Any]]
"""The arrays of a profile by their names."""

LENGTHS = frozenset(name for name, made in list_declared(SelectionProfile).items() if made.unit == MODEL_UNITS)
"""Names of the arrays in the unit of the value states."""


PAGE = 1024
"""Numbers of float32 on a memory page."""

MORE_TERMS = 4
"""Roundings of an inner product besides those of its terms and of the rows of a tile."""


class Keys(NamedTuple):
    """The value states of some positions, in order of position, which the query heads of one KV group share."""

    states: Floats
    """Value states times 2^−exponent, (n, d)."""
    exponent: int
    norm: F64
    """‖v‖, (n,), times 2^−exponent."""
    unit: F32
    """v/‖v‖, (n, d); 0 where v = 0."""

    def select(self, part: slice) -> "Keys":
        """Those of some positions."""
        return Keys(self.states[part], self.exponent, self.norm[part], self.unit[part])


def prepare_keys(values: Floats) -> Keys:
    """Norms and directions of value states, (n, d)."""
    states, exponent = scale_states(values)
    norm, unit = np.empty(len(states)), np.empty(states.shape, np.float32)
    measure(states, norm, unit)
    return Keys(states, exponent, norm, unit)


def arrange(weights: Floats, keys: Keys, *, sink: bool) -> Head:
    """Sort the keys of a head by their weights, (n,), and compute what the energies follow from."""
    order, (n, d) = sort_keys(weights), keys.states.shape
    alpha, norm, states = np.empty(n), np.empty(n), np.empty_like(keys.states)
    columns, a, least, along = allocate((d, pad(n)), *[(pad(n),)] * 3)
    place, last, factor, ties = fill_head(
        order,
        weights,
        keys.states,
        keys.norm,
        keys.unit,
        kernels.FLOOR,
        sink,
        alpha,
        norm,
        states,
        columns,
        a,
        least,
        along,
    )
    return Head(
        alpha=alpha,
        states=states,
        norm=norm,
        order=order,
        unit=keys.unit,
        columns=columns,
        a=a,
        least=least,
        along=along,
        twins=find_twins(alpha, states) if ties else order[:0],
        sink=place,
        last=last,
        exponent=keys.exponent,
        factor=factor,
        slope=np.float32(kernels.error_slope(d + TILE_ROWS + MORE_TERMS)),
        bend=np.float32(kernels.ERROR_BEND),
        trifle=np.float32(kernels.TRIFLE),
    )


@compile_kernel
def fill_head(
    order: I64,
    weights: Floats,
    states: Floats,
    norms: F64,
    unit: F32,
    floor: float,
    sink: bool,
    alpha: F64,
    norm: F64,
    ordered_states: Floats,
    columns: F32,
    a: F32,
    least: F32,
    along: F32,
) -> tuple[int, int, float, bool]:
    """Fill the arrays of ``Head`` of these names; returns its sink, last and factor, and whether weights are equal."""
    place, last, ties, factor = order.size, 0, False, 2.0 ** (kernels.LIFT - math.frexp(norms.max())[1])
    a[:], least[:], along[:] = 0.0, 0.0, 0.0
    for key in range(order.size):
        at = order[key]
        place = key if sink and at == 0 else place
        last = key if at == order.size - 1 else last
        alpha[key], norm[key] = weights[at], norms[at]
        ties = ties or (key > 0 and alpha[key] == alpha[key - 1] > 0.0)
        lifted = factor * alpha[key] * norm[key]
        a[key], least[key] = lifted, max(lifted, floor) if lifted > 0.0 else 0.0
        for k in range(states.shape[1]):
            ordered_states[key, k] = states[at, k]
    transpose(order, unit, columns)
    if sink:
        multiply(a[place], unit, columns, along)
    return place, last, factor, ties


@compile_row_kernel
def multiply(weight: np.float32, unit: F32, columns: F32, along: F32) -> None:
    """Add the inner products of the first vector, times a weight, with columns (d, w) to ``along``, (w,)."""
    widen_vectors()
    for k in range(columns.shape[0]):
        part = weight * unit[0, k]
        for key in range(along.size):
            along[key] += part * columns[k, key]


@compile_row_kernel
def transpose(order: I64, unit: F32, columns: F32) -> None:
    """Fill ``columns``, (d, w), with vectors (n, d) in another order, and with 0 from n on.

    A few vectors at a time, so that both arrays stay in the cache.
    """
    n, whole = order.size, order.size // kernels.LANES * kernels.LANES
    for first in range(0, whole, kernels.LANES):
        for k in range(columns.shape[0]):
            for key in range(kernels.LANES):
                columns[k, first + key] = unit[order[first + key], k]
    for k in range(columns.shape[0]):
        for key in range(whole, columns.shape[1]):
            columns[k, key] = unit[order[key], k] if key < n else np.float32(0.0)


def find_twins(alpha: F64, states: Floats) -> I64:
    """For each key the first key of the same weight and value state, (n,); empty if no two keys are equal."""
    keys, first = np.arange(alpha.size), dict[tuple[float, bytes], int]()
    equal = (alpha[1:] == alpha[:-1]) & (alpha[1:] > 0)
    for key in np.flatnonzero(np.append(equal, False) | np.append(False, equal)).tolist():
        keys[key] = first.setdefault((alpha[key], (states[key] + 0.0).tobytes()), key)
    return keys if (np.diff(keys) != 1).any() else keys[:0]


def sort_keys(weights: Floats) -> I64:
    """The keys in order of falling weight, ties in order of position, (…, n).

    The bits of float32 numbers that are not negative are ordered as the numbers are, and whole numbers are sorted
    fastest.
    """
    if weights.dtype != np.float32:
        return np.argsort(-weights, kind="stable")
    bits = np.arange(weights.shape[-1]) - ((weights + np.float32(0)).view(np.int32).astype(np.int64) << 32)
    bits.sort()
    return bits & 0xFFFFFFFF


def allocate(*shapes: tuple[int, ...]) -> list[F32]:
    """Arrays that begin at a memory page each.

    Instructions on many numbers at once take twice as long across the ends of cache lines. Loads wait for stores before
    them to addresses that differ by a multiple of the page, which places equal within the page avoid.
    """
    sizes = [math.prod(shape) for shape in shapes]
    starts = list(accumulate((-(-size // PAGE) * PAGE for size in sizes), initial=0))
    room = np.empty(starts[-1] + PAGE, np.float32)
    room = room[-room.ctypes.data // room.itemsize % PAGE :]
    return [room[at : at + size].reshape(shape) for at, size, shape in zip(starts, sizes, shapes, strict=False)]


def scale_states(states: Floats) -> tuple[Floats, int]:
    """Scale float64 value states to the middle of their range: states, and the exponent removed.

    Squares of float32 numbers stay in the range of float64.
    """
    if states.dtype == np.float32:
        return np.ascontiguousarray(states), 0
    size = int(np.frexp(max(float(states.max()), -float(states.min())))[1])
    return np.ldexp(states.astype(np.float64), -size), size


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
def measure(states: Floats, norm: F64, unit: F32) -> None:
    """‖v‖ and v/‖v‖ of every value state; outputs (n,) and (n, d)."""
    for key in range(states.shape[0]):
        norm[key] = length(states[key])
        inverse = 1.0 / norm[key] if norm[key] > 0.0 else 0.0
        for k in range(states.shape[1]):
            unit[key, k] = states[key, k] * inverse


def make_room(n: int, head_dim: int) -> Room:
    """Memory for the tiles of heads with n keys."""
    width, rows = pad(n), 1 + min(TILE_ROWS, n - 1)
    left, tile, low, high, reached, nothing = allocate((rows, head_dim), (rows, width), *[(width,)] * 4)
    nothing[:] = 0
    return Room(left, tile, low, high, reached, nothing, *np.empty((3, head_dim)))


def pad(n: int) -> int:
    """The number of keys of a padded array."""
    return -(-n // kernels.LANES) * kernels.LANES


def fill_head_counts(weights: Floats, keys: Keys, room: Room, out: Counts) -> None:
    """Fill the arrays of ``Counts``, (n − 1,) each; weights (n,)."""
    count_head(arrange(weights, keys, sink=False), room, out)


def fill_head_profile(
    weights: Floats, keys: Keys, room: Room, out: Profile, *, kappas: F64, unit: float, sink: bool
) -> Head:
    """Fill the arrays of ``Profile`` for one head, and return its keys as arranged; weights (n,).

    out: arrays (n − 1,) or (κ, n − 1), NaN where a quantity does not exist; unit: as for ``profile_head``.
    """
    head = arrange(weights, keys, sink=sink)
    profile_head(head, kappas, unit, room, out)
    return head


def choose_unit(scale: str, value_scale: float, exponent: int) -> float:
    """The divisor of value states, times 2^exponent, in the upper bounds."""
    return value_scale if scale == "unit" else 2.0 ** min(-exponent, 1000)


def restore_lengths(out: Arrays, exponent: int) -> None:
    """Multiply lengths by the power of two by which the value states were divided."""
    if exponent:
        for name in LENGTHS.intersection(out):
            np.ldexp(out[name], exponent, out=out[name])
