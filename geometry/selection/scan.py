"""The Gram scan: what orders the keys about s_N for every N of a head, from one matrix of cosines of a KV group.

Letters: n keys in order of position, w of them in a strip, d components of a value state; rank: place of a key in the
order of falling weight; a_l = ‖y_l‖; u_l = v_l/‖v_l‖. Row N − 1 of an array belongs to N.

Distances from a centre s are ordered by E_l = ‖y_l‖² − 2⟨s, y_l⟩ = a_l (a_l − 2 c_l), which is D_l without the common
term ‖s‖². The sum c_l = Σ_k a_k cos(u_k, u_l) over the selected keys k grows by one row of the matrix of cosines with
every N. All heads that share value states share the matrix, which is a product in float64 rounded once to float32; c
is summed in float64. Where the matrix is too large there is a strip of its columns at a time, and each strip is made
twice: once to find the nearest and the farthest key of every row, and once to count the keys nearer than these.

Exact counts. What the last TILE rows at most have added to c is a sum in float32, as is E_l. With the roundings of a
cosine, of a, of each term, of a sum of TILE of them, of c, of E_l and of each sum that is compared, the error of E_l
is below δ_l = a_l (SLOPE · size + BEND · max a), where size = Σ a_k over the selected keys; the roundings in float64
are a millionth of this. If nothing but the nearest key itself lies within its own error of the threshold, the
count is right. Keys with y = 0 have E = δ = 0 and are ties of each other. All other rows are *settled*: repeated in
float64 with ``compare_distances``, which is exactly 0 for equal y. The scan thus affects speed, never the result.

Underflow. All a are multiplied by a power of two, with which the largest ‖v‖ lies between 2^(LIFT−1) and 2^LIFT. In δ,
a_l is not below FLOOR unless y_l = 0, and TRIFLE is added to the bracket: their product exceeds what underflow loses.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from geometry.accelerate import compile_inline_kernel, compile_row_kernel, larger, smaller, widen_vectors
from geometry.arrays import F32, F64, I32, I64, Floats
from geometry.inputs import GROUP
from geometry.selection.keys import (
    compare_distances,
    error_slope,
    inner,
    measure_norms,
    scale_states,
    sort_keys,
)
from geometry.selection.upper_bounds import Steepness, sum_far_pairs, sum_pairs_between, sum_worst_pairs

STRIP_BYTES = 2**25
"""Most memory of the cosines that are held at once: all pairs of up to 2,896 keys."""

HEAD_BYTES = 512
"""Memory of a head for each of its keys, about."""

PRODUCT_ROWS = 256
"""Rows of the matrix that are multiplied at once in float64."""

STEP = 4
"""Values of N for which one pass over the keys computes E."""

TILE = 16
"""Most rows after which what they add to c is added to it in float64."""

APART = 48
"""Numbers between vectors that are read together: at the same place of a page they would displace each other in the
cache of a core."""

SLOPE, BEND = 2.04 * (TILE + 8) * 2.0**-24, 5.1 * 2.0**-24
"""Factors of a_l · size and of a_l · max a in the error bound of E_l."""

LIFT, FLOOR, TRIFLE = 60, 2.0**-87, 2.0**-58
"""The exponent of the largest lifted norm, and what underflow adds to the error bound: see above."""

HIDDEN = 2.0**126
"""Larger than any lifted E: added to that of a key that is not to be a minimum."""

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


def multiply_all(states: Floats, norm: F64) -> F32:
    """Cosines of all pairs of keys, (n, n), rounded once; those of a pair are the same both ways."""
    directions, cosines = normalise(states, norm), np.empty((len(norm), len(norm)), np.float32)
    for first in range(0, len(norm), PRODUCT_ROWS):
        rows = slice(first, first + PRODUCT_ROWS)
        part = (directions[rows] @ directions[: rows.stop].T).astype(np.float32)
        cosines[rows, : rows.stop], cosines[:first, rows] = part, part[:, :first].T
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
    bend: float
    trifle: float
    """Coefficients of the error bound."""


def arrange(weights: Floats, keys: Keys, *, sink: bool) -> Head:
    """Sort the keys of a head by their weights, (n,)."""
    order, n = sort_keys(weights), weights.size
    rank, alpha = np.empty(n, np.int64), weights.astype(np.float64)
    rank[order] = np.arange(n)
    factor = 2.0 ** (LIFT - math.frexp(keys.norm.max())[1])
    a = factor * alpha * keys.norm
    least = np.where(a > 0, np.maximum(a, FLOOR), 0).astype(np.float32)
    return Head(alpha, order, rank, a, least, int(rank[0]) if sink else n, factor, SLOPE, BEND, TRIFLE)


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
    most: F32
    """Largest E left out about s without the sink, (n − 1,)."""
    closest: F32
    """Largest cosine of a selected key but the sink with a key left out, at least 0, (n − 1,)."""
    total: F64
    best: F64
    early: I32
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
    about_all: F32
    about_rest: F32
    """E about s and about s without the sink, (STEP, w)."""
    left: F32
    selected: F32
    """A large number for keys left out, 0 for selected ones, and the other way round, (w,)."""
    reached: F32
    """Largest cosine with a selected key but the sink, (w,)."""
    nothing: F32
    """Zeros, (w,)."""
    keys: I64
    weights: F32
    """The keys of a step, and 2 a of each, (STEP,)."""


class Space(NamedTuple):
    """Memory of the rows that are settled, one by one."""

    energy: F64
    error: F64
    """E of every key and its error, (n,)."""
    g: F32
    left: F32
    """E about s without the sink, lifted, and ``Room.left`` of all keys, (n,)."""


def make_space(n: int) -> Space:
    """Memory for rows of heads with n keys."""
    return Space(energy=np.empty(n), error=np.empty(n), g=np.empty(n, np.float32), left=np.empty(n, np.float32))


def make_room(n: int) -> Room:
    """Memory for scans of heads with n keys."""
    width = choose_width(n) + APART
    wide, about = np.empty((3, width)), np.empty((2, STEP, width), np.float32)
    single, added, again, rest, rest_of_rest, left, selected, reached, nothing = np.zeros((9, width), np.float32)
    return Room(
        c=wide[0],
        a=wide[1],
        base=wide[2],
        single=single,
        added=added,
        again=again,
        rest=rest,
        rest_of_rest=rest_of_rest,
        about_all=about[0],
        about_rest=about[1],
        left=left,
        selected=selected,
        reached=reached,
        nothing=nothing,
        keys=np.empty(STEP, np.int64),
        weights=np.empty(STEP, np.float32),
    )


def make_rows(n: int, kappas: int) -> Rows:
    """Memory for what a scan finds of a head, before the first strip."""
    value, key, by_kappa = np.full((3, n - 1), np.inf, np.float32), np.zeros((3, n - 1), np.int32), (kappas, n - 1)
    value[FARTHEST] = -np.inf
    return Rows(
        value=value,
        key=key,
        sure=np.zeros_like(key),
        near=np.zeros_like(key),
        most=np.full(n - 1, -np.inf, np.float32),
        closest=np.zeros(n - 1, np.float32),
        total=np.zeros(by_kappa),
        best=np.zeros(by_kappa),
        early=np.zeros(by_kappa, np.int32),
        between=np.zeros(by_kappa, np.int32),
    )


def scan_heads(keys: Keys, heads: Sequence[Head], steepness: Sequence[Steepness], room: Room) -> list[Rows]:
    """Scan heads that share value states.

    steepness: of the upper bounds of each head; without any only the thresholds about s are computed.
    """
    bounded = len(steepness) > 0
    given = steepness if bounded else [Steepness.none()] * len(heads)
    results = [make_rows(len(keys.norm), len(of.slope)) for of in given]
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
    size_of_rest, size_of_sink, first, opened = 0.0, 0.0, 0, 0
    clear(head, strip, room)
    while first < n - 1:
        if first == head.sink:
            size_of_sink = head.a[head.order[first]]
            place_sink(strip, size_of_sink, room)
        if first in (0, head.sink) or first + STEP - opened > TILE:
            begin_tile(room, width)
            opened = first
        last = choose_step(head, first, keys, room.weights)
        advance(strip, keys, room, bounded)
        if bounded and find:
            note_closest(strip, keys, first, last, head.sink, room, rows.closest)
        for b in range(last - first):
            size_of_rest += 0.5 * np.float64(room.weights[b])
            select_key(keys[b] - strip.start, width, room)
            if find:
                note_thresholds(first + b, b, strip, room, rows, bounded)
            if count:
                reach_of_rest = np.float32(head.slope * size_of_rest + head.bend * largest + head.trifle)
                reach = np.float32(reach_of_rest + head.slope * size_of_sink)
                read_row(first + b, b, head, strip, steepness, room, rows, reach, reach_of_rest, bounded)
        first = last


@compile_inline_kernel
def select_key(at: int, width: int, room: Room) -> None:
    """Note that the key at this place of a strip, if it is one, is selected from now on."""
    if 0 <= at < width:
        room.left[at], room.selected[at] = np.float32(0.0), np.float32(HIDDEN)


@compile_inline_kernel
def note_thresholds(row: int, b: int, strip: Strip, room: Room, rows: Rows, bounded: bool) -> None:
    """Note the thresholds of a row, N = row + 1, as far as the keys of a strip attain them."""
    part = slice(0, strip.stop - strip.start)
    note_extremes(row, room.about_all[b, part], room.left[part], room.selected[part], strip.start, rows)
    if bounded:
        note_extremes_of_rest(row, room.about_rest[b, part], room.selected[part], strip.start, rows)


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
    part, least = slice(0, strip.stop - strip.start), head.least[strip.start : strip.stop]
    count_about(row, NEAREST, FARTHEST, room.about_all[b, part], least, reach, head.least, rows)
    if bounded:
        g = room.about_rest[b, part]
        count_about(row, NEAREST_TO_REST, NEAREST_TO_REST, g, least, reach_of_rest, head.least, rows)
        add_worst_pairs(row, g, room.left[part], steepness, rows)


@compile_row_kernel
def clear(head: Head, strip: Strip, room: Room) -> None:
    """Prepare the vectors of ``Room`` for the first key of a head."""
    for i in range(strip.stop - strip.start):
        room.c[i], room.a[i], room.base[i] = 0.0, head.a[strip.start + i], head.a[strip.start + i]
        room.single[i], room.added[i] = np.float32(room.a[i]), np.float32(0.0)
        room.left[i], room.selected[i], room.reached[i] = np.float32(HIDDEN), np.float32(0.0), np.float32(0.0)


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


@compile_inline_kernel
def begin_tile(room: Room, width: int) -> None:
    """Add what the last tile has added to c, and compute in float64 what E of the next tile begins with."""
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
    a, added, again = room.single[part], room.added[part], room.again[part]
    if bounded:
        for i in range(a.size):
            again[i] = added[i]
        rest = room.rest_of_rest[part]
        add_four(g0, g1, g2, g3, w[0], w[1], w[2], w[3], a, rest, again, g[0, part], g[1, part], g[2, part], g[3, part])
    rest = room.rest[part]
    add_four(g0, g1, g2, g3, w[0], w[1], w[2], w[3], a, rest, added, e[0, part], e[1, part], e[2, part], e[3, part])


@compile_row_kernel
def add_four(
    g0: F32, g1: F32, g2: F32, g3: F32, w0: np.float32, w1: np.float32, w2: np.float32, w3: np.float32,
    a: F32, rest: F32, added: F32, e0: F32, e1: F32, e2: F32, e3: F32,
) -> None:  # fmt: skip
    """The loop of ``advance``: E = a (rest − added)."""
    widen_vectors()
    for i in range(np.uint64(a.size)):
        along = added[i] + w0 * g0[i]
        e0[i] = a[i] * (rest[i] - along)
        along = along + w1 * g1[i]
        e1[i] = a[i] * (rest[i] - along)
        along = along + w2 * g2[i]
        e2[i] = a[i] * (rest[i] - along)
        along = along + w3 * g3[i]
        e3[i] = a[i] * (rest[i] - along)
        added[i] = along


@compile_inline_kernel
def note_extremes(row: int, e: F32, left: F32, selected: F32, start: int, rows: Rows) -> None:
    """The part of ``note_thresholds`` about s."""
    low, high = find_ends(e, selected, left)
    lowest, highest = find_keys(e, low, high)
    if low < rows.value[NEAREST, row]:
        rows.value[NEAREST, row], rows.key[NEAREST, row] = low, start + lowest
    if high > rows.value[FARTHEST, row]:
        rows.value[FARTHEST, row], rows.key[FARTHEST, row] = high, start + highest


@compile_inline_kernel
def note_extremes_of_rest(row: int, e: F32, selected: F32, start: int, rows: Rows) -> None:
    """The part of ``note_thresholds`` about s without the sink: the least and the largest E left out."""
    low, high = find_ends(e, selected, selected)
    rows.most[row] = max(rows.most[row], high)
    if low < rows.value[NEAREST_TO_REST, row]:
        key = start + find_keys(e, low, low)[0]
        rows.value[NEAREST_TO_REST, row], rows.key[NEAREST_TO_REST, row] = low, key


@compile_row_kernel
def find_ends(e: F32, not_least: F32, not_most: F32) -> tuple[np.float32, np.float32]:
    """The least and the largest E but of keys for which ``not_least``, ``not_most`` is a large number and not 0."""
    widen_vectors()
    low, high = np.float32(2.0 * HIDDEN), np.float32(-2.0 * HIDDEN)
    for i in range(np.uint64(e.size)):
        low, high = smaller(low, e[i] + not_least[i]), larger(high, e[i] - not_most[i])
    return low, high


@compile_row_kernel
def find_keys(e: F32, low: np.float32, high: np.float32) -> tuple[np.int32, np.int32]:
    """The first keys of two E; the number of keys where there is none."""
    widen_vectors()
    lowest = highest = np.int32(e.size)
    for i in range(np.uint64(e.size)):
        lowest = min(lowest, np.int32(i) if e[i] == low else np.int32(e.size))
        highest = min(highest, np.int32(i) if e[i] == high else np.int32(e.size))
    return lowest, highest


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
        if 0 <= keys[t] - strip.start < width:
            room.left[keys[t] - strip.start] = np.float32(HIDDEN)


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


@compile_inline_kernel
def count_about(
    row: int, which: int, other: int, e: F32, least: F32, reach: np.float32, of_all: F32, rows: Rows
) -> None:
    """Count the keys of a strip about one threshold or two.

    reach: factor of ``least`` in the error; of_all: ``least`` of all keys, (n,).
    """
    value, error = rows.value[which, row], of_all[rows.key[which, row]] * reach
    end, its_error = rows.value[other, row], of_all[rows.key[other, row]] * reach
    sure, possible, sure_of_other, possible_of_other = count_below(
        e, least, reach, value - error, value + error, end - its_error, end + its_error
    )
    rows.sure[which, row] += sure
    rows.near[which, row] += possible - sure
    if other != which:
        rows.sure[other, row] += sure_of_other
        rows.near[other, row] += possible_of_other - sure_of_other


@compile_row_kernel
def count_below(
    e: F32, least: F32, reach: np.float32, low0: np.float32, high0: np.float32, low1: np.float32, high1: np.float32
) -> tuple[np.int32, np.int32, np.int32, np.int32]:
    """Count the keys whose E is surely below a ``low``, and those whose E is perhaps not above the ``high``, twice."""
    widen_vectors()
    sure0 = possible0 = sure1 = possible1 = np.int32(0)
    for i in range(np.uint64(e.size)):
        error = least[i] * reach
        most, less = e[i] + error, e[i] - error
        sure0, possible0 = np.int32(sure0 + np.int32(most < low0)), np.int32(possible0 + np.int32(less <= high0))
        sure1, possible1 = np.int32(sure1 + np.int32(most < low1)), np.int32(possible1 + np.int32(less <= high1))
    return sure0, possible0, sure1, possible1


@compile_inline_kernel
def add_worst_pairs(row: int, g: F32, left: F32, steepness: Steepness, rows: Rows) -> None:
    """Add the sums of the upper bounds over the keys of a strip."""
    least, most = rows.value[NEAREST_TO_REST, row], rows.most[row]
    for k in range(rows.total.shape[0]):
        slope, reach = steepness.slope[k, row], steepness.reach[k, row]
        total, best, early, between = sum_far_pairs(g, left, least, most, reach, slope)
        if between > 0:
            total, best, early, between = sum_worst_pairs(g, left, least, most, reach, slope)
        if between > 0 and g.size == rows.most.size + 1:
            of_inner, largest = sum_pairs_between(g, left, least, most, reach, slope)
            total, best, between = total + of_inner, max(best, largest), np.int32(0)
        rows.total[k, row] += total
        rows.best[k, row] = max(rows.best[k, row], best)
        rows.early[k, row] += early
        rows.between[k, row] += between


@compile_inline_kernel
def conclude(
    row: int, zeros: int, selected_zeros: int, s: F64, head: Head, keys: Keys, rows: Rows, space: Space, of_rest: bool
) -> tuple[int, int, int, int]:
    """One row, N = row + 1: (K_in, K_out, the nearest key left out, the farthest selected key) about s, (d,).

    zeros: the number of keys with y = 0, all and selected ones; of_rest: whether s is that without the sink, and only
    K_in is wanted.
    """
    if not is_certain(row, zeros, head, rows, of_rest):
        return settle(row + 1, s, head, keys, space)
    return read_counts(row, row + 1, zeros, selected_zeros, head, rows, of_rest)


@compile_inline_kernel
def is_certain(row: int, zeros: int, head: Head, rows: Rows, of_rest: bool) -> bool:
    """Whether no key but that of a threshold, or its ties with y = 0, lies within its error of it (``conclude``)."""
    lower = NEAREST_TO_REST if of_rest else NEAREST
    empty_near = head.least[rows.key[lower, row]] == 0.0
    empty_far = head.least[rows.key[FARTHEST, row]] == 0.0
    certain = rows.near[lower, row] == (zeros if empty_near else 1)
    return bool(certain and (of_rest or rows.near[FARTHEST, row] == (zeros if empty_far else 1)))


@compile_inline_kernel
def read_counts(
    row: int, split: int, zeros: int, selected_zeros: int, head: Head, rows: Rows, of_rest: bool
) -> tuple[int, int, int, int]:
    """What ``conclude`` returns for a row, N = split, that is certain."""
    lower = NEAREST_TO_REST if of_rest else NEAREST
    nearest, farthest = rows.key[lower, row], rows.key[FARTHEST, row]
    k_in = rows.sure[lower, row] + (selected_zeros if head.least[nearest] == 0.0 else 0)
    k_out = rows.sure[FARTHEST, row] - split
    k_out += zeros if head.least[farthest] == 0.0 else 1
    return int(k_in), int(k_out), int(nearest), int(farthest)


@compile_row_kernel
def settle(split: int, s: F64, head: Head, keys: Keys, space: Space) -> tuple[int, int, int, int]:
    """The same, N = split, in float64, with products of differences where energies do not decide."""
    n, slope, states = head.alpha.size, error_slope(s.size, 2.0**-53), keys.states
    energy, error, size = space.energy, space.error, np.sqrt(inner(s, s))
    for key in range(n):
        a = head.alpha[key] * keys.norm[key]
        energy[key] = a * a - 2.0 * head.alpha[key] * inner(s, states[key])
        error[key] = a * slope * (size + a) + 2.0**-1000 if a > 0.0 else 0.0
    nearest = find_extreme(-1.0, split, s, head, states, energy, error)
    farthest = find_extreme(1.0, split, s, head, states, energy, error)
    k_in, k_out = 0, 0
    for key in range(n):
        other = nearest if head.rank[key] < split else farthest
        gap, unsure = energy[key] - energy[other], error[key] + error[other]
        if abs(gap) <= unsure:
            gap = compare_distances(s, head.alpha, states, key, other)
        if head.rank[key] < split:
            k_in += gap <= 0.0
        else:
            k_out += gap <= 0.0
    return k_in, k_out, nearest, farthest


@compile_row_kernel
def find_extreme(sign: float, split: int, s: F64, head: Head, states: Floats, energy: F64, error: F64) -> int:
    """The selected key that is farthest from s (sign 1), or the nearest key left out (sign −1)."""
    first, last = (0, split) if sign > 0.0 else (split, head.order.size)
    top = head.order[first]
    for key in head.order[first:last]:
        if sign * energy[key] > sign * energy[top]:
            top = key
    best = top
    for key in head.order[first:last]:
        near = sign * (energy[key] - energy[top]) >= -(error[key] + error[top])
        if near and sign * compare_distances(s, head.alpha, states, key, best) > 0.0:
            best = key
    return int(best)
