"""Comparisons of all pairs of a selected key and a key left out, of heads, and the resulting measures.

Computes 2 W, K_in and K_out for some N from the weights and value states of a head, with NumPy and the compiled
kernels, and from these Precision, Recall, F, specificity and AUC. What does not belong here: checks of the input
(``geometry.separation.chance``) and random draws (``geometry.separation.chance``).
"""

from typing import NamedTuple

import numpy as np

from geometry.arrays import F64, I64, Floats
from geometry.selection.keys import measure_norms, scale_states, sort_keys
from geometry.separation.kernels import LARGEST, compare_rows, error_factors, pack_energies, sum_selected

TILE_BYTES, TILE_ROWS = 2**20, 32
"""Size of a tile of energies that stays in the cache of a core; and the least number of its rows, if there are so many.
"""

MEASURES = ("precision", "recall", "f_r_max", "f_r_min", "specificity", "auc")
"""P(r_max, N), R(r_min, N), F(r_max, N), F(r_min, N), 1 − K_out/(n − N) and AUC(N), in order of axis ``measure``."""


class Keys(NamedTuple):
    """Heads that share their value states, in some *arrangements*: keys in order of falling weight, each with a value.

    There is one arrangement of a head, or one for each of its shuffled value states, or for other weights.
    """

    weights: F64  # α, falling, (arrangement, n)
    origins: I64  # The position whose value state a key has, (arrangement, n)
    states: F64  # v by position, divided by 2^exponent, (n, d)
    norms: F64  # ‖v‖ by position, (n,)
    exponent: int
    place: str = "cpu"  # Where energies are computed and sorted: `cpu`, or the name of a CUDA device

    @property
    def a(self) -> F64:
        """‖y‖ = α ‖v‖, (arrangement, n)."""
        return self.weights * self.norms[self.origins]

    def weigh(self, arrangement: int) -> F64:
        """The y of every key, αv, (n, d)."""
        y: F64 = self.weights[arrangement, :, None] * self.states[self.origins[arrangement]]
        return y

    def shuffle(self, places: I64) -> "Keys":
        """With other value states: the position whose value state every position gets, (draw · arrangement, n)."""
        draws = len(places) // len(self.weights), 1
        origins = np.take_along_axis(places, np.tile(self.origins, draws), axis=-1)
        return self._replace(weights=np.tile(self.weights, draws), origins=origins)


class Selections(NamedTuple):
    """The first N keys of some orders of some arrangements."""

    of: I64  # The arrangement of each selection, (selection,)
    ranks: I64  # Place of every key in the order of selection, (selection, n)
    s: F64  # The sum of y of the selected keys, (selection, grid, d)


def arrange_keys(weights: Floats, values: Floats, place: str = "cpu") -> Keys:
    """Sort the keys of heads by weight, and scale their value states so that no square of a distance overflows.

    Weights (head, n), in one arrangement for each row, values (n, d); ``place`` as in ``Keys``.
    """
    scaled, exponent = scale_states(values)
    orders, states, norms = sort_keys(weights), scaled.astype(np.float64, copy=False), np.empty(len(values))
    measure_norms(states, norms)
    falling = np.take_along_axis(weights, orders, axis=-1).astype(np.float64, copy=False)
    return Keys(falling, orders, states, norms, exponent, place)


def select(keys: Keys, sizes: I64, orders: I64 | None = None, of: I64 | None = None) -> Selections:
    """Sum the selected keys for every N of ``sizes``, ascending, from 1 to n, (grid,).

    ``orders``, ``of``: for each selection the ranks of the keys in the order in which they are selected, (selection,
    n), and its arrangement, (selection,); by default one selection by falling weight for each arrangement.
    """
    arrangements, n = keys.weights.shape
    of = np.arange(arrangements) if of is None else of
    orders = np.tile(np.arange(n), (arrangements, 1)) if orders is None else orders
    ranks, s = np.empty_like(orders), np.empty((len(of), len(sizes), keys.states.shape[1]))
    np.put_along_axis(ranks, orders, np.arange(n)[None], axis=-1)
    sum_selected(orders, of, keys.weights, keys.origins, keys.states, sizes, s)
    return Selections(of, ranks, s)


def compare(keys: Keys, sizes: I64, selections: Selections | None = None) -> I64:
    """(2 W, K_in, K_out) of some selections, by default those by falling weight, for every N of ``sizes``, (3,
    selection, grid).

    One float64 matrix product (selection · grid × d × n), a sort of n keys for each selection and N, and O(n) after the
    sort; O(n d) if the error bound leaves a pair open, O(m² d) for m keys that are equally far up to float64 rounding.
    """
    selections = selections or select(keys, sizes)
    counts = np.empty((3, len(selections.of), len(sizes)), np.int64)
    rows = max(1, count_tile_rows(keys.states.shape[0]) // len(selections.of))
    for first in range(0, len(sizes), rows):
        part = slice(first, first + rows)
        of_part = selections._replace(s=np.ascontiguousarray(selections.s[:, part]))
        counts[..., part] = compare_tile(keys, of_part, sizes[part])
    return counts


def count_tile_rows(n: int) -> int:
    """Rows of a tile of n keys."""
    return max(TILE_ROWS, TILE_BYTES // (8 * n))


def count_selections(n: int, grid: int) -> int:
    """How many selections of ``grid`` values of N are compared together: as many as make one tile, at least 1."""
    return max(1, count_tile_rows(n) // grid)


def compare_tile(keys: Keys, selections: Selections, sizes: I64) -> I64:
    """Compare the keys for some N of some selections, (3, selection, t)."""
    (of, ranks, s), a, (n, d) = selections, keys.a, keys.states.shape
    digits = (n - 1).bit_length()
    packed = (sort_energies if keys.place == "cpu" else sort_energies_on_device)(keys, of, s, digits)
    given, counts = (s, keys.weights, keys.origins, keys.states, a), np.empty((3, *s.shape[:2]), np.int64)
    compare_rows(packed, of, ranks, sizes, *given, error_factors(d), digits, counts)
    return counts


def sort_energies(keys: Keys, of: I64, s: F64, digits: int) -> I64:
    """The energies of all keys about every s, (selection, t, d), packed and sorted, (selection, t, n)."""
    n, d = keys.states.shape
    products = s.reshape(-1, d) @ keys.states.T
    packed = products.view(np.int64).reshape(*s.shape[:2], n)
    pack_energies(packed.view(np.float64), of, keys.weights, keys.origins, keys.a, digits)
    packed.sort(axis=-1)
    return packed


def sort_energies_on_device(keys: Keys, of: I64, s: F64, digits: int) -> I64:
    """The same on the device of ``keys``."""
    import torch

    arrays = (s, keys.states, keys.weights[of], keys.a[of], keys.origins[of])
    centres, states, weights, a, origins = (torch.as_tensor(array, device=keys.place) for array in arrays)
    products = (centres @ states.T).gather(-1, origins[:, None].expand(-1, s.shape[1], -1))
    energies = (a * a)[:, None] - 2.0 * weights[:, None] * products
    bits = energies.masked_fill_(a[:, None] == 0, 0.0).view(torch.int64)
    bits.bitwise_xor_((bits >> 63) & LARGEST).bitwise_and_(-(1 << digits))
    packed: I64 = bits.bitwise_or_(torch.arange(a.shape[-1], device=keys.place)).sort(-1).values.cpu().numpy()
    return packed


def compute_measures(counts: I64, sizes: I64, n: int) -> F64:
    """``MEASURES`` for every N of ``sizes``, (…, measure, grid), from counts (3, …, grid)."""
    twice, k_in, k_out = counts
    pairs = 2 * sizes * (n - sizes)
    measures = (
        sizes / (sizes + k_out),
        k_in / sizes,
        2 * sizes / (2 * sizes + k_out),
        2 * k_in / (sizes + k_in),
        (n - sizes - k_out) / (n - sizes),
        (pairs - twice) / pairs,
    )
    return np.stack(measures, axis=-2)
