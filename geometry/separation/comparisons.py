"""Comparisons of all pairs of a selected key and a key left out, of one head on the CPU, and the resulting measures.

Computes 2 W, K_in and K_out for some N from the weights and value states of a head, with NumPy and the compiled
kernels, and from these Precision, Recall, F, specificity and AUC. What does not belong here: checks of the input
(``geometry.separation.chance``), random draws (``geometry.separation.nulls``), and other devices
(``geometry.separation.cuda``).
"""

from dataclasses import dataclass

import numpy as np

from geometry.arrays import F64, I64, Floats
from geometry.selection import host
from geometry.separation.kernels import compare_rows, enclose_energies, error_factors, sum_selected

TILE_BYTES, TILE_ROWS = 2**20, 32
"""Size of a tile of energies, in float32, that stays in the cache of a core; and the least number of its rows."""

MEASURES = ("precision", "recall", "f_r_max", "f_r_min", "specificity", "auc")
"""P(r_max, N), R(r_min, N), F(r_max, N), F(r_min, N), 1 − K_out/(n − N) and AUC(N), in order of axis ``measure``."""


@dataclass(frozen=True)
class Keys:
    """The keys of one head in order of falling weight, value states divided by 2^exponent."""

    y: F64
    """αv, (n, d)."""
    a: F64
    """‖y‖, (n,)."""
    exponent: int


def arrange_keys(weights: Floats, values: Floats) -> Keys:
    """Sort the keys of a head, weights (n,) and values (n, d), and multiply their value states by the weights."""
    head = host.arrange(weights, host.prepare_keys(values), sink=False)
    return Keys(head.alpha[:, None] * head.states, head.alpha * head.norm, head.exponent)


def compare(keys: Keys, sizes: I64, order: I64 | None = None) -> I64:
    """(2 W, K_in, K_out) for every N of ``sizes``, int64 (3, grid).

    Parameters
    ----------
    keys
        The keys of a head.
    sizes
        N, ascending, from 1 to n − 1, (grid,).
    order
        Ranks of the keys in the order in which they are selected, (n,); by default that of falling weight.

    Notes
    -----
    One float64 matrix product (grid × d × n), a sort of n keys for each N, and O(n) after the sort. A group of m keys
    of different y that are equally far, up to float64 rounding, takes O(m² d).
    """
    n, d = keys.y.shape
    order = np.arange(n) if order is None else order
    rank = np.empty_like(order)
    rank[order] = np.arange(n)
    s = np.empty((len(sizes), d))
    sum_selected(order, keys.y, sizes, s)
    counts = np.empty((3, len(sizes)), np.int64)
    rows = count_tile_rows(n)
    for first in range(0, len(sizes), rows):
        part = slice(first, first + rows)
        compare_tile(keys, rank, sizes[part], s[part], counts[:, part])
    return counts


def count_tile_rows(n: int) -> int:
    """Rows of a tile of n keys, at most n − 1."""
    return min(n - 1, max(TILE_ROWS, TILE_BYTES // (4 * n)))


def compare_tile(keys: Keys, rank: I64, sizes: I64, s: F64, counts: I64) -> None:
    """Compare the keys for some rows, given their s, (t, d); output (3, t)."""
    low, high = np.empty((2, len(sizes), len(rank)))
    norms = np.sqrt(np.einsum("td,td->t", s, s))
    enclose_energies(s @ keys.y.T, keys.a, norms, *error_factors(s.shape[1]), low, high)
    compare_rows(np.argsort(low, axis=-1), low, high, rank, sizes, s, keys.y, keys.a, counts)


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
