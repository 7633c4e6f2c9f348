"""Compiled kernels that compare all pairs of a selected key and one left out, for some N: AUC, K_in and K_out.

They do not validate their input. Letters: n keys, d components of a value state; y_l = α_l v_l;
a_l = ‖y_l‖; t rows of a tile, each about one N. A *group* is a run of keys whose order the error bound does not decide.

Exact comparisons. Distances from s are ordered by E_l = ‖y_l‖² − 2⟨s, y_l⟩, as in ``geometry.selection.keys``.
The inner products of all rows with the value states of all keys are one float64 matrix product, for several heads if
these share them. Times α_l, they give E_l with an error of at most

    δ_l = a_l (slope · ‖s‖ + bend · a_l),    slope = 2.02 (d + 8) u, bend = 1.01 (d + 16) u, u = 2⁻⁵³,

for any order of summation (Higham, *Accuracy and Stability of Numerical Algorithms*, §3.1). In the order of their lower
ends, intervals [E_l − δ_l, E_l + δ_l] that overlap form groups; keys of different groups are decided. In a group of
selected keys and others every pair is decided by the product of differences
``geometry.selection.keys.compare_distances``, which is exactly 0 for equal y. Keys of equal y are compared only
once, so thousands of true ties cost little. Most rows have no such group: whole numbers made of an energy and a key are
sorted, and one pass over them counts, and notices an overlap of a selected key and another. What an energy has lost to
the number of the key, at most 2^(b − 52) of it for b binary digits, is added to its error there.

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
def find_error(norm: float, error: float, bend: float) -> float:
    """δ of a key; norm: ‖y‖; error: slope · ‖s‖."""
    lifted = max(norm, SMALLEST_NORM) if norm > 0.0 else 0.0
    return lifted * (error + bend * lifted)


@compile_kernel
def enclose_row(products: F64, a: F64, error: float, bend: float, low: F64, high: F64) -> None:
    """The ends E − δ and E + δ of every key; products: ⟨s, y⟩; a: ‖y‖; error: slope · ‖s‖; arrays (n,)."""
    for key in range(a.size):
        energy, reach = a[key] * a[key] - 2.0 * products[key], find_error(a[key], error, bend)
        low[key], high[key] = energy - reach, energy + reach


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
def find_group(start: int, order: I64, low: F64, high: F64, rank: I64, split: int) -> tuple[int, int]:
    """The group of ``order`` that begins at ``start``: (its end, the number of its keys that are selected).

    order: keys by the lower end of their interval; low, high: the ends, by key; rank: place of a key in the order of
    selection, below ``split`` for the selected ones.
    """
    key = order[start]
    reach, selected, stop = high[key], int(rank[key] < split), start + 1
    while stop < order.size and low[order[stop]] <= reach:
        key = order[stop]
        reach, selected, stop = max(reach, high[key]), selected + int(rank[key] < split), stop + 1
    return stop, selected


@compile_kernel
def is_same(y: F64, a: F64, key: int, other: int) -> bool:
    """Whether two keys have equal y."""
    if a[key] == 0.0 and a[other] == 0.0:
        return True
    k = 0
    while k < y.shape[1] and y[key, k] == y[other, k]:
        k += 1
    return bool(k == y.shape[1])


@compile_kernel
def gather_equals(keys: I64, rank: I64, split: int, y: F64, a: F64, selected: I64, left_out: I64) -> int:
    """Move one key of each y to the front of ``keys`` and count the keys of that y; returns the number of distinct y.

    selected, left_out: outputs, as long as ``keys``.
    """
    count = 0
    for index in range(keys.size):
        key, place = keys[index], 0
        while place < count and not is_same(y, a, key, keys[place]):
            place += 1
        if place == count:
            keys[place], selected[place], left_out[place] = key, 0, 0
            count += 1
        if rank[key] < split:
            selected[place] += 1
        else:
            left_out[place] += 1
    return count


@compile_kernel
def find_extreme(keys: I64, counts: I64, sign: float, s: F64, y: F64, ones: F64) -> int:
    """The one of ``keys`` with the largest ``sign`` · D among those whose count in ``counts`` is above 0."""
    best = -1
    for i in range(counts.size):
        if counts[i] > 0 and (best < 0 or sign * compare_distances(s, ones, y, keys[i], best) > 0.0):
            best = keys[i]
    return best


@compile_kernel
def double_sum(keys: I64, selected: I64, left_out: I64, s: F64, y: F64, ones: F64) -> int:
    """2 W of keys of different y; ``selected`` and ``left_out`` are the numbers of keys of each y."""
    twice = 0
    for i in range(selected.size):
        for j in range(left_out.size):
            pairs = selected[i] * left_out[j]
            if pairs > 0:
                by = 0.0 if i == j else compare_distances(s, ones, y, keys[i], keys[j])
                twice += 2 * pairs if by > 0.0 else pairs if by == 0.0 else 0
    return twice


@compile_kernel
def compare_by_differences(keys: I64, rank: I64, split: int, s: F64, y: F64, a: F64, ones: F64) -> Comparison:
    """Compare every pair of some keys, selected ones and others, by ``compare_distances``; ``keys`` is reordered.

    s: (d,); y: (n, d); a: ‖y‖, (n,); ones: the factors of y that ``compare_distances`` takes, (n,).
    """
    selected, left_out = np.empty(keys.size, np.int64), np.empty(keys.size, np.int64)
    count = gather_equals(keys, rank, split, y, a, selected, left_out)
    selected, left_out = selected[:count], left_out[:count]
    farthest, nearest = find_extreme(keys, selected, 1.0, s, y, ones), find_extreme(keys, left_out, -1.0, s, y, ones)
    k_in, k_out = 0, 0
    for i in range(count):
        if selected[i] > 0 and compare_distances(s, ones, y, keys[i], nearest) <= 0.0:
            k_in += selected[i]
        if left_out[i] > 0 and compare_distances(s, ones, y, keys[i], farthest) <= 0.0:
            k_out += left_out[i]
    return double_sum(keys, selected, left_out, s, y, ones), k_in, k_out


@compile_kernel
def compare_row(
    order: I64, low: F64, high: F64, rank: I64, split: int, s: F64, y: F64, a: F64, ones: F64
) -> Comparison:
    """Compare all pairs of one row, group by group from the nearest; arguments as for ``compare_rows``."""
    twice, k_in, k_out, left_out, start = 0, 0, 0, 0, 0
    while start < order.size:
        stop, selected = find_group(start, order, low, high, rank, split)
        of_group = (0, selected, 0)
        if 0 < selected < stop - start:
            of_group = compare_by_differences(order[start:stop], rank, split, s, y, a, ones)
        twice += 2 * left_out * selected + of_group[0]
        k_in += of_group[1] if left_out == 0 else 0
        k_out = left_out + of_group[2] if selected > 0 else k_out
        left_out, start = left_out + stop - start - selected, stop
    return twice, k_in, k_out


@compile_kernel
def count_row(
    packed: I64, digits: int, a: F64, error: float, bend: float, rank: I64, split: int
) -> tuple[bool, Comparison]:
    """Whether intervals decide every pair of a selected key and one left out, and if so, their comparison.

    packed: ``pack_energies`` of the row, ascending, (n,), from which energies follow but for their last digits; the
    rest as for ``enclose_row`` and ``find_group``.
    """
    rest, lost, energies = -(1 << digits), 2.0 ** (digits - 51), np.empty(packed.size)
    bits = energies.view(np.int64)
    for place in range(packed.size):
        bits[place] = (packed[place] ^ ((packed[place] >> 63) & LARGEST)) & rest
    twice, k_in, k_out, left_out, apart = 0, 0, 0, 0, True
    reach_in = reach_out = -np.inf
    for place in range(packed.size):
        key = packed[place] & ((1 << digits) - 1)
        reach = find_error(a[key], error, bend) + lost * abs(energies[place])
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
def sort_by_low(packed: I64, digits: int, low: F64, order: I64) -> None:
    """The keys by the lower end of their interval, from their order by energy but for its last digits, (n,) each."""
    for place in range(packed.size):
        key, at = packed[place] & ((1 << digits) - 1), place
        while at > 0 and low[order[at - 1]] > low[key]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = key


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
    ones, order, low, high, products = np.ones(n), np.empty(n, np.int64), np.empty(n), np.empty(n), np.empty(n)
    y = np.empty((n, states.shape[1]))
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
                for key in range(n):
                    products[key] = inner(y[key], centre)
                enclose_row(products, a[at], error, bend, low, high)
                sort_by_low(of_row, digits, low, order)
                counted = compare_row(order, low, high, rank, split, centre, y, a[at], ones)
            counts[0, selection, row], counts[1, selection, row], counts[2, selection, row] = counted
