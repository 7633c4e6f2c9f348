"""Triton kernels of the profile of many heads. They do not validate their input.

Holds the loops over all pairs of keys and over the components of value states; ``geometry.selection.cuda`` documents
the results and prepares the arguments. What does not belong here: PyTorch, choices of size, and the recomputation of
rows that ``profile_rows`` flags.

Letters: n keys in order of falling weight, d components of a value state. Row N−1 belongs to N. Arrays have a first
axis for heads, which is not mentioned below, and are float64 unless said otherwise. The rank of the sink is n if there
is none.

Triton converts a constant that multiplies a float64 operand to float64, but a constant that is compared with one, or
passed to a function, to float32 if it is within the range of float32.
"""

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

from geometry.quantities import BY_N, MODEL_UNITS, SelectionProfile, list_declared
from geometry.selection import upper_bounds as bounds

SMALLEST_NORM = tl.constexpr(2.0**-465)
"""Smaller norms are replaced by this in error bounds, because their squares underflow."""

SMALLEST_COMPONENT = tl.constexpr(2.0**-1000)
"""Value states whose largest component is not above this are not normalised: the reciprocal might overflow."""

XI_STAR = tl.constexpr(bounds.XI_STAR)
"""Where p(ξ) is largest for ξ ≥ 0."""

XI_END = tl.constexpr(40.0)
"""For ξ from here on, p(ξ) is 0 in float64."""

DENSITY_0 = tl.constexpr(bounds.DENSITY_0)
"""The standard normal density at 0."""

STEEPEST = tl.constexpr(2.0**1000)
"""Larger factors of g_j − g_i are replaced by this, because 0 times infinity is NaN."""

_BY_N = {name: made for name, made in list_declared(SelectionProfile, BY_N).items() if made.dtype != "int32"}

FIELDS = tuple(sorted(_BY_N, key=lambda name: _BY_N[name].unit != MODEL_UNITS))
"""Names of the arrays of ``fields``, an argument of ``profile_rows``, in order: lengths come first."""

LENGTHS = sum(quantity.unit == MODEL_UNITS for quantity in _BY_N.values())
"""Number of the first arrays of ``FIELDS`` that have the unit of the value states."""

R_MIN = tl.constexpr(FIELDS.index("r_min"))
R_MAX = tl.constexpr(FIELDS.index("r_max"))
NORM_S = tl.constexpr(FIELDS.index("norm_s"))
NORM_S_WITHOUT_SINK = tl.constexpr(FIELDS.index("norm_s_without_sink"))
NORM_S_WITHOUT_LAST = tl.constexpr(FIELDS.index("norm_s_without_last"))
DISTANCE_REST = tl.constexpr(FIELDS.index("distance_rest"))
A_0 = tl.constexpr(FIELDS.index("a_0"))
S_IN = tl.constexpr(FIELDS.index("s_in"))
A_MIN_IN = tl.constexpr(FIELDS.index("a_min_in"))
A_MAX_IN = tl.constexpr(FIELDS.index("a_max_in"))
A_MAX_OUT = tl.constexpr(FIELDS.index("a_max_out"))
COS_SINK = tl.constexpr(FIELDS.index("cos_sink"))
COS_LAST = tl.constexpr(FIELDS.index("cos_last"))

COUNTS_IN_DOUBT, LATE_IN_DOUBT, NEEDS_SEARCH = tl.constexpr(1), tl.constexpr(2), tl.constexpr(4)
"""Flags of a row, combined by addition: see ``profile_rows``."""


def compile_kernel(function: Callable[..., Any]) -> Any:
    """Compile for the device, or interpret if TRITON_INTERPRET=1."""
    return triton.jit(function)


@compile_kernel
def order_keys(
    values: tl.tensor,
    head_stride: tl.tensor,
    key_stride: tl.tensor,
    component_stride: tl.tensor,
    order: tl.tensor,
    alpha: tl.tensor,
    unit: tl.tensor,
    sink: tl.tensor,
    y: tl.tensor,
    directions: tl.tensor,
    lengths: tl.tensor,
    norms: tl.tensor,
    pulls: tl.tensor,
    n: tl.tensor,
    d: tl.tensor,
    rows: tl.constexpr,
    components: tl.constexpr,
) -> None:
    """Compute the quantities of single keys, in order of falling weight; one program per ``rows`` keys of a head.

    values: any float type, any strides, in order of position; order: positions by rank, int64; alpha: weights by rank;
    unit: a power of two for each head, by which values are divided; sink: its rank, int64. Outputs: y = αv (n, d),
    directions v/‖v‖ or 0 in float32 (n, d), lengths ‖v‖, norms ‖y‖, pulls ⟨y_0, y⟩, (n,) each. A norm is 0 if and only
    if y is.
    """
    head = tl.program_id(1).to(tl.int64)
    rank = tl.program_id(0) * rows + tl.arange(0, rows)
    component = tl.arange(0, components)
    known = rank < n
    inside = known[:, None] & (component < d)[None, :]
    origin = values + head * head_stride + component * component_stride
    shrink = 1.0 / tl.load(unit + head)
    place = tl.load(sink + head)

    position = tl.load(order + head * n + rank, mask=known, other=0)
    state = tl.load(origin[None, :] + (position * key_stride)[:, None], mask=inside, other=0.0).to(tl.float64) * shrink
    largest = tl.max(tl.abs(state), axis=1)
    part = state * (1.0 / tl.where(largest > SMALLEST_COMPONENT, largest, 1.0))[:, None]  # its squares stay in range
    root = tl.sqrt(tl.sum(part * part, axis=1))
    length = tl.maximum(largest * root, largest)
    weight = tl.load(alpha + head * n + rank, mask=known, other=0.0)
    product = state * weight[:, None]
    sink_weight = tl.load(alpha + head * n + place, mask=place < n, other=0.0)
    sink_product = tl.load(origin, mask=component < d, other=0.0).to(tl.float64) * shrink * sink_weight

    key = head * n + rank
    spot = (key * d)[:, None] + component[None, :]
    tl.store(y + spot, product, mask=inside)
    tl.store(directions + spot, (part * (1.0 / tl.where(root > 0.0, root, 1.0))[:, None]).to(tl.float32), mask=inside)
    tl.store(lengths + key, length, mask=known)
    tl.store(norms + key, weight * length, mask=known)
    tl.store(pulls + key, tl.sum(product * sink_product[None, :], axis=1), mask=known)


@compile_kernel
def cumulate(
    y: tl.tensor,
    sink: tl.tensor,
    sums: tl.tensor,
    n: tl.tensor,
    d: tl.tensor,
    rows: tl.constexpr,
    components: tl.constexpr,
) -> None:
    """Running sums of y over the keys except the sink, (n, d); one program per ``components`` components of a head."""
    head = tl.program_id(1).to(tl.int64)
    component = tl.program_id(0) * components + tl.arange(0, components)
    place = tl.load(sink + head)
    total = tl.full((components,), 0, tl.float64)
    for start in range(0, n, rows):
        rank = start + tl.arange(0, rows)
        inside = (rank < n)[:, None] & (component < d)[None, :]
        spot = ((head * n + rank) * d)[:, None] + component[None, :]
        part = tl.load(y + spot, mask=inside & (rank != place)[:, None], other=0.0)
        tl.store(sums + spot, tl.cumsum(part, axis=0) + total[None, :], mask=inside)
        total += tl.sum(part, axis=0)


@compile_kernel
def error_bound(a: tl.tensor, size: tl.tensor, slope: tl.constexpr, bend: tl.constexpr) -> tl.tensor:
    """δ, the error bound of the energies of keys of norm a about a centre of norm size."""
    lifted = tl.where(a > 0.0, tl.maximum(a, SMALLEST_NORM), 0.0)
    return lifted * (size * slope + lifted * bend)


@compile_kernel
def energies(
    products: tl.tensor, norms: tl.tensor, pulls: tl.tensor, taken: tl.tensor, key: tl.tensor, inside: tl.tensor
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """(a, g, E) of some keys: norms, and energies about s without and with the sink, which is taken 0 or 1 times."""
    a = tl.load(norms + key, mask=inside, other=0.0)
    g = a * a - 2.0 * tl.load(products + key, mask=inside, other=0.0)
    return a, g, g - 2.0 * taken * tl.load(pulls + key, mask=inside, other=0.0)


@compile_kernel
def find_selected_extremes(
    products: tl.tensor,
    norms: tl.tensor,
    pulls: tl.tensor,
    taken: tl.tensor,
    place: tl.tensor,
    split: tl.tensor,
    block: tl.constexpr,
) -> tuple[tl.tensor, ...]:
    """For the selected keys: the first key of largest E, this E, and sum, least and largest a without the sink."""
    lane = tl.arange(0, block)
    highest = tl.full((block,), float("-inf"), tl.float64)
    holder = tl.full((block,), 0, tl.int32)
    total = tl.full((block,), 0, tl.float64)
    least = tl.full((block,), float("inf"), tl.float64)
    most = tl.full((block,), 0, tl.float64)
    for start in range(0, split, block):
        key = start + lane
        inside = key < split
        a, _, energy = energies(products, norms, pulls, taken, key, inside)
        higher = inside & (energy > highest)
        highest = tl.where(higher, energy, highest)
        holder = tl.where(higher, key, holder)
        content = inside & (key != place)
        total += tl.where(content, a, 0.0)
        least = tl.where(content, tl.minimum(least, a), least)
        most = tl.where(content, tl.maximum(most, a), most)
    top = tl.max(highest, axis=0)
    farthest = tl.min(tl.where(highest == top, holder, split), axis=0)
    return farthest, top, tl.sum(total, axis=0), tl.min(least, axis=0), tl.max(most, axis=0)


@compile_kernel
def find_left_out_extremes(
    products: tl.tensor,
    norms: tl.tensor,
    pulls: tl.tensor,
    taken: tl.tensor,
    size: tl.tensor,
    split: tl.tensor,
    n: tl.tensor,
    slope: tl.constexpr,
    bend: tl.constexpr,
    block: tl.constexpr,
) -> tuple[tl.tensor, ...]:
    """For the keys left out: the first key of least E, this E, two ends of least g, largest g, largest a.

    size: norm of s without the sink; the true least g lies between the two ends.
    """
    lane = tl.arange(0, block)
    lowest = tl.full((block,), float("inf"), tl.float64)
    holder = tl.full((block,), 0, tl.int32)
    low, high = lowest, lowest
    most_g = tl.full((block,), float("-inf"), tl.float64)
    most = tl.full((block,), 0, tl.float64)
    for start in range(split // block * block, n, block):
        key = start + lane
        inside = (key >= split) & (key < n)
        a, g, energy = energies(products, norms, pulls, taken, key, inside)
        lower = inside & (energy < lowest)
        lowest = tl.where(lower, energy, lowest)
        holder = tl.where(lower, key, holder)
        error = error_bound(a, size, slope, bend)
        low = tl.where(inside, tl.minimum(low, g - error), low)
        high = tl.where(inside, tl.minimum(high, g + error), high)
        most_g = tl.where(inside, tl.maximum(most_g, g), most_g)
        most = tl.maximum(most, a)
    bottom = tl.min(lowest, axis=0)
    nearest = tl.min(tl.where(lowest == bottom, holder, n), axis=0)
    least_low, least_high = tl.min(low, axis=0), tl.min(high, axis=0)
    return nearest, bottom, least_low, least_high, tl.max(most_g, axis=0), tl.max(most, axis=0)


@compile_kernel
def decide(
    products: tl.tensor,
    norms: tl.tensor,
    pulls: tl.tensor,
    taken: tl.tensor,
    size: tl.tensor,
    start: tl.tensor,
    stop: tl.tensor,
    best: tl.tensor,
    best_error: tl.tensor,
    threshold: tl.tensor,
    threshold_error: tl.tensor,
    sign: tl.constexpr,
    slope: tl.constexpr,
    bend: tl.constexpr,
    block: tl.constexpr,
) -> tuple[tl.tensor, ...]:
    """Count what the error bound decides for the keys start to stop: (candidates, surely within, in doubt).

    Candidates may have the largest sign · E, where ``best`` is the E of one of them; those of norm 0 are equal and
    count as one. The other two are about whether E is at most a threshold. size: at least the norm of s.
    """
    lane = tl.arange(0, block)
    reach = best * sign - best_error
    candidates = tl.full((block,), 0, tl.int32)
    equals = tl.full((block,), 0, tl.int32)
    sure = tl.full((block,), 0, tl.int32)
    doubt = tl.full((block,), 0, tl.int32)
    for first in range(start // block * block, stop, block):
        key = first + lane
        inside = (key >= start) & (key < stop)
        a, _, energy = energies(products, norms, pulls, taken, key, inside)
        error = error_bound(a, size, slope, bend)
        candidate = inside & (energy * sign + error >= reach)
        candidates += (candidate & (a > 0.0)).to(tl.int32)
        equals = tl.maximum(equals, (candidate & (a == 0.0)).to(tl.int32))
        within = energy + error <= threshold - threshold_error
        sure += (inside & within).to(tl.int32)
        doubt += (inside & (energy - error <= threshold + threshold_error)).to(tl.int32)
    several, within_all = tl.sum(candidates, axis=0) + tl.max(equals, axis=0), tl.sum(sure, axis=0)
    return several, within_all, tl.sum(doubt, axis=0) - within_all


@compile_kernel
def bound_probability(xi: tl.tensor) -> tl.tensor:
    """p(ξ) = φ(ξ) ξ/(1 + ξ²) for ξ ≥ 0; ξ < 0 counts as 0."""
    held = tl.minimum(tl.maximum(xi, 0.0), XI_END)
    square = held * held
    return tl.exp(square * -0.5) * DENSITY_0 * held / (square + 1.0)


@compile_kernel
def sum_worst_pairs(
    products: tl.tensor,
    norms: tl.tensor,
    size: tl.tensor,
    split: tl.tensor,
    low: tl.tensor,
    high: tl.tensor,
    most_g: tl.tensor,
    steepness: tl.tensor,
    slope: tl.constexpr,
    bend: tl.constexpr,
    block: tl.constexpr,
) -> tuple[tl.tensor, ...]:
    """Late keys, keys in doubt, Σ_i and max_i of max_j p_ij over the early keys i, keys that need a search.

    A key is late if its g is above the least g left out, which lies in [low, high]; its max_j p_ij is 1/2, which is not
    included in the sum and the maximum. most_g is the largest g left out. size: norm of s without the sink.
    """
    lane = tl.arange(0, block)
    least_g, peak = (low + high) * 0.5, tl.full((), XI_STAR, tl.float64)
    late = tl.full((block,), 0, tl.int32)
    doubt = tl.full((block,), 0, tl.int32)
    lacking = tl.full((block,), 0, tl.int32)
    total = tl.full((block,), 0, tl.float64)
    most = tl.full((block,), 0, tl.float64)
    for start in range(0, split, block):
        key = start + lane
        inside = key < split
        a = tl.load(norms + key, mask=inside, other=0.0)
        g = a * a - 2.0 * tl.load(products + key, mask=inside, other=0.0)
        error = error_bound(a, size, slope, bend)
        late += (inside & (g - error > high)).to(tl.int32)
        doubt += (inside & (g - error <= high) & (g + error > low)).to(tl.int32)
        early = inside & (g - error <= high)
        near, far = (least_g - g) * steepness, (most_g - g) * steepness
        lacking += (early & (near < peak) & (far > peak)).to(tl.int32)
        p = tl.where(early, bound_probability(tl.where(far <= peak, far, near)), 0.0)
        total += p
        most = tl.maximum(most, p)
    return (
        tl.sum(late, axis=0),
        tl.sum(doubt, axis=0),
        tl.sum(total, axis=0),
        tl.max(most, axis=0),
        tl.sum(lacking, axis=0),
    )


@compile_kernel
def norm(vector: tl.tensor) -> tl.tensor:
    """‖vector‖."""
    return tl.sqrt(tl.sum(vector * vector, axis=0))


@compile_kernel
def cosine(vector: tl.tensor, length: tl.tensor, other: tl.tensor, other_length: tl.tensor) -> tl.tensor:
    """Cosine of two vectors of known lengths, NaN if one of them is 0."""
    both = length * other_length
    return tl.where(both > 0.0, tl.sum(vector * other, axis=0) / tl.where(both > 0.0, both, 1.0), float("nan"))


@compile_kernel
def store_directions(
    s: tl.tensor,
    without: tl.tensor,
    whole: tl.tensor,
    y: tl.tensor,
    lengths: tl.tensor,
    value: tl.tensor,
    key_stride: tl.tensor,
    shrink: tl.tensor,
    place: tl.tensor,
    last_place: tl.tensor,
    split: tl.tensor,
    n: tl.tensor,
    d: tl.tensor,
    field: tl.tensor,
    stride: tl.tensor,
    components: tl.constexpr,
) -> None:
    """Store norms of s_N, its distance from the rest and its cosines with the sink and the last token.

    without: s without the sink; whole: s_n without the sink; y, lengths: of the head, by rank; value: points to
    the components of the first value; the others follow in order of position.
    """
    component = tl.arange(0, components)
    last_y = tl.load(y + last_place * d + component, mask=component < tl.where(last_place < split, d, 0), other=0.0)
    sink_y = tl.load(y + place * d + component, mask=component < tl.where(place < n, d, 0), other=0.0)
    first_state = tl.load(value, mask=component < d, other=0.0).to(tl.float64) * shrink
    last_state = tl.load(value + (n - 1) * key_stride, mask=component < d, other=0.0).to(tl.float64) * shrink
    first_length = tl.load(lengths + place, mask=place < n, other=0.0)
    size = norm(s)
    tl.store(field + NORM_S * stride, size)
    tl.store(field + NORM_S_WITHOUT_SINK * stride, tl.where(place < n, norm(without), float("nan")))
    tl.store(field + NORM_S_WITHOUT_LAST * stride, norm(s - last_y))
    tl.store(field + DISTANCE_REST * stride, norm(whole + sink_y - s - s))
    tl.store(field + COS_SINK * stride, cosine(s, size, first_state, first_length))
    tl.store(field + COS_LAST * stride, cosine(s, size, last_state, tl.load(lengths + last_place)))


@compile_kernel
def bound_row(
    products: tl.tensor,
    norms: tl.tensor,
    size: tl.tensor,
    split: tl.tensor,
    low: tl.tensor,
    high: tl.tensor,
    most_g: tl.tensor,
    breadth: tl.tensor,
    steepness: tl.tensor,
    upper: tl.tensor,
    upper_stride: tl.tensor,
    n: tl.tensor,
    kappas: tl.tensor,
    slope: tl.constexpr,
    bend: tl.constexpr,
    block: tl.constexpr,
) -> tl.tensor:
    """Store the upper bounds of one row for every κ, and return the flags of the row.

    low, high, most_g: as for ``sum_worst_pairs``; breadth: B, 0 where there are no bounds.
    """
    flag = tl.full((), 0, tl.int32)
    for kappa in range(kappas):
        factor = tl.load(steepness + kappa)
        there = (breadth > 0.0) & (factor > 0.0)
        c = tl.where(there, tl.minimum(factor / tl.where(there, breadth, 1.0), STEEPEST), 0.0)
        late, doubt, total, most, lacking = sum_worst_pairs(
            products, norms, size, split, low, high, most_g, c, slope, bend, block
        )
        precision = 1.0 - tl.where(late > 0, 0.5, most) / (split + 1)
        recall = 1.0 - (total + late * 0.5) / split
        tl.store(upper + kappa * (n - 1), tl.where(there, precision, float("nan")))
        tl.store(upper + upper_stride + kappa * (n - 1), tl.where(there, recall, float("nan")))
        flag = flag | tl.where(there & (doubt > 0), LATE_IN_DOUBT, 0) | tl.where(there & (lacking > 0), NEEDS_SEARCH, 0)
    return flag


@compile_kernel
def profile_rows(
    products: tl.tensor,
    y: tl.tensor,
    sums: tl.tensor,
    lengths: tl.tensor,
    norms: tl.tensor,
    pulls: tl.tensor,
    values: tl.tensor,
    head_stride: tl.tensor,
    key_stride: tl.tensor,
    component_stride: tl.tensor,
    unit: tl.tensor,
    sink: tl.tensor,
    last: tl.tensor,
    steepness: tl.tensor,
    counts: tl.tensor,
    count_stride: tl.tensor,
    fields: tl.tensor,
    stride: tl.tensor,
    upper: tl.tensor,
    upper_stride: tl.tensor,
    flags: tl.tensor,
    first: tl.tensor,
    rows: tl.tensor,
    n: tl.tensor,
    d: tl.tensor,
    kappas: tl.tensor,
    slope: tl.constexpr,
    bend: tl.constexpr,
    block: tl.constexpr,
    components: tl.constexpr,
) -> None:
    """Store all quantities of one N of one head except ρ_out; one program per row of a tile that begins at ``first``.

    Inputs: products ⟨s'_N, y_l⟩ of the tile (head, rows, n), s' being s without the sink; the inputs and
    outputs of ``order_keys`` and ``cumulate``; last: rank of the last token; steepness: c · B for each head and κ, c
    being the factor of g_j − g_i in ξ_ij.

    Outputs: counts K_in and K_out, int32, ``count_stride`` apart; fields, ``stride`` apart; upper bounds of Precision
    and Recall (head, κ, n − 1), ``upper_stride`` apart; flags (head, rows), int32. COUNTS_IN_DOUBT: counts and radii
    are not valid. LATE_IN_DOUBT or NEEDS_SEARCH: upper bounds are not valid, because it is undecided which keys are
    late, or because p is largest neither for the largest nor for the least g left out.
    """
    head, row = tl.program_id(1).to(tl.int64), first + tl.program_id(0)
    split = row + 1
    component = tl.arange(0, components)
    place, last_place, shrink = tl.load(sink + head), tl.load(last + head), 1.0 / tl.load(unit + head)
    products += (head * rows + tl.program_id(0)) * n
    whole = tl.load(sums + (head * n + n - 1) * d + component, mask=component < d, other=0.0)
    y, sums, lengths = y + head * n * d, sums + (head * n + row) * d, lengths + head * n
    norms, pulls = norms + head * n, pulls + head * n
    counts, field, upper = counts + head * (n - 1) + row, fields + head * (n - 1) + row, upper + row
    value = values + head * head_stride + component * component_stride

    without = tl.load(sums + component, mask=component < d, other=0.0)
    sink_y = tl.load(y + place * d + component, mask=component < tl.where(place < split, d, 0), other=0.0)
    s, size = without + sink_y, norm(without)
    store_directions(
        s,
        without,
        whole,
        y,
        lengths,
        value,
        key_stride,
        shrink,
        place,
        last_place,
        split,
        n,
        d,
        field,
        stride,
        components,
    )

    taken, reach = (place < split).to(tl.float64), size + norm(sink_y)
    farthest, top, s_in, a_min_in, a_max_in = find_selected_extremes(products, norms, pulls, taken, place, split, block)
    nearest, bottom, low, high, most_g, a_max_out = find_left_out_extremes(
        products, norms, pulls, taken, size, split, n, slope, bend, block
    )
    top_error = error_bound(tl.load(norms + farthest), reach, slope, bend)
    bottom_error = error_bound(tl.load(norms + nearest), reach, slope, bend)
    far, k_in, doubt_in = decide(
        products, norms, pulls, taken, reach, 0, split, top, top_error, bottom, bottom_error, 1, slope, bend, block
    )
    near, k_out, doubt_out = decide(
        products, norms, pulls, taken, reach, split, n, bottom, bottom_error, top, top_error, -1, slope, bend, block
    )
    tl.store(counts, k_in)
    tl.store(counts + count_stride, k_out)
    for_r_min = tl.load(y + nearest * d + component, mask=component < d, other=0.0)
    for_r_max = tl.load(y + farthest * d + component, mask=component < d, other=0.0)
    tl.store(field + R_MIN * stride, norm(s - for_r_min))
    tl.store(field + R_MAX * stride, norm(s - for_r_max))

    content = (split > 1) | (place > 0)
    a_0 = tl.load(norms + place, mask=place < split, other=0.0)
    tl.store(field + A_0 * stride, tl.where(place < split, a_0, float("nan")))
    tl.store(field + S_IN * stride, tl.where(content, s_in, float("nan")))
    tl.store(field + A_MIN_IN * stride, tl.where(content, a_min_in, float("nan")))
    tl.store(field + A_MAX_IN * stride, tl.where(content, a_max_in, float("nan")))
    tl.store(field + A_MAX_OUT * stride, a_max_out)
    breadth = tl.where(content, a_max_in + a_max_out + s_in, 0.0)
    steepness, upper = steepness + head * kappas, upper + head * kappas * (n - 1)
    flag = bound_row(
        products,
        norms,
        size,
        split,
        low,
        high,
        most_g,
        breadth,
        steepness,
        upper,
        upper_stride,
        n,
        kappas,
        slope,
        bend,
        block,
    )
    in_doubt = (far > 1) | (near > 1) | (doubt_in > 0) | (doubt_out > 0)
    tl.store(flags + head * rows + tl.program_id(0), flag | tl.where(in_doubt, COUNTS_IN_DOUBT, 0))


@compile_kernel
def cosine_tiles(
    directions: tl.tensor,
    sink: tl.tensor,
    by_row: tl.tensor,
    by_column: tl.tensor,
    by_tile: tl.tensor,
    diagonal: tl.tensor,
    n: tl.tensor,
    d: tl.tensor,
    blocks: tl.tensor,
    side: tl.constexpr,
    chunk: tl.constexpr,
) -> None:
    """Largest cosines cos(v_k, v_j) in each tile of ranks k < j, k not the sink; one program per tile (side × side).

    directions: float32 (n, d). Outputs, float32: by_row (block of j, k), by_column (block of k, j), by_tile (block of
    k, block of j), and diagonal (block, side, side), the cosines of the tiles on the diagonal. Tiles below the
    diagonal are not written.
    """
    head = tl.program_id(1).to(tl.int64)
    upper = tl.program_id(0) // blocks
    right = tl.program_id(0) % blocks
    if upper <= right:
        lane = tl.arange(0, side)
        k, j = upper * side + lane, right * side + lane
        sums = tl.full((side, side), 0, tl.float64)
        for start in range(0, d, chunk):
            component = start + tl.arange(0, chunk)
            inside = (component < d)[None, :]
            spot_k = ((head * n + k) * d)[:, None] + component[None, :]
            spot_j = ((head * n + j) * d)[:, None] + component[None, :]
            chosen = tl.load(directions + spot_k, mask=inside & (k < n)[:, None], other=0.0)
            others = tl.load(directions + spot_j, mask=inside & (j < n)[:, None], other=0.0)
            sums += tl.dot(chosen, tl.trans(others), input_precision="tf32x3").to(tl.float64)
        allowed = (k < n) & (k != tl.load(sink + head))
        cosines = tl.where(allowed[:, None] & (j < n)[None, :], sums.to(tl.float32), float("-inf"))
        largest = tl.max(cosines, axis=0)
        tl.store(by_row + (head * blocks + right) * n + k, tl.max(cosines, axis=1), mask=k < n)
        tl.store(by_column + (head * blocks + upper) * n + j, largest, mask=j < n)
        tl.store(by_tile + (head * blocks + upper) * blocks + right, tl.max(largest, axis=0))
        if upper == right:
            spot = ((head * blocks + upper) * side + lane)[:, None] * side + lane[None, :]
            tl.store(diagonal + spot, cosines)


@compile_kernel
def closest_pairs(
    by_row: tl.tensor,
    by_column: tl.tensor,
    by_tile: tl.tensor,
    diagonal: tl.tensor,
    sink: tl.tensor,
    rho_out: tl.tensor,
    n: tl.tensor,
    blocks: tl.tensor,
    side: tl.constexpr,
) -> None:
    """ρ_out of every N from the outputs of ``cosine_tiles``, clipped to [0, 1]; NaN if J is empty. A program per block.

    A pair of ranks k < N ≤ j lies in a tile whose rows and columns are both outside the block of N, or in one of its
    columns, or in one of its rows, or in its tile on the diagonal, whose rows join one at a time.
    """
    head = tl.program_id(1).to(tl.int64)
    own = tl.program_id(0)
    lane = tl.arange(0, side)
    size = own * side + lane
    apart = tl.full((side,), float("-inf"), tl.float32)
    reached = tl.full((side,), float("-inf"), tl.float32)
    beyond = tl.full((side,), float("-inf"), tl.float32)
    for upper in range(own):
        column = tl.load(by_column + (head * blocks + upper) * n + size, mask=size < n, other=float("-inf"))
        reached = tl.maximum(reached, column)
        for start in range(own + 1, blocks, side):
            right = start + lane
            tiles = by_tile + (head * blocks + upper) * blocks + right
            apart = tl.maximum(apart, tl.load(tiles, mask=right < blocks, other=float("-inf")))
    for right in range(own + 1, blocks):
        row = tl.load(by_row + (head * blocks + right) * n + size, mask=size < n, other=float("-inf"))
        beyond = tl.maximum(beyond, row)
    farther_apart = tl.max(apart, axis=0)

    largest = tl.full((side,), float("-inf"), tl.float32)
    for step in range(side):
        best = tl.maximum(tl.max(tl.where(lane < step, beyond, reached), axis=0), farther_apart)
        largest = tl.where(lane == step, best, largest)
        row = tl.load(diagonal + ((head * blocks + own) * side + step) * side + lane)
        reached = tl.maximum(reached, row)
    content = size > (tl.load(sink + head) < size).to(tl.int32)
    clipped = tl.minimum(tl.maximum(largest, 0.0), 1.0).to(tl.float64)
    spot = rho_out + head * (n - 1) + size - 1
    tl.store(spot, tl.where(content, clipped, float("nan")), mask=(size > 0) & (size < n))
