"""Triton kernels that compare all pairs of a selected key and a key left out. They do not validate their input.

Holds the loops over the keys of every row; ``geometry.separation.cuda`` prepares the arguments and recomputes the
flagged rows. What does not belong here: PyTorch, and choices of size.

Letters and the error bound as in ``geometry.separation.kernels``: n keys, t rows of a tile, each about one N. Arrays
have a first axis for heads, which is not mentioned below, and are float64 unless said otherwise.
"""

import triton.language as tl

from geometry.selection.cuda_kernels import compile_kernel, error_bound


@compile_kernel
def enclose_energies(
    products: tl.tensor,
    norms: tl.tensor,
    key: tl.tensor,
    inside: tl.tensor,
    size: tl.tensor,
    slope: tl.constexpr,
    bend: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Compute (a, E − δ, E + δ) of some keys of one row; size: ‖s‖."""
    a = tl.load(norms + key, mask=inside, other=0.0)
    energy = a * a - 2.0 * tl.load(products + key, mask=inside, other=0.0)
    error = error_bound(a, size, slope, bend)
    return a, energy - error, energy + error


@compile_kernel
def lower_ends(
    products: tl.tensor,
    norms: tl.tensor,
    sizes: tl.tensor,
    low: tl.tensor,
    rows: tl.tensor,
    n: tl.tensor,
    slope: tl.constexpr,
    bend: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """Store the lower ends of the intervals of all keys, by which the keys are sorted; one program per row.

    products: ⟨s, y⟩, (t, n); norms: ‖y‖, (n,); sizes: ‖s‖, (t,); output low (t, n).
    """
    head, row = tl.program_id(1).to(tl.int64), tl.program_id(0)
    products, low = products + (head * rows + row) * n, low + (head * rows + row) * n
    norms, size = norms + head * n, tl.load(sizes + head * rows + row)
    for start in range(0, n, block):
        key = start + tl.arange(0, block)
        _, lower, _ = enclose_energies(products, norms, key, key < n, size, slope, bend)
        tl.store(low + key, lower, mask=key < n)


@compile_kernel
def larger(a: tl.tensor, b: tl.tensor) -> tl.tensor:
    """The larger of two numbers."""
    return tl.maximum(a, b)


@compile_kernel
def find_ends(
    products: tl.tensor,
    norms: tl.tensor,
    rank: tl.tensor,
    split: tl.tensor,
    size: tl.tensor,
    n: tl.tensor,
    slope: tl.constexpr,
    bend: tl.constexpr,
    block: tl.constexpr,
) -> tuple[tl.tensor, ...]:
    """Least lower end of the keys left out, largest of the selected ones, and how many of each have y = 0."""
    nearest = tl.full((block,), float("inf"), tl.float64)
    farthest = tl.full((block,), float("-inf"), tl.float64)
    empty_in = tl.full((block,), 0, tl.int64)
    empty_out = tl.full((block,), 0, tl.int64)
    for start in range(0, n, block):
        key = start + tl.arange(0, block)
        inside = key < n
        selected = tl.load(rank + key, mask=inside, other=0) < split
        a, low, _ = enclose_energies(products, norms, key, inside, size, slope, bend)
        nearest = tl.where(inside & (selected == 0), tl.minimum(nearest, low), nearest)
        farthest = tl.where(inside & selected, tl.maximum(farthest, low), farthest)
        empty_in += (inside & selected & (a == 0.0)).to(tl.int64)
        empty_out += (inside & (selected == 0) & (a == 0.0)).to(tl.int64)
    return tl.min(nearest, axis=0), tl.max(farthest, axis=0), tl.sum(empty_in, axis=0), tl.sum(empty_out, axis=0)


@compile_kernel
def compare_rows(
    products: tl.tensor,
    norms: tl.tensor,
    sizes: tl.tensor,
    order: tl.tensor,
    rank: tl.tensor,
    splits: tl.tensor,
    counts: tl.tensor,
    flags: tl.tensor,
    rows: tl.tensor,
    n: tl.tensor,
    slope: tl.constexpr,
    bend: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """Store 2 W (ties count half), K_in and K_out of every row; one program per row.

    Inputs: products, norms and sizes as for ``lower_ends``; order: keys by their lower ends, int64 (t, n); rank: place
    of every key in the order of selection, int64 (n,); splits: N of each row, int64 (t,), the same for all heads.
    Outputs: counts, int64 (t, 3); flags, int32 (t,): 1 where intervals of a selected key and of a key left out overlap,
    unless both y are 0, which is a tie; the counts of flagged rows are not valid.
    """
    head, row = tl.program_id(1).to(tl.int64), tl.program_id(0)
    products, order = products + (head * rows + row) * n, order + (head * rows + row) * n
    norms, rank, size = norms + head * n, rank + head * n, tl.load(sizes + head * rows + row)
    split = tl.load(splits + row)
    nearest, farthest, empty_in, empty_out = find_ends(products, norms, rank, split, size, n, slope, bend, block)

    pairs = tl.full((block,), 0, tl.int64)
    k_in, k_out, doubt = pairs, pairs, pairs
    left_out, empty_left_out = tl.full((), 0, tl.int64), tl.full((), 0, tl.int64)
    reach_in = tl.full((), float("-inf"), tl.float64)
    reach_out = tl.full((), float("-inf"), tl.float64)
    for start in range(0, n, block):
        place = start + tl.arange(0, block)
        inside = place < n
        key = tl.load(order + place, mask=inside, other=0)
        ranks = tl.load(rank + key, mask=inside, other=0)
        selected, others = inside & (ranks < split), inside & (ranks >= split)
        a, low, high = enclose_energies(products, norms, key, inside, size, slope, bend)
        empty = a == 0.0

        k_in += (selected & (low <= nearest)).to(tl.int64)
        k_out += (others & (low <= farthest)).to(tl.int64)
        passed = left_out + tl.cumsum(others.to(tl.int64), axis=0)
        empty_passed = empty_left_out + tl.cumsum((others & empty).to(tl.int64), axis=0)
        pairs += tl.where(selected, tl.where(empty, passed - empty_passed, passed), 0)
        left_out = tl.max(passed, axis=0)
        empty_left_out = tl.max(empty_passed, axis=0)

        high_in = tl.where(selected & (a > 0.0), high, float("-inf"))
        high_out = tl.where(others & (a > 0.0), high, float("-inf"))
        reached_in = tl.maximum(tl.associative_scan(high_in, 0, larger), reach_in)
        reached_out = tl.maximum(tl.associative_scan(high_out, 0, larger), reach_out)
        around = (a > 0.0) & (low <= 0.0) & (high >= 0.0)  # its interval contains that of y = 0
        open_in = selected & ((low <= reached_out) | (around & (empty_out > 0)))
        open_out = others & ((low <= reached_in) | (around & (empty_in > 0)))
        doubt += (open_in | open_out).to(tl.int64)
        reach_in, reach_out = tl.max(reached_in, axis=0), tl.max(reached_out, axis=0)
    row_counts = counts + (head * rows + row) * 3
    tl.store(row_counts, 2 * tl.sum(pairs, axis=0) + empty_in * empty_out)
    tl.store(row_counts + 1, tl.sum(k_in, axis=0))
    tl.store(row_counts + 2, tl.sum(k_out, axis=0))
    tl.store(flags + head * rows + row, (tl.sum(doubt, axis=0) > 0).to(tl.int32))
