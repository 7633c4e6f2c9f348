"""Counts and profiles of heads that share value states, from what the Gram scan finds of them.

Letters as in ``geometry.selection.scan``, which scans on the CPU; what ``geometry.selection.torch_scan`` finds on a GPU
comes back and is completed here as well. What does not belong here: checks of the input
(``geometry.selection.profile``).
"""

from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from geometry.accelerate import compile_inline_kernel, compile_row_kernel, compile_row_sum_kernel
from geometry.arrays import F64, I32, Floats
from geometry.quantities import BY_KAPPA, BY_N, MODEL_UNITS, SelectionCounts, SelectionProfile, list_declared
from geometry.selection.keys import add_key, distance, inner
from geometry.selection.scan import (
    FARTHEST,
    HIDDEN,
    NEAREST,
    NEAREST_TO_REST,
    Head,
    Keys,
    Room,
    Rows,
    Space,
    arrange,
    conclude,
    count_together,
    make_room,
    make_space,
    prepare_keys,
    scan_heads,
)
from geometry.selection.upper_bounds import Steepness, combine, compute_steepness, gather_ingredients, refine

Scan = Callable[[Keys, Sequence[Head], Sequence[Steepness]], list[Rows]]
"""Scans heads that share value states, or some of these."""

Arrays = Mapping[str, NDArray[Any]]
"""The arrays of a profile by their names."""

LENGTHS = frozenset(name for name, made in list_declared(SelectionProfile).items() if made.unit == MODEL_UNITS)
"""Names of the arrays in the unit of the value states."""

CURVES = tuple(sorted([*list_declared(SelectionProfile, BY_N), *list_declared(SelectionProfile, BY_KAPPA)]))
"""The declared arrays of a profile with one number per N, or per κ and N.

Sorted, so that kernels in the cache of the compiler, which know the arrays by their places, fit any order of the
declarations.
"""

Profile: Any = namedtuple("Profile", CURVES)  # type: ignore[misc]  # noqa: PYI024
"""Outputs of ``fill_profile``: the arrays of ``CURVES``, (n − 1,) or (κ, n − 1)."""


def make_arrays(result: type[SelectionCounts], lead: tuple[int, ...], n: int, kappas: int) -> dict[str, NDArray[Any]]:
    """Memory for the arrays of heads (…) with n keys."""
    lengths, made = {"kappa": kappas, "n": n - 1}, {}
    for name, quantity in list_declared(result).items():
        shape = (*lead, *(lengths[axis] for axis in quantity.axes if axis in lengths))
        made[name] = np.empty(shape, np.int32 if quantity.dtype == "int32" else np.float64)
    return made


class Counts(NamedTuple):
    """Outputs of ``fill_counts`` for all N, (n − 1,) each."""

    k_in: I32
    k_out: I32
    r_min: F64
    r_max: F64


def prepare_scan(values: Floats, place: str) -> tuple[Keys, Scan]:
    """Value states, (n, d), with what scans heads of them: on the CPU, or on the CUDA device of this name."""
    if place == "cpu":
        return prepare_keys(values), _scan_on_cpu
    from geometry.selection.torch_scan import TorchScan

    keys = prepare_keys(values, multiply=False)
    return keys, TorchScan(keys, place)


def _scan_on_cpu(keys: Keys, heads: Sequence[Head], steepness: Sequence[Steepness]) -> list[Rows]:
    """``scan_heads`` with its own memory."""
    return scan_heads(keys, heads, steepness, make_room(len(keys.norm)))


def list_parts(keys: Keys, heads: int) -> list[slice]:
    """Parts of some heads that are scanned together."""
    together = count_together(len(keys.norm))
    return [slice(first, first + together) for first in range(0, heads, together)]


def count_group(weights: Floats, keys: Keys, room: Room, outs: Sequence[Arrays]) -> None:
    """Fill counts and radii of heads that share value states; weights (head, n), outs: the arrays of each head."""
    space, zeros = make_space(weights.shape[1]), np.zeros(keys.states.shape[1])
    for part in list_parts(keys, len(weights)):
        heads = arrange(weights[part], keys, sink=False)
        for head, rows, arrays in zip(heads, scan_heads(keys, heads, (), room), outs[part], strict=True):
            fill_counts(head, keys, rows, space, zeros.copy(), Counts(**arrays))
            restore_lengths(arrays, keys.exponent)


def profile_group(
    weights: Floats, keys: Keys, scan: Scan, outs: Sequence[Arrays], *, kappas: F64, unit: float, sink: bool
) -> Iterator[Head]:
    """Fill the arrays of ``CURVES`` of heads that share value states, lengths times 2^−exponent.

    weights: (head, n); keys, scan: from ``prepare_scan``; outs: the arrays of each head; unit: from ``choose_unit``.
    Yields every head, as arranged, once its arrays are filled.
    """
    n, d = keys.states.shape
    for part in list_parts(keys, len(weights)):
        heads, steepness = arrange(weights[part], keys, sink=sink), []
        profiles: list[Any] = [Profile(*(arrays[name] for name in CURVES)) for arrays in outs[part]]
        for head, out in zip(heads, profiles, strict=True):
            ordered = (head.alpha * keys.norm)[head.order]
            gather_ingredients(ordered, head.sink, out.s_in, out.a_min_in, out.a_max_in, out.a_max_out)
            breadth = (out.a_max_in + out.a_max_out + out.s_in) * unit
            steepness.append(compute_steepness(kappas, breadth, d, head.factor))
        results, space = scan(keys, heads, steepness), make_space(n)
        for head, rows, of, out in zip(heads, results, steepness, profiles, strict=True):
            fill_profile(head, keys, rows, of, space, np.zeros((3, d)), find_directions(head, keys), out)
            yield head


@compile_row_kernel
def fill_counts(head: Head, keys: Keys, rows: Rows, space: Space, s: F64, out: Counts) -> None:
    """K_in, K_out and the radii (eq. 19-20) for every N of a head; s: zeros, (d,)."""
    zeros, selected_zeros = count_zeros(head.a), 0
    for row in range(head.a.size - 1):
        key = head.order[row]
        add_key(head.alpha[key], keys.states[key], s)
        selected_zeros += int(head.a[key] == 0.0)
        fill_row(row, zeros, selected_zeros, s, head, keys, rows, space, out.k_in, out.k_out, out.r_min, out.r_max)


@compile_row_kernel
def count_zeros(a: F64) -> int:
    """How many numbers are 0."""
    count = 0
    for number in a:
        count += int(number == 0.0)
    return count


@compile_inline_kernel
def fill_row(
    row: int, zeros: int, selected_zeros: int, s: F64, head: Head, keys: Keys, rows: Rows, space: Space,
    k_in: I32, k_out: I32, r_min: F64, r_max: F64,
) -> None:  # fmt: skip
    """Fill the counts and the radii of a row, N = row + 1; parameters as for ``conclude``."""
    k_in[row], nearest, _ = conclude(row, NEAREST, zeros, selected_zeros, s, head, keys, rows, space)
    k_out[row], farthest, _ = conclude(row, FARTHEST, zeros, selected_zeros, s, head, keys, rows, space)
    r_min[row] = distance(s, head.alpha, keys.states, nearest)
    r_max[row] = distance(s, head.alpha, keys.states, farthest)


@compile_row_kernel
def fill_profile(
    head: Head, keys: Keys, rows: Rows, steepness: Steepness, space: Space, sums: F64, directions: F64, out: Any
) -> None:
    """The arrays of ``Profile`` for every N but those of ``gather_ingredients``.

    sums: s_N, and without the sink's and the last token's parts, 0 at first, (3, d); directions: from
    ``find_directions``.
    """
    zeros, selected_zeros, states, n = count_zeros(head.a), 0, keys.states, head.a.size
    s, rest, but_last = sums[0], sums[1], sums[2]
    for row in range(n - 1):
        key = head.order[row]
        weight = head.alpha[key]
        add_key(weight, states[key], s)
        add_key(0.0 if row == head.sink else weight, states[key], rest)
        add_key(0.0 if key == n - 1 else weight, states[key], but_last)
        selected_zeros += int(head.a[key] == 0.0)
        fill_row(row, zeros, selected_zeros, s, head, keys, rows, space, out.k_in, out.k_out, out.r_min, out.r_max)
        fill_directions(row, s, rest, but_last, directions, head, keys.norm, out)
        out.rho_out[row] = np.nan if row == 0 == head.sink else min(rows.closest[row], np.float32(1.0))
        if out.precision_upper.shape[0]:
            early, _, certain = conclude(row, NEAREST_TO_REST, zeros, selected_zeros, rest, head, keys, rows, space)
            fill_upper_bounds(row, row + 1 - early, certain, rest, head, states, rows, steepness, space, out)


@compile_inline_kernel
def fill_upper_bounds(
    row: int, late: int, final: bool, rest: F64, head: Head, states: Floats, rows: Rows, steepness: Steepness,
    space: Space, out: Any,
) -> None:  # fmt: skip
    """The upper bounds of a row, N = row + 1, for every κ; late: the number of late keys.

    final: whether float32 finds as many.
    """
    exists = steepness.breadth[row] > 0.0
    for k in range(out.precision_upper.shape[0]):
        final = final and rows.between[k, row] == 0
        bounds = combine(row + 1, late, rows.total[k, row], np.float64(rows.best[k, row]))
        out.precision_upper[k, row], out.recall_upper[k, row] = bounds if exists else (np.nan, np.nan)
    if exists and not final:
        for key in range(head.a.size):
            along = head.factor * inner(rest, states[key])
            space.g[key] = head.a[key] * head.a[key] - 2.0 * head.factor * head.alpha[key] * along
            space.left[key] = np.float32(HIDDEN if head.rank[key] > row else 0.0)
        refine(row, late, space.g, space.left, steepness, out.precision_upper, out.recall_upper)


def find_directions(head: Head, keys: Keys) -> F64:
    """s_n, and the directions of the sink and of the last token, (3, d); 0 where there is no direction."""
    n, d = keys.states.shape
    results = np.zeros((3, d))
    sum_keys(head, keys, results[0])
    for index, key in enumerate((0, n - 1), start=1):
        if keys.norm[key] > 0 and (key or head.sink < n):
            results[index] = keys.states[key] / keys.norm[key]
    return results


@compile_row_kernel
def sum_keys(head: Head, keys: Keys, s: F64) -> None:
    """Add all weighted value states to s, (d,), in the order of their weights."""
    for key in head.order:
        add_key(head.alpha[key], keys.states[key], s)


@compile_row_sum_kernel
def fill_directions(
    row: int, s: F64, rest: F64, but_last: F64, directions: F64, head: Head, lengths: F64, out: Any
) -> None:
    """‖s_N‖ with and without its parts, ‖s_n − 2 s_N‖ and cosines with the sink and the last token (§4.2), and a_0.

    s, rest, but_last: s_N, and without the sink's and the last token's parts, (d,); directions: from
    ``find_directions``; lengths: ‖v‖, (n,). NaN where a quantity does not exist.
    """
    square, of_rest, of_last, apart, along_sink, along_last = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for k in range(s.size):
        square += s[k] * s[k]
        of_rest += rest[k] * rest[k]
        of_last += but_last[k] * but_last[k]
        apart += (directions[0, k] - 2.0 * s[k]) ** 2
        along_sink += s[k] * directions[1, k]
        along_last += s[k] * directions[2, k]
    norm, has_sink = np.sqrt(square), head.sink < lengths.size
    out.norm_s[row], out.norm_s_without_last[row], out.distance_rest[row] = norm, np.sqrt(of_last), np.sqrt(apart)
    out.norm_s_without_sink[row] = np.sqrt(of_rest) if has_sink else np.nan
    out.cos_last[row] = along_last / norm if norm * lengths[lengths.size - 1] > 0.0 else np.nan
    out.cos_sink[row] = along_sink / norm if has_sink and norm * lengths[0] > 0.0 else np.nan
    out.a_0[row] = head.alpha[0] * lengths[0] if row >= head.sink else np.nan


def choose_unit(scale: str, value_scale: float, exponent: int) -> float:
    """The divisor of value states, times 2^exponent, in the upper bounds."""
    return value_scale if scale == "unit" else 2.0 ** min(-exponent, 1000)


def restore_lengths(out: Arrays, exponent: int) -> None:
    """Multiply lengths by the power of two by which the value states were divided."""
    if exponent:
        for name in LENGTHS.intersection(out):
            np.ldexp(out[name], exponent, out=out[name])
