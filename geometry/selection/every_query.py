"""What every query of a head selects, on a grid of N, from the cosines that the heads of a KV group share.

Holds ``measure_queries``, which measures consecutive queries of the heads of one layer: the counts of each on its grid,
``half_octave_grid`` of its keys, and what ``geometry.quantities.QueryMeasures`` declares. The scan is that of
``geometry.selection.scan`` with its error bound, but E is computed at N of the grid only; rows that the bound does not
decide are settled in float64. All queries of a head take n³/3 multiply-adds. What does not belong here: every N of a
query (``geometry.selection.profile``).

Letters: H heads, R queries, K keys up to the last of them, n keys that a query sees, G numbers of a grid.
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from geometry.accelerate import compile_kernel, compile_row_kernel, widen_vectors
from geometry.arrays import F32, F64, I32, I64
from geometry.grids import classify_contexts, compute_log_weights, half_octave_grid, list_half_octaves
from geometry.quantities import TOP_KEYS, QueryMeasures, list_declared
from geometry.selection.host import add_key, count_zeros
from geometry.selection.scan import (
    BEND,
    FARTHEST,
    FLOOR,
    HIDDEN,
    LIFT,
    NEAREST,
    PRODUCT_ROWS,
    SLOPE,
    TRIFLE,
    Head,
    Keys,
    Rows,
    Space,
    Strip,
    choose_width,
    count_about,
    find_largest,
    is_certain,
    iterate_strips,
    note_extremes,
    prepare_keys,
    read_counts,
    settle,
)
from geometry.threads import one_blas_thread

BY_WEIGHT = ("effective_keys", "n_90", "sink_weight", "self_weight", "previous_weight", "top_position", "top_weight")
"""Measures that ``keep_largest`` writes, in this order, before τ/(1 − τ) of the keys that are not kept."""

LENGTHS = ("output_norm", "error_renormalised_16")
"""Measures of the head's output."""

ENERGY_BYTES = 2**22
"""Most memory of E of the queries that are scanned together, unless one takes more."""

STEP = 8
"""Keys whose terms are added in float32 before their sum is added to 2c in float64, at most ``scan.TILE``."""

UNSEEN = np.int64(2**63 - 1)
"""Sorts keys that a query does not see after all others."""


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
    """The grid of each query, (R, G)."""
    energies: F32
    """E of every key at N of the grid, (R, G, K)."""


@one_blas_thread
def measure_queries(
    weights: F32, values: F32, first_keys: I64, largest: F32 | None = None
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

    Returns
    -------
    QueryMeasures, k_in, k_out
        Arrays (H, R), and the counts on the grid of each query, int32 (H, R, G), −1 beyond its end.

    Notes
    -----
    ``estimate_block_bytes`` of memory in addition to the arguments and results.
    """
    heads, rows, n_keys = weights.shape
    n = np.arange(n_keys - rows, n_keys) + 1 - first_keys
    grids, group = make_grids(n_keys), heads // len(values)
    counts = np.full((2, heads, rows, grids.sizes.shape[1]), -1, np.int32)
    columns = {name: np.empty((heads, rows)) for name in list_declared(QueryMeasures)}
    columns["n_keys"][:] = n
    for kv_head, states in enumerate(values):
        keys = prepare_keys(states)
        for head in range(kv_head * group, (kv_head + 1) * group):
            order = sort_rows(weights[head], first_keys)
            if largest is not None:
                list_largest(weights[head], order, largest[head])
            measured = measure_head(weights[head], order, keys, first_keys, grids.sizes[n], counts[:, head])
            measured |= average_counts(counts[0, head], counts[1, head], n, grids)
            for name, column in measured.items():
                columns[name][head] = column
    return QueryMeasures(**columns), counts[0], counts[1]


def list_largest(weights: F32, order: I64, largest: F32) -> None:
    """Write the positions and weights of the first keys in order, (R, 2, TOP_KEYS); NaN where there are fewer."""
    first = order[:, :TOP_KEYS]
    is_seen, kept = first < weights.shape[1], slice(first.shape[1])
    largest[...] = np.nan
    largest[:, 0, kept] = np.where(is_seen, first, np.nan)
    taken = np.take_along_axis(weights, np.where(is_seen, first, 0), axis=1)
    largest[:, 1, kept] = np.where(is_seen, taken, np.nan)


def measure_head(weights: F32, order: I64, keys: Keys, first_keys: I64, sizes: I64, counts: I32) -> dict[str, F64]:
    """Fill the counts of one head, K_in and K_out, (2, R, G), and return its measures that do not depend on them."""
    for first, block in iterate_blocks(weights, order, first_keys, sizes):
        scan_block(block, keys, counts[:, first : first + len(block.weights)])
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

    A strip of the cosines, ``STRIP_BYTES`` at most, and what multiplies to it; the order of the keys for every query of
    one head; E, ``ENERGY_BYTES`` at most or of one query; and some numbers for every query and for every key.
    """
    width, grid = choose_width(n_keys), 2 * n_keys.bit_length() + 2
    of_strip = width * (4 * n_keys + 12 * PRODUCT_ROWS + 8 * head_dim + 100) + 16 * PRODUCT_ROWS * head_dim
    of_rows = rows * (8 * n_keys + 120 * grid + 48 * head_dim + 200)
    return of_strip + of_rows + 2 * ENERGY_BYTES + n_keys * (8 * head_dim + 24 * grid + 200) + 2**18


def iterate_blocks(weights: F32, order: I64, first_keys: I64, sizes: I64) -> Iterator[tuple[int, Block]]:
    """Iterate over as many queries of a head at a time as ``ENERGY_BYTES`` allow, and the first of them."""
    rows, n_keys = weights.shape
    together = max(1, min(rows, ENERGY_BYTES // (4 * sizes.shape[1] * n_keys)))
    energies = np.empty((together, sizes.shape[1], n_keys), np.float32)
    for first in range(0, rows, together):
        part = slice(first, min(first + together, rows))
        start = n_keys - rows + first
        yield first, Block(start, first_keys[part], weights[part], order[part], sizes[part], energies)


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


def scan_block(block: Block, keys: Keys, counts: I32) -> None:
    """Fill the counts of the queries of a block, K_in and K_out, (2, R, G)."""
    n_keys, rows = block.weights.shape[1], len(block.weights)
    factor = 2.0 ** (LIFT - int(np.frexp(keys.norm.max())[1]))
    heads = Heads(np.empty((rows, n_keys)), np.empty((rows, n_keys), np.float32), factor)
    arrange_block(block, keys.norm, heads)
    for strip in iterate_strips(keys):
        sweep_block(block, strip, heads, np.empty(n_keys))
    read_block(block, keys, heads, counts)


class Heads(NamedTuple):
    """Lifted norms of the queries of a block, as in ``Head``; 0 for keys that a query does not see."""

    a: F64
    """(R, K)."""
    least: F32
    """(R, K)."""
    factor: float


@compile_kernel
def arrange_block(block: Block, norm: F64, heads: Heads) -> None:
    """Fill the norms; norm: ‖v‖ of the keys, (K,)."""
    for row in range(block.weights.shape[0]):
        for key in range(norm.size):
            seen = block.first_keys[row] <= key <= block.start + row
            a = heads.factor * np.float64(block.weights[row, key]) * norm[key] if seen else 0.0
            heads.a[row, key], heads.least[row, key] = a, np.float32(max(a, FLOOR) if a > 0.0 else 0.0)


@compile_kernel
def sweep_block(block: Block, strip: Strip, heads: Heads, c: F64) -> None:
    """Write E of the keys of a strip for all queries; c: memory for a number for each key, (K,)."""
    keys, weights = np.empty(STEP, np.int64), np.empty(STEP, np.float32)
    for row in range(block.weights.shape[0]):
        first, end = max(strip.start, block.first_keys[row]), min(strip.stop, block.start + row + 1)
        if first < end and block.sizes[row, 0] > 0:
            column = strip.column + first - strip.start
            sweep_row(
                block.sizes[row], block.order[row], heads.a[row], strip.cosines, column, first,
                c[: end - first], keys, weights, block.energies[row],
            )  # fmt: skip


@compile_row_kernel
def sweep_row(
    grid: I64, order: I64, a: F64, cosines: F32, column: int, first: int, c: F64, keys: I64, weights: F32, energies: F32
) -> None:
    """Write E of consecutive keys of one query; c: 2c of these keys, (w,); keys, weights: (STEP,); energies: (G, K).

    first, column: the first of these keys, and the column of its cosines.
    """
    part, columns, place = slice(first, first + c.size), slice(column, column + c.size), 0
    c[:] = 0.0
    for at in range(grid.size):
        while place < grid[at]:
            for b in range(STEP):
                keys[b] = order[min(place + b, grid[at] - 1)]
                weights[b] = np.float32(2.0 * a[keys[b]] if place + b < grid[at] else 0.0)
            place = min(place + STEP, grid[at])
            add_terms(
                cosines[keys[0], columns], cosines[keys[1], columns], cosines[keys[2], columns],
                cosines[keys[3], columns], cosines[keys[4], columns], cosines[keys[5], columns],
                cosines[keys[6], columns], cosines[keys[7], columns], weights, c,
            )  # fmt: skip
        if grid[at] > 0:
            place_energies(a[part], c, energies[at, part])


@compile_row_kernel
def add_terms(
    g0: F32, g1: F32, g2: F32, g3: F32, g4: F32, g5: F32, g6: F32, g7: F32, weights: F32, c: F64
) -> None:  # fmt: skip
    """Add to 2c what ``STEP`` keys add, one after another in float32."""
    widen_vectors()
    w0, w1, w2, w3 = weights[0], weights[1], weights[2], weights[3]
    w4, w5, w6, w7 = weights[4], weights[5], weights[6], weights[7]
    for i in range(np.uint64(c.size)):
        first = ((w0 * g0[i] + w1 * g1[i]) + w2 * g2[i]) + w3 * g3[i]
        c[i] += np.float64((((first + w4 * g4[i]) + w5 * g5[i]) + w6 * g6[i]) + w7 * g7[i])


@compile_row_kernel
def place_energies(a: F64, c: F64, e: F32) -> None:
    """E = a (a − 2c) of every key of a tile."""
    widen_vectors()
    for i in range(np.uint64(e.size)):
        e[i] = np.float32(a[i]) * np.float32(a[i] - c[i])


@compile_kernel
def read_block(block: Block, keys: Keys, heads: Heads, counts: I32) -> None:
    """Read the counts of all queries from E."""
    n_keys, s = keys.norm.size, np.empty(keys.states.shape[1])
    order, rank, alpha = np.empty(n_keys, np.int64), np.empty(n_keys, np.int64), np.empty(n_keys)
    left = np.empty((2, n_keys), np.float32)
    space = Space(np.empty(n_keys), np.empty(n_keys), left[0], left[1])
    rows = make_row(block.sizes.shape[1])
    for row in range(block.weights.shape[0]):
        first, end = block.first_keys[row], block.start + row + 1
        n = end - first
        for place in range(n):
            key = block.order[row, place] - first
            order[place], rank[key] = key, place
            alpha[key] = np.float64(block.weights[row, first + key])
        head = Head(
            alpha[:n], order[:n], rank[:n], heads.a[row, first:end], heads.least[row, first:end],
            n, heads.factor, SLOPE, BEND, TRIFLE,
        )  # fmt: skip
        seen = Keys(keys.states[first:end], keys.exponent, keys.norm[first:end], keys.cosines, first)
        read_row(block.sizes[row], block.energies[row], head, seen, rows, space, s, counts[:, row])


@compile_kernel
def make_row(grid: int) -> Rows:
    """Memory for what is found of one query."""
    value, key = np.empty((3, grid), np.float32), np.empty((3, grid), np.int32)
    none, whole = np.empty((0, grid)), np.empty((0, grid), np.int32)
    sure, near = np.empty((3, grid), np.int32), np.empty((3, grid), np.int32)
    return Rows(value, key, sure, near, value[0], value[0], none, none, whole, whole)


@compile_row_kernel
def read_row(grid: I64, energies: F32, head: Head, keys: Keys, rows: Rows, space: Space, s: F64, counts: I32) -> None:
    """The counts of one query, (2, G), from E, (G, K)."""
    part = slice(keys.first, keys.first + head.a.size)
    zeros, selected_zeros, place, size, largest = count_zeros(head.a), 0, 0, 0.0, find_largest(head.a)
    left, selected = space.left[: head.a.size], space.g[: head.a.size]
    left[:], selected[:] = np.float32(HIDDEN), np.float32(0.0)
    rows.value[NEAREST], rows.value[FARTHEST] = np.float32(np.inf), np.float32(-np.inf)
    rows.sure[:], rows.near[:] = 0, 0
    for at in range(grid.size):
        if grid[at] == 0:
            break
        for key in head.order[place : grid[at]]:
            size += head.a[key]
            selected_zeros += int(head.a[key] == 0.0)
            left[key], selected[key] = np.float32(0.0), np.float32(HIDDEN)
        place = grid[at]
        note_extremes(at, energies[at, part], left, selected, 0, rows)
        reach = np.float32(head.slope * size + head.bend * largest + head.trifle)
        count_about(at, NEAREST, FARTHEST, energies[at, part], head.least, reach, head.least, rows)
        if is_certain(at, zeros, head, rows, False):
            found = read_counts(at, place, zeros, selected_zeros, head, rows, False)
        else:
            s[:] = 0.0
            for key in head.order[:place]:
                add_key(head.alpha[key], keys.states[key], s)
            found = settle(place, s, head, keys, space)
        counts[0, at], counts[1, at] = found[0], found[1]


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
