"""The Gram scan: what orders the keys about s_N for every N of a head, from one matrix of cosines of a KV group.

Letters: n keys in order of position, w of them in a strip, d components of a value state; rank: place of a key in the
order of falling weight; a_l = ‖y_l‖; u_l = v_l/‖v_l‖. Row N − 1 of an array belongs to N.

Distances from a centre s are ordered by E_l = ‖y_l‖² − 2⟨s, y_l⟩ = a_l (a_l − 2 c_l), which is D_l without the common
term ‖s‖². The sum c_l = Σ_k a_k cos(u_k, u_l) over the selected keys k grows by one row of the matrix of cosines with
every N. All heads that share value states share the matrix, which is a product in float64 rounded once to float32; c
is summed in float64. Where the matrix is too large there is a strip of its columns at a time, and each strip is made
twice: once to find the nearest and the farthest key of every row, and once to count the keys nearer than these.

Exact counts. What the rows of a tile, TILE at most, have added to c is a sum in float32, as is E_l. Each partial sum is
rounded, by 2^−24 of twice the size of the tile so far at most, where a size is Σ a_k over some selected keys; these
errors remain in c. With them, and the roundings of a cosine, of a, of each term, of c, of E_l and of each sum that is
compared, the error of E_l is below δ_l = a_l (SLOPE · size + SLOPE_OF_SUMS · Σ of the size of the tile over all rows so
far + BEND · max a); the roundings in float64 are a millionth of this. If nothing but the nearest key itself lies within
its own error of the threshold, the count is right. Keys with y = 0 have E = δ = 0 and are ties of each other. All other
rows are *settled*: the keys that lie so near are compared in float64, with ``compare_distances``, which is exactly 0
for equal y. The scan thus affects speed, never the result. A tile also ends where it is no small part of the size, so
that the first rows, of the largest weights, add little to the error.

A scan all in float64 would have to settle rows as well, since keys may lie one rounding apart, and takes more than
twice as long.

Underflow. All a are multiplied by a power of two, with which the largest ‖v‖ lies between 2^(LIFT−1) and 2^LIFT. In δ,
a_l is not below FLOOR unless y_l = 0, and TRIFLE is added to the bracket: their product exceeds what underflow loses.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from geometry.accelerate import compile_inline_kernel, compile_row_kernel, larger, smaller, widen_vectors
from geometry.arrays import F32, F64, I32, I64, Floats
from geometry.inputs import GROUP
from geometry.selection.keys import compare_distances, error_slope, inner, measure_norms, scale_states, sort_keys
from geometry.selection.upper_bounds import Steepness, sum_far_pairs, sum_pairs_between, sum_worst_pairs

STRIP_BYTES = 2**25
"""Most memory of the cosines that are held at once: all pairs of up to 2,896 keys."""

HEAD_BYTES = 512
"""Memory of a head for each of its keys, about."""

PRODUCT_ROWS = 128
"""Rows of the matrix that are multiplied at once in float64."""

LINE = 16
"""float32 numbers in a cache line."""

BLOCK = 128
"""Keys that are looked through together for one E."""

STEP = 4
"""Values of N for which one pass over the keys computes E."""

TILE, TILE_SHARE = 32, 2.0**-4
"""Most rows, and about the largest part of the size, after which what is added to c is added to it in float64."""

SLOPE, SLOPE_OF_SUMS, BEND = 2.04 * 8 * 2.0**-24, 2.04 * 2.0**-24, 5.1 * 2.0**-24
"""Factors of a_l · size, of a_l · Σ of the size of the tile and of a_l · max a in the error bound of E_l."""

LIFT, FLOOR, TRIFLE = 60, 2.0**-87, 2.0**-58
"""The exponent of the largest lifted norm, and what underflow adds to the error bound: see above."""

LISTED = 2
"""Room for the keys near thresholds, for each key of a head; rows for which there is none are settled with all keys."""

HIDDEN = 2.0**126
"""Larger than any lifted E: added to that of a key that is not to be a minimum. Its quarter is larger as well."""

NEAREST, FARTHEST, NEAREST_TO_REST = range(3)
"""The thresholds of a row: least E left out, largest E selected, and least E left out about s without the sink."""


class Keys(NamedTuple):
    """The value states of some positions, which the query heads of one KV group share."""

    states: Floats
    """Value states times 2^−exponent, (n, d)."""
    exponent: int
    norm: F64
    """‖v‖, (n,), times 2^−exponent."""
    cosines: F32
    """Cosines of all pairs of positions, or empty if these are too many."""
    first: int
    """Row and column of the first key in ``cosines``."""

    def select(self, part: slice) -> "Keys":
        """Those of some positions."""
        return self._replace(states=self.states[part], norm=self.norm[part], first=self.first + part.start)


def prepare_keys(values: Floats, *, multiply: bool = True) -> Keys:
    """Norms and, where there is room and they are wanted, cosines of value states, (n, d)."""
    states, exponent = scale_states(values)
    n, norm = len(states), np.empty(len(states))
    measure_norms(states, norm)
    at_hand = multiply and choose_width(n) == n
    cosines = multiply_all(states, norm) if at_hand else np.empty((0, 0), np.float32)
    return Keys(states, exponent, norm, cosines, 0)


def normalise(states: Floats, norm: F64) -> F64:
    """Directions of value states, (n, d); 0 where v = 0."""
    directions: F64 = states / np.where(norm > 0, norm, 1)[:, None]
    return directions


def pad(width: int) -> int:
    """Numbers between rows of a matrix: they begin at cache lines, and never at the same place of all pages."""
    lines = -(-width // LINE)
    return (lines + 1 - lines % 2) * LINE


def make_aligned(shape: tuple[int, ...], dtype: type) -> NDArray[Any]:
    """Memory that begins at a cache line: vectors that cross one take twice as long."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(dtype).reshape(shape)


def multiply_all(states: Floats, norm: F64) -> F32:
    """Cosines of all pairs of keys, (n, n) and some columns, rounded once; those of a pair are the same both ways."""
    n = len(norm)
    directions, cosines = normalise(states, norm), make_aligned((n, pad(n)), np.float32)
    for first in range(0, n, PRODUCT_ROWS):
        rows, before = slice(first, first + PRODUCT_ROWS), slice(min(first + PRODUCT_ROWS, n))
        cosines[rows, before] = directions[rows] @ directions[before].T
        cosines[:first, rows.start : before.stop] = cosines[rows, :first].T
    return cosines


def multiply_some(states: Floats, norm: F64, columns: slice) -> F32:
    """Cosines of all keys with some of them, (n, w), rounded once."""
    right = normalise(states[columns], norm[columns]).T
    cosines = np.empty((len(norm), right.shape[1]), np.float32)
    for first in range(0, len(norm), PRODUCT_ROWS):
        rows = slice(first, first + PRODUCT_ROWS)
        cosines[rows] = normalise(states[rows], norm[rows]) @ right
    return cosines


class Strip(NamedTuple):
    """Cosines of all keys with those from ``start`` to ``stop``."""

    cosines: F32
    row: int
    column: int
    """The place in ``cosines`` of those of the first key with that of ``start``."""
    start: int
    stop: int


def choose_width(n: int) -> int:
    """Columns of a strip of the cosines of n keys."""
    return n if 4 * n * n <= STRIP_BYTES else max(1, STRIP_BYTES // (4 * n))


def count_together(n: int) -> int:
    """Heads of n keys that are scanned together, unless their cosines are at hand."""
    return max(1, min(GROUP, STRIP_BYTES // (HEAD_BYTES * n)))


def iterate_strips(keys: Keys) -> Iterator[Strip]:
    """Iterate over the strips of the cosines of some keys: one if they are at hand."""
    n = len(keys.norm)
    width = n if keys.cosines.size else choose_width(n)
    for start in range(0, n, width):
        if keys.cosines.size:
            yield Strip(keys.cosines, keys.first, keys.first, 0, n)
        else:
            stop = min(start + width, n)
            yield Strip(multiply_some(keys.states, keys.norm, slice(start, stop)), 0, 0, start, stop)


class Head(NamedTuple):
    """The weights of one head, keys in order of position; lifted numbers are multiplied by ``factor``."""

    alpha: F64
    """Weights, (n,)."""
    order: I64
    """Keys by rank, (n,)."""
    rank: I64
    """Rank of every key, (n,)."""
    a: F64
    """‖y‖, lifted, (n,)."""
    least: F32
    """a in the error bound: at least ``FLOOR``, or 0 where y = 0, (n,)."""
    sink: int
    """Rank of the sink, the first key; n if there is none."""
    factor: float
    slope: float
    slope_of_sums: float
    bend: float
    trifle: float
    """Coefficients of the error bound."""


def arrange(weights: Floats, keys: Keys, *, sink: bool) -> list[Head]:
    """Sort the keys of heads by their weights, (head, n)."""
    order, alpha = sort_keys(weights), weights.astype(np.float64)
    n, rank = weights.shape[1], np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(n)[None], axis=1)
    factor = 2.0 ** (LIFT - math.frexp(keys.norm.max())[1])
    a = factor * alpha * keys.norm
    least = np.where(a > 0, np.maximum(a, FLOOR), 0).astype(np.float32)
    sinks = rank[:, 0].tolist() if sink else [n] * len(weights)
    return [
        Head(alpha[h], order[h], rank[h], a[h], least[h], sinks[h], factor, SLOPE, SLOPE_OF_SUMS, BEND, TRIFLE)
        for h in range(len(weights))
    ]


class Rows(NamedTuple):
    """What the scan finds for every N of a head; the first axis is that of the thresholds."""

    value: F32
    """The threshold, (3, n − 1)."""
    key: I32
    """The key that attains it, (3, n − 1)."""
    sure: I32
    """Keys whose E is surely below it, (3, n − 1)."""
    near: I32
    """Keys whose E may be equal to it, the key itself among them, (3, n − 1)."""
    place: I32
    """Where in ``listed`` these keys begin, −1 if they are not there, (3, n − 1)."""
    listed: I64
    """Keys that may be at thresholds, where more than one may be at one, and after them how many there are."""
    most: F32
    """Largest E left out about s without the sink, (n − 1,)."""
    closest: F32
    """Largest cosine of a selected key but the sink with a key left out, at least 0, (n − 1,)."""
    total: F64
    best: F64
    between: I32
    """The sums of ``sum_worst_pairs``, (κ, n − 1)."""


class Room(NamedTuple):
    """Memory of a scan, reused for every strip of every head."""

    c: F64
    a: F64
    base: F64
    """2c at the beginning of a tile, a, and a − 2 a_0 cos(u_0, u) once the sink is selected, (w,)."""
    single: F32
    added: F32
    again: F32
    rest: F32
    rest_of_rest: F32
    """a, what the tile has added to 2c, a copy of it, and base − 2c and a − 2c at its beginning, (w,)."""
    least: F32
    """``Head.least``, (w,)."""
    about_all: F32
    about_rest: F32
    """E about s and about s without the sink, (STEP, w)."""
    ends_of_all: F32
    ends_of_rest: F32
    """The least E left out and the largest selected, and the least and the largest left out, (STEP, 2)."""
    left: F32
    """``HIDDEN`` for keys left out, 0 for selected ones, and half of it for those of a step, (w,)."""
    reached: F32
    """Largest cosine with a selected key but the sink, (w,)."""
    nothing: F32
    """Zeros, (w,)."""
    keys: I64
    weights: F32
    """The keys of a step, and 2 a of each, (STEP,)."""
    one: np.int32
    """1, which the compiler must not know: it then counts under a mask, in less time than by adding comparisons."""


class Space(NamedTuple):
    """Memory of the rows that are settled, one by one."""

    energy: F64
    error: F64
    """E of the keys that decide, and its error, (n,)."""
    g: F32
    left: F32
    """E about s without the sink, lifted, and ``Room.left`` of all keys, (n,)."""


def make_space(n: int) -> Space:
    """Memory for rows of heads with n keys."""
    return Space(energy=np.empty(n), error=np.empty(n), g=np.empty(n, np.float32), left=np.empty(n, np.float32))


def make_room(n: int) -> Room:
    """Memory for scans of heads with n keys."""
    width = pad(choose_width(n)) + 2 * LINE
    wide, about = make_aligned((3, width), np.float64), make_aligned((2, STEP, width), np.float32)
    of_keys, ends = make_aligned((9, width), np.float32), np.empty((2, STEP, 2), np.float32)
    of_keys[:] = 0.0
    single, added, again, rest, rest_of_rest, least, left, reached, nothing = of_keys
    return Room(
        c=wide[0],
        a=wide[1],
        base=wide[2],
        single=single,
        added=added,
        again=again,
        rest=rest,
        rest_of_rest=rest_of_rest,
        least=least,
        about_all=about[0],
        about_rest=about[1],
        ends_of_all=ends[0],
        ends_of_rest=ends[1],
        left=left,
        reached=reached,
        nothing=nothing,
        keys=np.empty(STEP, np.int64),
        weights=np.empty(STEP, np.float32),
        one=np.int32(1),
    )


def make_rows(heads: int, n: int, kappas: int) -> list[Rows]:
    """Memory for what a scan finds of heads, before the first strip."""
    value, of_rest = np.full((heads, 3, n - 1), HIDDEN / 4, np.float32), np.zeros((heads, n - 1), np.float32)
    value[:, FARTHEST] *= -1.0
    counts, listed = np.zeros((4, heads, 3, n - 1), np.int32), np.zeros((heads, LISTED * n + 1), np.int64)
    sums, between = np.zeros((2, heads, kappas, n - 1)), np.zeros((heads, kappas, n - 1), np.int32)
    counts[3] = -1
    return [Rows(*rows) for rows in zip(value, *counts, listed, of_rest - np.inf, of_rest, *sums, between, strict=True)]


def scan_heads(keys: Keys, heads: Sequence[Head], steepness: Sequence[Steepness], room: Room) -> list[Rows]:
    """Scan heads that share value states.

    steepness: of the upper bounds of each head; without any only the thresholds about s are computed.
    """
    bounded = len(steepness) > 0
    given = steepness if bounded else [Steepness.none()] * len(heads)
    results = make_rows(len(heads), len(keys.norm), len(given[0].slope))
    passes = ((True, True),) if keys.cosines.size else ((True, False), (False, True))
    for find, count in passes:
        for strip in iterate_strips(keys):
            for head, of, rows in zip(heads, given, results, strict=True):
                sweep(head, strip, of, room, rows, bounded, find, count)
    return results


@compile_row_kernel
def sweep(
    head: Head, strip: Strip, steepness: Steepness, room: Room, rows: Rows, bounded: bool, find: bool, count: bool
) -> None:
    """Go through all N with the keys of a strip: ``find`` the thresholds of every row, ``count`` the keys about them.

    bounded: whether also about s without the sink, with the cosines and the sums of the upper bounds.
    """
    n, width, keys, largest = head.a.size, strip.stop - strip.start, room.keys, find_largest(head.a)
    size_of_rest, size_of_sink, size_of_tile, sums, first, opened = 0.0, 0.0, 0.0, 0.0, 0, 0
    clear(head, strip, room)
    while first < n - 1:
        if first == head.sink:
            size_of_sink = head.a[head.order[first]]
            place_sink(strip, size_of_sink, room)
        if first in (0, head.sink) or first + STEP - opened > TILE or size_of_tile > TILE_SHARE * size_of_rest:
            begin_tile(room, width)
            size_of_tile, opened = 0.0, first
        last = choose_step(head, first, keys, room.weights)
        if bounded and find:
            note_closest(strip, keys, first, last, head.sink, room, rows.closest)
        advance(strip, keys, room, bounded)
        for b in range(last - first):
            added = 0.5 * np.float64(room.weights[b])
            size_of_rest, size_of_tile = size_of_rest + added, size_of_tile + added
            sums += size_of_tile
            mark_key(keys[b] - strip.start, room.left[:width], 0.0)
            if find:
                note_thresholds(first + b, b, last - first, strip, room, rows, bounded)
            if count:
                fixed = head.slope_of_sums * sums + head.bend * largest + head.trifle
                reach_of_rest = np.float32(head.slope * size_of_rest + fixed)
                reach = np.float32(reach_of_rest + head.slope * size_of_sink)
                read_row(first + b, b, head, strip, steepness, room, rows, reach, reach_of_rest, bounded)
        first = last


@compile_inline_kernel
def mark_key(at: int, left: F32, mark: float) -> None:
    """Mark the key at this place of a strip, if it is one, as ``Room.left`` has it."""
    if 0 <= at < left.size:
        left[at] = np.float32(mark)


@compile_inline_kernel
def note_thresholds(row: int, b: int, count: int, strip: Strip, room: Room, rows: Rows, bounded: bool) -> None:
    """Note the thresholds of a row, N = row + 1, as far as keys of a strip attain them; count: those of the step."""
    width, e, g = strip.stop - strip.start, room.about_all[b], room.about_rest[b]
    low, high = room.ends_of_all[b, 0], room.ends_of_all[b, 1]
    low_of_rest, high_of_rest = room.ends_of_rest[b, 0], room.ends_of_rest[b, 1]
    for t in range(count):
        at = room.keys[t] - strip.start
        if 0 <= at < width and t <= b:
            high = max(high, e[at])
        elif 0 <= at < width:
            low = min(low, e[at])
            low_of_rest, high_of_rest = min(low_of_rest, g[at]), max(high_of_rest, g[at])
    note_threshold(row, NEAREST, low, -1.0, e[:width], strip.start, rows)
    note_threshold(row, FARTHEST, high, 1.0, e[:width], strip.start, rows)
    if bounded:
        rows.most[row] = max(rows.most[row], high_of_rest)
        note_threshold(row, NEAREST_TO_REST, low_of_rest, -1.0, g[:width], strip.start, rows)


@compile_inline_kernel
def note_threshold(row: int, which: int, value: np.float32, sign: float, e: F32, start: int, rows: Rows) -> None:
    """Note a threshold of a row, if it is lower (sign −1) or higher than that of former strips, and its key.

    It often is that of the row before.
    """
    if sign * value > sign * rows.value[which, row]:
        guess = rows.key[which, max(row - 1, 0)] - start
        at = guess if 0 <= guess < e.size and e[guess] == value else find_key(e, value)
        rows.value[which, row], rows.key[which, row] = value, start + at


@compile_row_kernel
def find_key(e: F32, value: np.float32) -> int:
    """The first key of an E."""
    widen_vectors()
    first, found = 0, np.int32(0)
    while first + BLOCK < e.size and found == 0:
        for i in range(BLOCK):
            found |= np.int32(e[first + i] == value)
        first += BLOCK
    at = max(first - BLOCK, 0)
    while e[at] != value:
        at += 1
    return at


@compile_inline_kernel
def read_row(
    row: int,
    b: int,
    head: Head,
    strip: Strip,
    steepness: Steepness,
    room: Room,
    rows: Rows,
    reach: np.float32,
    reach_of_rest: np.float32,
    bounded: bool,
) -> None:
    """Count the keys of a strip about the thresholds of a row; reach: factors of ``least`` in the error of E."""
    part = slice(0, strip.stop - strip.start)
    e, least = room.about_all[b, part], room.least[part]
    low, high = enclose(row, NEAREST, reach, head.least, rows)
    low_of_far, high_of_far = enclose(row, FARTHEST, reach, head.least, rows)
    sure, most, sure_of_far, most_of_far = count_below(e, least, reach, low, high, low_of_far, high_of_far, room.one)
    note_counts(row, NEAREST, sure, most, e, least, reach, low, high, rows)
    note_counts(row, FARTHEST, sure_of_far, most_of_far, e, least, reach, low_of_far, high_of_far, rows)
    if bounded:
        g, left = room.about_rest[b, part], room.left[part]
        low, high = enclose(row, NEAREST_TO_REST, reach_of_rest, head.least, rows)
        sure, most, lowest = count_early(g, left, least, reach_of_rest, low, high, room.one)
        note_counts(row, NEAREST_TO_REST, sure, most, g, least, reach_of_rest, low, high, rows)
        add_worst_pairs(row, lowest, g, left, steepness, rows)


@compile_inline_kernel
def enclose(row: int, which: int, reach: np.float32, least: F32, rows: Rows) -> tuple[np.float32, np.float32]:
    """The threshold of a row less and more its error; least: ``Head.least``, and ``reach`` its factor in the error."""
    value, error = rows.value[which, row], least[rows.key[which, row]] * reach
    return value - error, value + error


@compile_inline_kernel
def note_counts(
    row: int, which: int, sure: np.int32, most: np.int32, e: F32, least: F32, reach: np.float32, low: np.float32,
    high: np.float32, rows: Rows,
) -> None:  # fmt: skip
    """Add the counts of a strip about one threshold, and list the keys near it if there are others than its own.

    Keys are listed only where one strip holds all of them.
    """
    near, used = most - sure, rows.listed[-1]
    rows.sure[which, row] += sure
    rows.near[which, row] += near
    if near > 1 and e.size == rows.most.size + 1 and used + near < rows.listed.size:
        rows.place[which, row] = used
        for key in range(e.size):
            error = least[key] * reach
            if not e[key] + error < low and e[key] - error <= high:
                rows.listed[used] = key
                used += 1
        rows.listed[-1] = used


@compile_row_kernel
def clear(head: Head, strip: Strip, room: Room) -> None:
    """Prepare the vectors of ``Room`` for the first key of a head."""
    for i in range(strip.stop - strip.start):
        room.c[i], room.a[i], room.base[i] = 0.0, head.a[strip.start + i], head.a[strip.start + i]
        room.single[i], room.added[i] = np.float32(room.a[i]), np.float32(0.0)
        room.least[i], room.left[i], room.reached[i] = head.least[strip.start + i], np.float32(HIDDEN), np.float32(0.0)


@compile_row_kernel
def find_largest(numbers: F64) -> float:
    """The largest of some numbers."""
    most = 0.0
    for number in numbers:
        most = max(most, number)
    return most


@compile_inline_kernel
def place_sink(strip: Strip, size: float, room: Room) -> None:
    """Take the part of the sink, the first key, whose a is ``size``, into the energies about s."""
    for i in range(strip.stop - strip.start):
        room.base[i] = room.a[i] - 2.0 * size * strip.cosines[strip.row, strip.column + i]


@compile_row_kernel
def begin_tile(room: Room, width: int) -> None:
    """Add what the last tile has added to c, and compute in float64 what E of the next tile begins with."""
    widen_vectors()
    c, a, base, added = room.c[:width], room.a[:width], room.base[:width], room.added[:width]
    rest, rest_of_rest = room.rest[:width], room.rest_of_rest[:width]
    for i in range(np.uint64(width)):
        c[i] += np.float64(added[i])
        rest[i] = np.float32(base[i] - c[i])
    for i in range(np.uint64(width)):
        rest_of_rest[i] = np.float32(a[i] - c[i])
        added[i] = np.float32(0.0)


@compile_inline_kernel
def choose_step(head: Head, first: int, keys: I64, weights: F32) -> int:
    """The end of the step that begins at a rank; fills its keys, and 2 a of each, 0 beyond the end.

    The sink, whose part is not in c, begins a step, and its 2 a is 0.
    """
    last = min(first + STEP, head.a.size - 1)
    if first < head.sink < last:
        last = head.sink
    for b in range(STEP):
        keys[b] = head.order[min(first + b, last - 1)]
        weights[b] = np.float32(2.0 * head.a[keys[b]] if first + b < last and first + b != head.sink else 0.0)
    return int(last)


@compile_inline_kernel
def advance(strip: Strip, keys: I64, room: Room, bounded: bool) -> None:
    """Add the keys of a step to c one after another, and note E of all keys after each, (STEP, w)."""
    row, w, part = strip.row, room.weights, slice(0, strip.stop - strip.start)
    columns, e, g = slice(strip.column, strip.column + strip.stop - strip.start), room.about_all, room.about_rest
    g0, g1 = strip.cosines[row + keys[0], columns], strip.cosines[row + keys[1], columns]
    g2, g3 = strip.cosines[row + keys[2], columns], strip.cosines[row + keys[3], columns]
    a, added, again, left = room.single[part], room.added[part], room.again[part], room.left[part]
    for key in keys:
        mark_key(key - strip.start, left, 0.5 * HIDDEN)
    if bounded:
        for i in range(a.size):
            again[i] = added[i]
        add_four(
            g0, g1, g2, g3, w[0], w[1], w[2], w[3], a, room.rest_of_rest[part], again, left, True,
            g[0, part], g[1, part], g[2, part], g[3, part], room.ends_of_rest,
        )  # fmt: skip
    add_four(
        g0, g1, g2, g3, w[0], w[1], w[2], w[3], a, room.rest[part], added, left, False,
        e[0, part], e[1, part], e[2, part], e[3, part], room.ends_of_all,
    )  # fmt: skip


@compile_row_kernel
def add_four(
    g0: F32, g1: F32, g2: F32, g3: F32, w0: np.float32, w1: np.float32, w2: np.float32, w3: np.float32,
    a: F32, rest: F32, added: F32, left: F32, of_rest: bool, e0: F32, e1: F32, e2: F32, e3: F32, ends: F32,
) -> None:  # fmt: skip
    """The loop of ``advance``: E = a (rest − added), and the ends of E."""
    widen_vectors()
    low0 = low1 = low2 = low3 = np.float32(2.0 * HIDDEN)
    high0 = high1 = high2 = high3 = np.float32(-2.0 * HIDDEN)
    for i in range(np.uint64(a.size)):
        not_least = np.float32(HIDDEN) - left[i]
        not_most = not_least if of_rest else left[i]
        along = added[i] + w0 * g0[i]
        e = a[i] * (rest[i] - along)
        low0, high0, e0[i] = smaller(low0, e + not_least), larger(high0, e - not_most), e
        along = along + w1 * g1[i]
        e = a[i] * (rest[i] - along)
        low1, high1, e1[i] = smaller(low1, e + not_least), larger(high1, e - not_most), e
        along = along + w2 * g2[i]
        e = a[i] * (rest[i] - along)
        low2, high2, e2[i] = smaller(low2, e + not_least), larger(high2, e - not_most), e
        along = along + w3 * g3[i]
        e = a[i] * (rest[i] - along)
        low3, high3, e3[i] = smaller(low3, e + not_least), larger(high3, e - not_most), e
        added[i] = along
    ends[0, 0], ends[1, 0], ends[2, 0], ends[3, 0] = low0, low1, low2, low3
    ends[0, 1], ends[1, 1], ends[2, 1], ends[3, 1] = high0, high1, high2, high3


@compile_inline_kernel
def note_closest(strip: Strip, keys: I64, first: int, last: int, sink: int, room: Room, closest: F32) -> None:
    """Raise the largest cosines with selected keys by those with the keys of a step, and note the largest left out.

    The keys of the step themselves are left out until their turn, so they are looked at one by one.
    """
    row, width = strip.row, strip.stop - strip.start
    part, columns = slice(0, width), slice(strip.column, strip.column + width)
    reached, nothing, cosines = room.reached[part], room.nothing[part], strip.cosines
    for t in range(last - first):
        at = keys[t] - strip.start
        if 0 <= at < width:
            most = reached[at]
            for b in range(t):
                most = max(most, cosines[row + keys[b], strip.column + at] if first + b != sink else most)
                closest[first + b] = max(closest[first + b], most)
            room.left[at] = np.float32(0.0)
    g0 = cosines[row + keys[0], columns] if first != sink else nothing
    best = raise_cosines(
        g0, cosines[row + keys[1], columns], cosines[row + keys[2], columns], cosines[row + keys[3], columns],
        room.left[part], reached,
    )  # fmt: skip
    for t in range(last - first):
        closest[first + t] = max(closest[first + t], best[t])
        mark_key(keys[t] - strip.start, room.left[:width], HIDDEN)


@compile_row_kernel
def raise_cosines(
    g0: F32, g1: F32, g2: F32, g3: F32, left: F32, reached: F32
) -> tuple[np.float32, np.float32, np.float32, np.float32]:
    """The loop of ``note_closest``; returns the largest cosine with a key left out after each of four keys."""
    widen_vectors()
    best0 = best1 = best2 = best3 = np.float32(0.0)
    for i in range(np.uint64(left.size)):
        most, ceiling = larger(reached[i], g0[i]), left[i]
        best0 = larger(best0, smaller(most, ceiling))
        most = larger(most, g1[i])
        best1 = larger(best1, smaller(most, ceiling))
        most = larger(most, g2[i])
        best2 = larger(best2, smaller(most, ceiling))
        most = larger(most, g3[i])
        best3 = larger(best3, smaller(most, ceiling))
        reached[i] = most
    return best0, best1, best2, best3


@compile_row_kernel
def count_below(
    e: F32, least: F32, reach: np.float32, low0: np.float32, high0: np.float32, low1: np.float32, high1: np.float32,
    one: np.int32,
) -> tuple[np.int32, np.int32, np.int32, np.int32]:  # fmt: skip
    """Count the keys whose E is surely below a ``low``, and those whose E is perhaps not above the ``high``, twice."""
    widen_vectors()
    sure0 = possible0 = sure1 = possible1 = none = np.int32(0)
    for i in range(np.uint64(e.size)):
        error = least[i] * reach
        most, less = e[i] + error, e[i] - error
        sure0 = np.int32(sure0 + (one if most < low0 else none))
        possible0 = np.int32(possible0 + (one if less <= high0 else none))
        sure1 = np.int32(sure1 + (one if most < low1 else none))
        possible1 = np.int32(possible1 + (one if less <= high1 else none))
    return sure0, possible0, sure1, possible1


@compile_row_kernel
def count_early(
    g: F32, left: F32, least: F32, reach: np.float32, low: np.float32, high: np.float32, one: np.int32
) -> tuple[np.int32, np.int32, np.float32]:
    """The counts of ``count_below`` about one threshold, and the lowest of a selected key."""
    widen_vectors()
    sure = possible = none = np.int32(0)
    lowest = np.float32(HIDDEN)
    for i in range(np.uint64(g.size)):
        error = least[i] * reach
        sure = np.int32(sure + (one if g[i] + error < low else none))
        possible = np.int32(possible + (one if g[i] - error <= high else none))
        lowest = smaller(lowest, g[i] + left[i])
    return sure, possible, lowest


@compile_inline_kernel
def add_worst_pairs(row: int, lowest: np.float32, g: F32, left: F32, steepness: Steepness, rows: Rows) -> None:
    """Add the sums of the upper bounds over the keys of a strip, of which the selected ones have g from lowest on."""
    least, most = rows.value[NEAREST_TO_REST, row], rows.most[row]
    for k in range(rows.total.shape[0] if lowest <= least else 0):
        slope, reach = steepness.slope[k, row], steepness.reach[k, row]
        between = np.int32(0)
        if lowest + reach >= most:
            total, best = sum_far_pairs(g, left, lowest, least, most, reach, slope)
        else:
            total, best, _, between = sum_worst_pairs(g, left, least, most, reach, slope)
        if between > 0 and g.size == rows.most.size + 1:
            of_between, largest = sum_pairs_between(g, left, least, most, reach, slope)
            total, best, between = total + of_between, max(best, largest), np.int32(0)
        rows.total[k, row] += total
        rows.best[k, row] = max(rows.best[k, row], best)
        rows.between[k, row] += between


@compile_inline_kernel
def conclude(
    row: int, which: int, zeros: int, selected_zeros: int, s: F64, head: Head, keys: Keys, rows: Rows, space: Space
) -> tuple[int, int, bool]:
    """The count about a threshold in one row, N = row + 1: K_out about the farthest selected key, or else K_in.

    With it the key that attains the threshold, and whether no key but that, or its ties with y = 0, lies within its
    error of it: the row is not settled. s: the centre, (d,); zeros: the number of keys with y = 0, all and selected
    ones.
    """
    key, near, sure = rows.key[which, row], rows.near[which, row], rows.sure[which, row]
    outside, empty = which == FARTHEST, head.least[key] == 0.0
    if near == (zeros if empty else 1):
        count = sure - row - 1 + near if outside else sure + (selected_zeros if empty else 0)
        return int(count), int(key), True
    place = rows.place[which, row]
    listed, sure = (rows.listed[place : place + near], sure) if place >= 0 else (head.order, np.int32(0))
    measure_energies(listed, s, head, keys, space)
    best, count, inside = settle(1.0 if outside else -1.0, row + 1, listed, s, head, keys, space)
    return int(count + sure - (row + 1 - inside if outside else 0)), int(best), False


@compile_row_kernel
def measure_energies(listed: I64, s: F64, head: Head, keys: Keys, space: Space) -> None:
    """E of some keys about s, and its error, in float64."""
    slope, size = error_slope(s.size, 2.0**-53), np.sqrt(inner(s, s))
    for key in listed:
        a = head.alpha[key] * keys.norm[key]
        space.energy[key] = a * a - 2.0 * head.alpha[key] * inner(s, keys.states[key])
        space.error[key] = a * slope * (size + a) + 2.0**-1000 if a > 0.0 else 0.0


@compile_row_kernel
def settle(sign: float, split: int, listed: I64, s: F64, head: Head, keys: Keys, space: Space) -> tuple[int, int, int]:
    """Among some keys, N = split, with products of differences where energies do not decide: the farthest selected key
    from s (sign 1) or the nearest key left out (sign −1), how many of the others are not farther, and how many are
    selected.
    """
    energy, error, best = space.energy, space.error, find_extreme(sign, split, listed, s, head, keys.states, space)
    count, inside = 0, 0
    for key in listed:
        selected = head.rank[key] < split
        inside += int(selected)
        if selected != (sign > 0.0):
            gap = energy[key] - energy[best]
            if abs(gap) <= error[key] + error[best]:
                gap = compare_distances(s, head.alpha, keys.states, key, best)
            count += int(gap <= 0.0)
    return best, count, inside


@compile_row_kernel
def find_extreme(sign: float, split: int, listed: I64, s: F64, head: Head, states: Floats, space: Space) -> int:
    """The key that ``settle`` returns."""
    energy, error, top = space.energy, space.error, -1
    for key in listed:
        wanted = (head.rank[key] < split) == (sign > 0.0)
        if wanted and (top < 0 or sign * energy[key] > sign * energy[top]):
            top = key
    best = top
    for key in listed:
        near = sign * (energy[key] - energy[top]) >= -(error[key] + error[top])
        wanted = (head.rank[key] < split) == (sign > 0.0)
        if wanted and near and sign * compare_distances(s, head.alpha, states, key, best) > 0.0:
            best = key
    return int(best)
