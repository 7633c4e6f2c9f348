"""Comparisons of all pairs of a selected key and a key left out, of one head on the CPU, and the resulting measures.

Computes 2 W, K_in and K_out for some N from the weights and value states of a head, with NumPy and the compiled
kernels, and from these Precision, Recall, F, specificity and AUC. What does not belong here: checks of the input
(``geometry.separation.chance``), random draws (``geometry.separation.nulls``), and other devices
(``geometry.separation.cuda``).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from geometry.arrays import F64, I64, Floats
from geometry.selection import host
from geometry.separation.kernels import (
    compare_rows,
    error_factors,
    measure_norms,
    pack_energies,
    sum_selected,
    weigh,
)

TILE_BYTES, TILE_ROWS = 2**20, 32
"""Size of a tile of energies, in float32, that stays in the cache of a core; and the least number of its rows."""

MEASURES = ("precision", "recall", "f_r_max", "f_r_min", "specificity", "auc")
"""P(r_max, N), R(r_min, N), F(r_max, N), F(r_min, N), 1 − K_out/(n − N) and AUC(N), in order of axis ``measure``."""


@dataclass(frozen=True)
class Keys:
    """The keys of one head in order of falling weight, value states divided by 2^exponent.

    There may be several arrangements of them: shuffled value states, or other weights.
    """

    y: F64
    """αv, (arrangement, n, d)."""
    a: F64
    """‖y‖, (arrangement, n)."""
    exponent: int

    @property
    def orders(self) -> I64:
        """The ranks of the keys in order of falling weight, for each arrangement, (arrangement, n)."""
        return np.broadcast_to(np.arange(self.a.shape[1]), self.a.shape).copy()


class RankedHead(NamedTuple):
    """A head whose keys are sorted by falling weight, by one row of weights or by each of several."""

    weights: Floats
    """Falling, (row, n)."""
    orders: I64
    """The position of every key, (row, n)."""
    states: Floats
    """Value states by position, divided by 2^exponent, (n, d)."""
    norms: F64
    """‖v‖ by position, (n,)."""
    exponent: int

    def select(self, rows: slice) -> "RankedHead":
        """The head with some of its rows."""
        return self._replace(weights=self.weights[rows], orders=self.orders[rows])


def rank_keys(weights: Floats, values: Floats, orders: I64 | None = None) -> RankedHead:
    """Sort the keys of a head by weight, and scale its value states so that no square of a distance overflows.

    Parameters
    ----------
    weights, values
        (n,) or, for several rows of weights, (row, n); and (n, d).
    orders
        The keys of each row by falling weight, int64 (row, n); by default they are computed.
    """
    states, exponent = host.scale_states(values)
    rows, norms = np.atleast_2d(weights), np.empty(len(values))
    orders = np.stack([host.sort_keys(row) for row in rows]) if orders is None else orders
    measure_norms(states, norms)
    return RankedHead(np.take_along_axis(rows, orders, axis=-1), orders, states, norms, exponent)


def weigh_keys(head: RankedHead, places: I64 | None = None) -> Keys:
    """Multiply the value states of a head by its weights, in one arrangement for each row of these.

    With ``places``, for each arrangement the position whose value state every position gets, (arrangement, n), they are
    multiplied by the same weights, of one row.
    """
    origins = head.orders if places is None else np.ascontiguousarray(places[:, head.orders[0]])
    keys = Keys(np.empty((*origins.shape, head.states.shape[1])), np.empty(origins.shape), head.exponent)
    weigh(head.weights, head.states, head.norms, origins, keys.y, keys.a)
    return keys


def arrange_keys(weights: Floats, values: Floats) -> Keys:
    """The keys of a head, weights (n,) and values (n, d), in one arrangement."""
    return weigh_keys(rank_keys(weights, values))


def compare(keys: Keys, sizes: I64, orders: I64 | None = None) -> I64:
    """(2 W, K_in, K_out) of some selections for every N of ``sizes``, int64 (3, selection, grid).

    Parameters
    ----------
    keys
        The keys of a head: in one arrangement for all selections, or in one for each of them.
    sizes
        N, ascending, from 1 to n − 1, (grid,).
    orders
        For each selection the ranks of the keys in the order in which they are selected, (selection, n); by default
        that of falling weight for each arrangement.

    Notes
    -----
    One float64 matrix product (selection · grid × d × n), a sort of n keys for each selection and N, and O(n) after the
    sort. A group of m keys of different y that are equally far, up to float64 rounding, takes O(m² d).
    """
    _, n, d = keys.y.shape
    ranks = keys.orders if orders is None else np.argsort(orders, axis=-1)
    orders = ranks if orders is None else orders
    s, counts = np.empty((len(orders), len(sizes), d)), np.empty((3, len(orders), len(sizes)), np.int64)
    sum_selected(orders, keys.y, sizes, s)
    rows = max(1, count_tile_rows(n) // len(orders))
    for first in range(0, len(sizes), rows):
        part = slice(first, first + rows)
        compare_tile(keys, ranks, sizes[part], np.ascontiguousarray(s[:, part]), counts[..., part])
    return counts


def count_tile_rows(n: int) -> int:
    """Rows of a tile of n keys, at most n − 1."""
    return min(n - 1, max(TILE_ROWS, TILE_BYTES // (4 * n)))


def count_selections(n: int, head_dim: int, grid: int) -> int:
    """How many selections of ``grid`` values of N are compared together: as many as make one tile, at least 1."""
    return max(1, min(count_tile_rows(n) // grid, TILE_BYTES // (8 * n * head_dim)))


def compare_tile(keys: Keys, ranks: I64, sizes: I64, s: F64, counts: I64) -> None:
    """Compare the keys for some N of some selections.

    ranks: place of every key in the order of selection, (selection, n); s: (selection, t, d); output (3, selection, t).
    """
    n, (selections, rows, d) = ranks.shape[1], s.shape
    factors, digits = error_factors(d), (n - 1).bit_length()
    products = (s.reshape(len(keys.y), -1, d) @ keys.y.swapaxes(1, 2)).reshape(selections, rows, n)
    packed = np.empty(products.shape, np.int64)
    pack_energies(products, keys.a, digits, packed)
    packed.sort(axis=-1)
    compare_rows(packed, products, ranks, sizes, s, keys.y, keys.a, *factors, digits, counts)


def compute_auc(counts: I64, sizes: I64, n: int) -> F64:
    """AUC(N) = 1 − W/(N (n − N)) for every N of ``sizes``, (…, grid), from counts (3, …, grid)."""
    pairs = 2 * sizes * (n - sizes)
    auc: F64 = (pairs - counts[0]) / pairs
    return auc


def compute_measures(counts: I64, sizes: I64, n: int) -> F64:
    """``MEASURES`` for every N of ``sizes``, (…, measure, grid), from counts (3, …, grid)."""
    _, k_in, k_out = counts
    measures = (
        sizes / (sizes + k_out),
        k_in / sizes,
        2 * sizes / (2 * sizes + k_out),
        2 * k_in / (sizes + k_in),
        (n - sizes - k_out) / (n - sizes),
        compute_auc(counts, sizes, n),
    )
    return np.stack(measures, axis=-2)
