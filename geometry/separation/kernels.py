"""Compiled kernels that compare all pairs of a selected key and one left out, for some N: AUC, K_in and K_out.

They do not validate their input. Letters: n keys, d components of a value state; y_l = α_l v_l;
a_l = ‖y_l‖; t rows of a tile, each about one N.

Exact comparisons. Distances from s are ordered by E_l = ‖y_l‖² − 2⟨s, y_l⟩, as in ``geometry.selection.keys``.
The inner products of all rows with the value states of all keys are one float64 matrix product, for several heads if
these share them. Times α_l, they give E_l with an error of at most

    δ_l = a_l (slope · ‖s‖ + bend · a_l),    slope = 2.02 (d + 8) u, bend = 1.01 (d + 16) u, u = 2⁻⁵³,

for any order of summation (Higham, *Accuracy and Stability of Numerical Algorithms*, §3.1). Whole numbers made of an
energy and a key are sorted, and one pass over them counts; what an energy has lost to the number of the key, at most
2^(b − 52) of it for b binary digits, is added to its error there. That decides most rows. In a row in which the
interval [E_l − δ_l, E_l + δ_l] of a selected key overlaps that of another, the keys are sorted again, any two compared
by the product of differences ``geometry.selection.keys.compare_distances``, which is exactly 0 for equal y: since they
are nearly sorted, thousands of true ties cost little.

For the few rows of a grid, a float32 product with a second pass, as used for all N (``geometry.selection.keys``),
would not be faster.
"""

import numpy as np

from geometry.accelerate import compile_kernel
from geometry.arrays import F64, I64
from geometry.selection.keys import compare_distances, error_slope, inner

UNIT_ROUNDOFF = 2.0**-53  # Largest relative error of one float64 rounding

SMALLEST_NORM = 2.0**-465
"""Smaller norms are replaced by this in the error bound, because their squares underflow. y = 0 has E = δ = 0."""

LARGEST = 2**63 - 1  # The largest whole number of 64 bits: all of them but that of the sign

Comparison = tuple[int, int, int]
"""The comparisons among some keys alone: (2 W, K_in, K_out).

W is the number of pairs of a selected key and one left out that is nearer, plus half of those equally far. K_in counts
selected keys no farther than any key left out (all of them where none is left out), K_out keys left out that are no
farther than the farthest selected key.
"""


def error_factors(head_dim: int) -> tuple[float, float]:
    """(slope, bend) of the error bound of float64 energies, for value states of ``head_dim`` components."""
    return error_slope(head_dim, UNIT_ROUNDOFF), 1.01 * (head_dim + 16) * UNIT_ROUNDOFF


@compile_kernel
def sum_selected(orders: I64, of: I64, weights: F64, origins: I64, states: F64, sizes: I64, s: F64) -> None:
    """The sum of y over the first N keys of every order, for every N of ``sizes``, ascending.

    orders: (selection, n); of: the arrangement of each, (selection,); weights, origins: α by key, and the position
    whose value state it has, (arrangement, n); states: v by position, (n, d); output (selection, grid, d).
    """
    running = np.empty(states.shape[1])
    for selection in range(orders.shape[0]):
        running[:], taken, at = 0.0, 0, of[selection]
        for row in range(sizes.size):
            while taken < sizes[row]:
                key = orders[selection, taken]
                alpha, origin = weights[at, key], origins[at, key]
                for k in range(running.size):
                    running[k] += alpha * states[origin, k]
                taken += 1
            s[selection, row] = running


@compile_kernel
def pack_energies(products: F64, of: I64, weights: F64, origins: I64, a: F64, digits: int) -> None:
    """Replace products by whole numbers in the order of the energies, whose last binary digits are the key.

    The bits of a float64 that is not negative are ordered as the number is; of a negative one they are reversed.
    products: ⟨s, v⟩ by position, (selection, t, n); of, weights, origins: as for ``sum_selected``; a: ‖y‖,
    (arrangement, n); digits: of the largest key.
    """
    packed, rest, energies = products.view(np.int64), -(1 << digits), np.empty(a.shape[1])
    bits = energies.view(np.int64)
    for selection in range(products.shape[0]):
        alpha, origin, norms = weights[of[selection]], origins[of[selection]], a[of[selection]]
        for row in range(products.shape[1]):
            for key in range(norms.size):
                product = alpha[key] * products[selection, row, origin[key]]
                energies[key] = norms[key] * norms[key] - 2.0 * product if norms[key] > 0.0 else 0.0
            for key in range(norms.size):
                packed[selection, row, key] = ((bits[key] ^ ((bits[key] >> 63) & LARGEST)) & rest) | key


@compile_kernel
def sort_by_distance(order: I64, s: F64, y: F64, ones: F64) -> None:
    """Sort keys that are nearly sorted by distance from s, (n,), by differences of any two.

    s: (d,); y: (n, d); ones: the factors of y that ``compare_distances`` takes, (n,).
    """
    for place in range(order.size):
        key, at = order[place], place
        while at > 0 and compare_distances(s, ones, y, order[at - 1], key) > 0.0:
            order[at] = order[at - 1]
            at -= 1
        order[at] = key


@compile_kernel
def compare_sorted(order: I64, rank: I64, split: int, s: F64, y: F64, ones: F64) -> Comparison:
    """Compare all pairs of a row whose keys are sorted by distance; arguments as for ``sort_by_distance``.

    rank: place of a key in the order of selection, below ``split`` for the selected ones, (n,).
    """
    twice, k_in, k_out, left_out, start = 0, 0, 0, 0, 0
    while start < order.size:
        stop, selected = start, 0
        while stop < order.size and compare_distances(s, ones, y, order[start], order[stop]) == 0.0:
            stop, selected = stop + 1, selected + int(rank[order[stop]] < split)
        others = stop - start - selected
        twice += selected * (2 * left_out + others)
        k_in += selected if left_out == 0 else 0
        left_out, start = left_out + others, stop
        k_out = left_out if selected > 0 else k_out
    return twice, k_in, k_out


@compile_kernel
def count_row(
    packed: I64, digits: int, a: F64, error: float, bend: float, rank: I64, split: int
) -> tuple[bool, Comparison]:
    """Whether intervals decide every pair of a selected key and one left out, and if so, their comparison.

    packed: ``pack_energies`` of the row, ascending, (n,), from which energies follow but for their last digits; a: ‖y‖,
    (n,); error: slope · ‖s‖; rank, split: as for ``compare_sorted``.
    """
    rest, lost, energies = -(1 << digits), 2.0 ** (digits - 51), np.empty(packed.size)
    bits = energies.view(np.int64)
    for place in range(packed.size):
        bits[place] = (packed[place] ^ ((packed[place] >> 63) & LARGEST)) & rest
    twice, k_in, k_out, left_out, apart = 0, 0, 0, 0, True
    reach_in = reach_out = -np.inf
    for place in range(packed.size):
        key = packed[place] & ((1 << digits) - 1)
        norm = max(a[key], SMALLEST_NORM) if a[key] > 0.0 else 0.0
        reach = norm * (error + bend * norm) + lost * abs(energies[place])
        low, high = energies[place] - reach, energies[place] + reach
        chosen = rank[key] < split
        apart &= low > (reach_out if chosen else reach_in)
        reach_in = high if chosen and high > reach_in else reach_in
        reach_out = high if not chosen and high > reach_out else reach_out
        twice += 2 * left_out if chosen else 0
        k_in += 1 if chosen and left_out == 0 else 0
        k_out = left_out if chosen else k_out
        left_out += 0 if chosen else 1
    return apart, (twice, k_in, k_out)


@compile_kernel
def weigh(alpha: F64, origin: I64, states: F64, y: F64) -> None:
    """αv of every key of an arrangement, (n, d), from α and the position of v by key, (n,), and v by position."""
    for key in range(alpha.size):
        for k in range(states.shape[1]):
            y[key, k] = alpha[key] * states[origin[key], k]


@compile_kernel
def compare_rows(
    packed: I64,
    of: I64,
    ranks: I64,
    splits: I64,
    s: F64,
    weights: F64,
    origins: I64,
    states: F64,
    a: F64,
    factors: tuple[float, float],
    digits: int,
    counts: I64,
) -> None:
    """Compare all pairs of a selected key and one left out, for every row of a tile, into ``counts``, (3, selection,
    t).

    packed: ``pack_energies``, each row sorted, (selection, t, n), with its ``digits``; of, weights, origins, states: as
    for ``sum_selected``; ranks: place of every key in the order of selection, (selection, n); splits: N of each row,
    (t,); s: the sum of the selected y, (selection, t, d); a: ‖y‖, (arrangement, n); factors: ``error_factors``.
    """
    n, weighed, (slope, bend) = a.shape[1], -1, factors
    y, ones, order = np.empty((n, states.shape[1])), np.ones(n), np.empty(n, np.int64)
    for selection in range(of.size):
        rank, at = ranks[selection], of[selection]
        for row in range(splits.size):
            centre, split, of_row = s[selection, row], splits[row], packed[selection, row]
            error = slope * np.sqrt(inner(centre, centre))
            apart, counted = count_row(of_row, digits, a[at], error, bend, rank, split)
            if not apart:
                if weighed != at:
                    weigh(weights[at], origins[at], states, y)
                    weighed = at
                for place in range(n):
                    order[place] = of_row[place] & ((1 << digits) - 1)
                sort_by_distance(order, centre, y, ones)
                counted = compare_sorted(order, rank, split, centre, y, ones)
            counts[0, selection, row], counts[1, selection, row], counts[2, selection, row] = counted
