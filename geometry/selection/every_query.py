"""What every query of a head selects, on a grid of N, from one matrix product for a block of its queries.

Holds ``measure_queries``, which measures consecutive queries of the heads of one layer: the counts of each on its grid,
``half_octave_grid`` of its keys, and what ``geometry.quantities.QueryMeasures`` declares. What does not belong here:
every N of a query (``geometry.selection.profile``).

Letters as in ``geometry.selection.scan``, and: H heads, R queries, K keys up to the last of them, n keys that a query
sees, G numbers of a grid, T of all grids of a block; t_l = 2⟨s_N, u_l⟩, so that E_l = a_l (a_l − t_l).

Exact counts. s_N is summed in float64 and rounded once, and t is a product in float32: G d n multiply-adds for a query,
where sums over the selected keys would take n²/2. With the roundings of s_N, u, a, d terms in any order, E_l and each
sum that is compared, the error of E_l is below a_l (slope · ‖s_N‖ + rounding · size + BEND · max a + TRIFLE), where
slope is ``error_slope`` of d terms in float32, rounding that of n terms in float64, and size = Σ a_k over the selected
keys. Where the bound leaves a key undecided, the query is *settled* for this N in float64, as in the scan. On a GPU,
``geometry.selection.torch_queries`` sums, multiplies and counts in float64, with a bound of its own.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from geometry.accelerate import (
    compile_kernel,
    compile_row_kernel,
    compile_row_sum_kernel,
    larger,
    smaller,
    widen_vectors,
)
from geometry.arrays import F32, F64, I32, I64
from geometry.grids import classify_contexts, compute_log_weights, half_octave_grid, list_half_octaves
from geometry.quantities import TOP_KEYS, QueryMeasures, list_declared
from geometry.selection.keys import add_key, error_slope, inner
from geometry.selection.scan import (
    BEND,
    FLOOR,
    HIDDEN,
    LIFT,
    TRIFLE,
    Head,
    Keys,
    Space,
    measure_energies,
    normalise,
    prepare_keys,
    settle,
)
from geometry.threads import one_blas_thread

BY_WEIGHT = ("effective_keys", "n_90", "sink_weight", "self_weight", "previous_weight", "top_position", "top_weight")
"""Measures that ``keep_largest`` writes, in this order, before τ/(1 − τ) of the keys that are not kept."""

LENGTHS = ("output_norm", "error_renormalised_16")
"""Measures of the head's output."""

PRODUCT_BYTES = 2**22
"""Most memory of t of the queries that are read together, unless one takes more."""

LANES = 32
"""Keys are read so many at once; those that a query does not see, and zeros after the last, count as none."""

UNSEEN = np.int64(2**63 - 1)
"""Sorts keys that a query does not see after all others."""

UNDECIDED = np.int32(-2)
"""Stands for a count that float32 does not decide."""


class Grids(NamedTuple):
    """The grids of N of all numbers of keys up to some; first axis n, 0 beyond the end of a grid."""

    sizes: I64
    """``half_octave_grid`` of n keys, (n, G)."""
    weights: F64
    """Weights of a mean over ln N, N from 2 on, (n, G)."""


@lru_cache(maxsize=4)
def make_grids(n_keys: int) -> Grids:
    """The grids of up to so many keys."""
    grids = {n: half_octave_grid(n) for n in range(2, n_keys + 1)}
    width = max(map(len, grids.values()))
    sizes, weights = np.zeros((n_keys + 1, width), np.int64), np.zeros((n_keys + 1, width))
    for n, grid in grids.items():
        sizes[n, : len(grid)] = grid
        weights[n, : len(grid)] = compute_log_weights(grid, 2, n - 1) if grid[-1] > 1 else 0
    return Grids(sizes, weights)


class Block(NamedTuple):
    """Consecutive queries of one head; their keys count from position 0."""

    start: int
    """Position of the first query."""
    first_keys: I64
    """The first key that each query sees, (R,)."""
    weights: F32
    """(R, K)."""
    order: I64
    """Keys by falling weight, those that are seen first, (R, K)."""
    sizes: I64
    """The grid of each query, (R, G), 0 beyond its end."""


Count = Callable[[Block, I32], None]
"""Fills the counts of the queries of a block of any head, K_in and K_out, (2, R, G), as far as its bound decides."""


class Room(NamedTuple):
    """Memory for a block of queries of any head."""

    sums: F32
    """2 s_N, lifted, (T, d)."""
    along: F32
    """t, (T · K,), of fewer keys if the block sees fewer."""
    reach: F32
    """The bracket in the error of E, as far as s_N matters, (T,)."""
    vectors: F32
    """Of each key a, ``least``, and what hides all but those left out, and all but the selected ones, (4, K)."""


@one_blas_thread
def measure_queries(
    weights: F32, values: F32, first_keys: I64, largest: F32 | None = None, place: str = "cpu"
) -> tuple[QueryMeasures, I32, I32]:
    """Measure consecutive queries of the heads of one layer, up to the last key.

    Parameters
    ----------
    weights
        Weights over the keys, float32 (H, R, K), R < K: the last query is at the last key. 0 for keys that a query does
        not see, and later those of the ``TOP_KEYS`` largest of each query, which are overwritten.
    values
        Value states of the keys, float32 (kv_head, K, head_dim). Query head h reads KV head h // (H / kv_head).
    first_keys
        The first key that each query sees, int64 (R,).
    largest
        To be filled with the positions and the weights of the ``TOP_KEYS`` keys of largest weight of each query, by
        rank, float32 (H, R, 2, TOP_KEYS); NaN beyond the keys that it sees. None: they are not kept.
    place
        Where the product is computed and read: on the CPU, or on the CUDA device of this name.

    Returns
    -------
    QueryMeasures, k_in, k_out
        Arrays (H, R), and the counts on the grid of each query, int32 (H, R, G), −1 beyond its end.

    Notes
    -----
    ``estimate_block_bytes`` of memory in addition to the arguments and results. A device has the value states and
    ``geometry.selection.torch_queries.PAIR_BYTES`` for each number of the product, of which ``PRODUCT_BYTES`` hold 2²⁰.
    """
    heads, rows, n_keys = weights.shape
    n = np.arange(n_keys - rows, n_keys) + 1 - first_keys
    grids, group = make_grids(n_keys), heads // len(values)
    counts = np.full((2, heads, rows, grids.sizes.shape[1]), -1, np.int32)
    columns = {name: np.empty((heads, rows)) for name in list_declared(QueryMeasures)}
    columns["n_keys"][:] = n
    room = make_room(rows, grids.sizes.shape[1], *values.shape[1:])
    for kv_head, states in enumerate(values):
        keys = prepare_keys(states, multiply=False)
        count = prepare_count(keys, place, room)
        for head in range(kv_head * group, (kv_head + 1) * group):
            kept = None if largest is None else largest[head]
            given = weights[head], first_keys, grids.sizes[n]
            measured = measure_head(*given, keys, count, len(room.reach) // counts.shape[-1], counts[:, head], kept)
            measured |= average_counts(counts[0, head], counts[1, head], n, grids)
            for name, column in measured.items():
                columns[name][head] = column
    return QueryMeasures(**columns), counts[0], counts[1]


def prepare_count(keys: Keys, place: str, room: Room) -> Count:
    """What counts on the CPU, or on the CUDA device of this name."""
    if place == "cpu":
        directions = np.zeros((room.vectors.shape[1], keys.states.shape[1]), np.float32)
        directions[: len(keys.norm)] = normalise(keys.states, keys.norm)
        return partial(count_block, keys, directions, room)
    from geometry.selection.torch_queries import TorchCounts

    there = TorchCounts(keys, place)

    def count(block: Block, counts: I32) -> None:
        begin, end = int(block.first_keys.min()), block.start + len(block.weights)
        order = block.order[:, : end - begin] - begin
        sure, most = there(block.weights[:, begin:end], order, block.sizes, begin)
        decided = np.where((sure == most).all(axis=0), sure, UNDECIDED)
        counts[:] = np.where(block.sizes > 0, decided, counts)

    return count


def list_largest(weights: F32, order: I64, largest: F32) -> None:
    """Write the positions and weights of the first keys in order, (R, 2, TOP_KEYS); NaN where there are fewer."""
    first = order[:, :TOP_KEYS]
    is_seen, kept = first < weights.shape[1], slice(first.shape[1])
    largest[...] = np.nan
    largest[:, 0, kept] = np.where(is_seen, first, np.nan)
    taken = np.take_along_axis(weights, np.where(is_seen, first, 0), axis=1)
    largest[:, 1, kept] = np.where(is_seen, taken, np.nan)


def make_room(rows: int, grid: int, n_keys: int, head_dim: int) -> Room:
    """Memory for as many queries as ``PRODUCT_BYTES`` allow, and at least one."""
    width = -(-n_keys // LANES) * LANES
    most = grid * max(1, min(rows, PRODUCT_BYTES // (4 * grid * width)))
    shapes = (most, head_dim), most * width, most, (4, width)
    return Room(*(np.empty(shape, np.float32) for shape in shapes))


def measure_head(
    weights: F32, first_keys: I64, sizes: I64, keys: Keys, count: Count, at_once: int, counts: I32,
    largest: F32 | None,
) -> dict[str, F64]:  # fmt: skip
    """Fill the counts of the queries of one head, (2, R, G), and its ``largest``, and return its other measures."""
    order, rows = sort_rows(weights, first_keys), len(sizes)
    if largest is not None:
        list_largest(weights, order, largest)
    for first in range(0, rows, at_once):
        part = slice(first, first + at_once)
        start = weights.shape[1] - rows + first
        block = Block(start, first_keys[part], weights[part], order[part], sizes[part])
        count(block, counts[:, part])
        settle_block(block, keys, counts[:, part])
    return describe_rows(weights, order, first_keys, keys.states)


def describe_rows(weights: F32, order: I64, first_keys: I64, states: F32) -> dict[str, F64]:
    """The measures of the queries of one head that do not depend on the counts, (R,); overwrites the weights."""
    kept, columns = np.zeros((len(weights), states.shape[1])), np.empty((len(BY_WEIGHT) + 1, len(weights)))
    keep_largest(weights, order, first_keys, states, kept, columns)
    rest = (weights @ states).astype(np.float64)
    norm = np.linalg.norm(kept + rest, axis=-1)
    error = np.linalg.norm(rest - kept * columns[-1][:, None], axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):  # 0/0
        lengths = {"output_norm": norm, "error_renormalised_16": np.where(norm > 0, error / norm, np.nan)}
    return dict(zip(BY_WEIGHT, columns[:-1], strict=True)) | lengths


class Contexts(NamedTuple):
    """The queries at all positions but the first, by class of context size and N."""

    n_keys: I64
    """Keys of the query at each position, (K,)."""
    sizes: I64
    """N: the powers of √2 below K, (G,)."""
    counts: I64
    """Queries of each class, from 1 on, with more keys than N, (C, G)."""

    @classmethod
    def of(cls, first_keys: I64) -> "Contexts":
        """Of queries that see the keys from these on, (K,)."""
        n = np.arange(len(first_keys)) + 1 - first_keys
        sizes = list_half_octaves(len(n))
        counts = _sort_into_classes(n[1:], int(classify_contexts(len(n)))) @ (n[1:, None] > sizes)
        return cls(n, sizes, counts.astype(np.int64))

    def average(self, k_in: I32, k_out: I32, rows: slice) -> F64:
        """What queries at some positions add to means of ``RATES``, (3, H, C, g), from their counts (H, R, ·).

        Of the first g of the N, those that the contexts reach.
        """
        n, sizes = self.n_keys[rows], self.sizes[: k_in.shape[-1]]
        n_keys, exists, used = n[:, None], n[:, None] > sizes, slice(len(sizes))
        inside, outside = (np.where(exists, counts[..., used], 0) for counts in (k_in, k_out))
        rates = np.stack([sizes / (sizes + outside), inside / sizes, 1 - outside / np.where(exists, n_keys - sizes, 1)])
        sums = _sort_into_classes(n, len(self.counts)) @ (rates * exists)
        return np.asarray(sums / np.maximum(1, self.counts[:, used]))


def _sort_into_classes(n: I64, classes: int) -> F64:
    """1 where a context of n keys is of a class, from 1 on, (C, R)."""
    return np.equal(classify_contexts(n), 1 + np.arange(classes)[:, None]).astype(np.float64)


def average_counts(k_in: I32, k_out: I32, n: I64, grids: Grids) -> dict[str, F64]:
    """Means over ln N of what follows from the counts (R, G) of queries with n keys (R,); NaN for n < 3."""
    sizes, weights, n_keys = grids.sizes[n], grids.weights[n], n[:, None]
    exists = sizes > 0
    size, left = np.where(exists, (sizes, n_keys - sizes), 1)
    k_out = np.where(exists, k_out, 0)
    curves = {
        "recall_level": k_in / size,
        "specificity_level": 1 - k_out / left,
        "precision_excess_level": (size / (size + k_out) - size / n_keys) * n_keys / left,
    }
    has_level = weights.sum(axis=-1) > 0
    return {name: np.where(has_level, (curve * weights).sum(axis=-1), np.nan) for name, curve in curves.items()}


def estimate_block_bytes(rows: int, n_keys: int, head_dim: int) -> int:
    """Upper bound of the memory of ``measure_queries`` without arguments and results, in bytes, for all heads.

    The order of the keys for every query of one head; what ``Room`` holds for one query or for ``PRODUCT_BYTES``; and
    some numbers for every query and for every key.
    """
    width, grid = n_keys + LANES, 2 * n_keys.bit_length() + 2
    of_room = (4 * grid * width + PRODUCT_BYTES) * (width + head_dim + 1) // width + 16 * width
    of_rows = rows * (8 * n_keys + 120 * grid + 48 * head_dim + 200)
    return of_room + of_rows + n_keys * (28 * head_dim + 24 * grid + 200) + 2**18


def sort_rows(weights: F32, first_keys: I64) -> I64:
    """The keys of every query by falling weight, ties by position, those that it does not see last, (R, K)."""
    order = np.empty(weights.shape, np.int64)
    write_bits(weights.view(np.int32), first_keys, order)
    order.sort(axis=-1)
    order &= 0xFFFFFFFF
    return order


@compile_kernel
def write_bits(bits: I32, first_keys: I64, order: I64) -> None:
    """Write numbers that are sorted as the keys are, (R, K); bits: of the weights, which are not negative."""
    for row in range(order.shape[0]):
        query = order.shape[1] - order.shape[0] + row
        for key in range(order.shape[1]):
            seen = first_keys[row] <= key <= query
            order[row, key] = key - (np.int64(bits[row, key]) << 32) if seen else UNSEEN


def count_block(keys: Keys, directions: F32, room: Room, block: Block, counts: I32) -> None:
    """Count on the CPU, as ``Count``; directions: u, then zeros, (K, d)."""
    begin = int(block.first_keys.min()) // LANES * LANES
    width = -(-(block.start + len(block.weights) - begin) // LANES) * LANES
    factor, total = 2.0 ** (LIFT - int(np.frexp(keys.norm.max())[1])), np.count_nonzero(block.sizes)
    along = room.along[: total * width].reshape(total, width)
    sum_block(block, keys, factor, room)
    np.matmul(room.sums[:total], directions[begin : begin + width].T, out=along)
    read_block(block, factor * keys.norm, begin, along, room, counts)


@compile_kernel
def sum_block(block: Block, keys: Keys, factor: float, room: Room) -> None:
    """Fill the sums and the reach of every N of every query."""
    at, s = 0, np.empty(keys.states.shape[1])
    for row in range(block.weights.shape[0]):
        at = sum_row(block.sizes[row], block.order[row], block.weights[row], keys, factor, s, room, at)


@compile_row_kernel
def sum_row(grid: I64, order: I64, weights: F32, keys: Keys, factor: float, s: F64, room: Room, at: int) -> int:
    """Fill those of one query from a place on, and return the place after them; s: memory of a sum, (d,)."""
    place, slope = 0, error_slope(s.size, 2.0**-24)
    s[:] = 0.0
    for split in grid:
        if split == 0:
            break
        for key in order[place:split]:
            add_key(factor * np.float64(weights[key]), keys.states[key], s)
        place = split
        for k in range(np.uint64(s.size)):
            room.sums[at, k] = 2.0 * s[k]
        room.reach[at] = slope * np.sqrt(inner(s, s))
        at += 1
    return at


@compile_kernel
def read_block(block: Block, norm: F64, begin: int, along: F32, room: Room, counts: I32) -> None:
    """Read the counts of all queries from t of the keys from ``begin`` on; norm: ‖v‖, lifted, (K,)."""
    at = 0
    for row in range(block.weights.shape[0]):
        seen = slice(block.first_keys[row], block.start + row + 1)
        at = read_row(
            block.sizes[row], block.order[row], block.weights[row, seen], norm[seen], seen.start - begin, begin,
            along, room, at, counts[:, row],
        )  # fmt: skip


@compile_row_kernel
def read_row(
    grid: I64, order: I64, weights: F32, norm: F64, first: int, begin: int, along: F32, room: Room, at: int, counts: I32
) -> int:
    """Fill the counts of one query from t at a place and after it, (2, G), and return the place after them.

    weights, norm: of the keys that it sees, (n,); first: the column of the first of them.
    """
    part, place = slice(first // LANES * LANES, -(-(first + weights.size) // LANES) * LANES), 0
    a, least, left, selected = (
        room.vectors[0, part], room.vectors[1, part], room.vectors[2, part], room.vectors[3, part],
    )  # fmt: skip
    a[:], least[:], left[:], selected[:] = 0.0, 0.0, HIDDEN, HIDDEN
    start = first - part.start
    stop = start + norm.size
    size, largest = place_norms(weights, norm, a[start:stop], least[start:stop], left[start:stop])
    rest = np.float32(error_slope(norm.size, 2.0**-53) * size + BEND * largest + TRIFLE)
    for column in range(grid.size):
        split = grid[column]
        if split == 0:
            break
        for key in order[place:split]:
            left[key - begin - part.start], selected[key - begin - part.start] = HIDDEN, 0.0
        place, reach = split, room.reach[at] + rest
        ends = place_energies(a, least, left, selected, reach, along[at, part])
        k_in, k_out, undecided = count_within(along[at, part], least, left, selected, reach, ends)
        counts[0, column], counts[1, column] = (k_in, k_out) if undecided == 0 else (UNDECIDED, UNDECIDED)
        at += 1
    return at


@compile_row_sum_kernel
def place_norms(weights: F32, norm: F64, a: F32, least: F32, left: F32) -> tuple[float, float]:
    """Fill a and ``least``, as in ``Head``, of the keys that a query sees, all of them left out; Σ a and max a."""
    total, largest = 0.0, 0.0
    for i in range(np.uint64(a.size)):
        size = np.float64(weights[i]) * norm[i]
        a[i], least[i], left[i] = size, larger(size, FLOOR) if size > 0.0 else 0.0, 0.0
        total, largest = total + size, larger(largest, size)
    return total, largest


@compile_row_kernel
def place_energies(
    a: F32, least: F32, left: F32, selected: F32, reach: np.float32, t: F32
) -> tuple[np.float32, np.float32, np.float32, np.float32]:
    """Write E in the place of t; between what numbers lie the least E left out, and the largest E selected."""
    widen_vectors()
    low = high = np.float32(2.0 * HIDDEN)
    low_of_most = high_of_most = np.float32(-2.0 * HIDDEN)
    for i in range(np.uint64(t.size)):
        e, error = a[i] * (a[i] - t[i]), least[i] * reach
        low, high = smaller(low, (e - error) + left[i]), smaller(high, (e + error) + left[i])
        low_of_most = larger(low_of_most, (e - error) - selected[i])
        high_of_most = larger(high_of_most, (e + error) - selected[i])
        t[i] = e
    return low, high, low_of_most, high_of_most


@compile_row_kernel
def count_within(
    e: F32, least: F32, left: F32, selected: F32, reach: np.float32,
    ends: tuple[np.float32, np.float32, np.float32, np.float32],
) -> tuple[np.int32, np.int32, np.int32]:  # fmt: skip
    """K_in and K_out as far as they are sure, and how many keys may or may not be among them."""
    widen_vectors()
    low, high, low_of_most, high_of_most = ends
    k_in = k_out = most_in = most_out = np.int32(0)
    for i in range(np.uint64(e.size)):
        error = least[i] * reach
        above, below = e[i] + error, e[i] - error
        k_in = np.int32(k_in + np.int32(above + selected[i] <= low))
        most_in = np.int32(most_in + np.int32(below + selected[i] <= high))
        k_out = np.int32(k_out + np.int32(above + left[i] <= low_of_most))
        most_out = np.int32(most_out + np.int32(below + left[i] <= high_of_most))
    return k_in, k_out, np.int32((most_in - k_in) + (most_out - k_out))


@compile_kernel
def settle_block(block: Block, keys: Keys, counts: I32) -> None:
    """Replace the counts that are not decided."""
    for row in range(block.weights.shape[0]):
        seen = slice(block.first_keys[row], block.start + row + 1)
        for column, split in enumerate(block.sizes[row]):
            if counts[0, row, column] == UNDECIDED:
                order = block.order[row, : seen.stop - seen.start] - seen.start
                states, norm = keys.states[seen], keys.norm[seen]
                found = settle_query(split, order, block.weights[row, seen], Keys(states, 0, norm, keys.cosines, 0))
                counts[0, row, column], counts[1, row, column] = found


@compile_kernel
def settle_query(split: int, order: I64, weights: F32, keys: Keys) -> tuple[int, int]:
    """K_in and K_out of a query for N = split, in float64, from the keys that it sees, (n,)."""
    n, s, single = order.size, np.zeros(keys.states.shape[1]), np.empty(0, np.float32)
    rank, alpha, (energy, error) = np.empty(n, np.int64), weights.astype(np.float64), np.empty((2, n))
    rank[order] = np.arange(n)
    for key in order[:split]:
        add_key(alpha[key], keys.states[key], s)
    head = Head(alpha, order, rank, energy, single, n, 1.0, 0.0, 0.0, 0.0, 0.0)
    space = Space(energy, error, single, single)
    measure_energies(order, s, head, keys, space)
    return settle(-1.0, split, order, s, head, keys, space)[1], settle(1.0, split, order, s, head, keys, space)[1]


@compile_kernel
def keep_largest(weights: F32, order: I64, first_keys: I64, states: F32, kept: F64, columns: F64) -> None:
    """Measure the weights of every query, add its ``TOP_KEYS`` largest to ``kept``, (R, d), and set them to 0.

    columns: ``BY_WEIGHT`` and τ/(1 − τ), (measure, R); τ is the weight of the other keys, and NaN if there are none.
    """
    for row in range(weights.shape[0]):
        query, first = weights.shape[1] - weights.shape[0] + row, first_keys[row]
        describe_weights(weights[row], order[row, : query + 1 - first], query, first, columns[:, row])
        for key in order[row, : min(TOP_KEYS, query + 1 - first)]:
            add_key(np.float64(weights[row, key]), states[key], kept[row])
            weights[row, key] = np.float32(0.0)


@compile_row_kernel
def describe_weights(weights: F32, order: I64, query: int, first: int, out: F64) -> None:
    """What ``keep_largest`` writes of one query, weights (K,), order (n,)."""
    total, logs, kept, most = 0.0, 0.0, 0.0, 0
    for place in range(order.size):
        weight = np.float64(weights[order[place]])
        total += weight
        logs += weight * math.log(weight) if weight > 0.0 else 0.0
        kept = total if place < TOP_KEYS else kept
    held = 0.0
    while 10.0 * held < 9.0 * total:
        held += np.float64(weights[order[most]])
        most += 1
    out[0] = math.exp(math.log(total) - logs / total) if total > 0.0 else np.nan
    out[1], out[5] = most if total > 0.0 else np.nan, order[0]
    out[2] = np.float64(weights[0]) if first == 0 else np.nan
    out[3], out[6] = np.float64(weights[query]), np.float64(weights[order[0]]) / total
    out[4] = np.float64(weights[query - 1]) if first < query else np.nan
    unseen = max(0.0, 1.0 - total)
    out[7] = (total - kept) / (kept + unseen) if order.size > TOP_KEYS else np.nan
