"""The selection profile against one matrix product, against PyTorch, against itself at other sizes and on a GPU.

Holds the benchmarks ``selection.*``. All of them use heads of ``benchmarks.heads`` and are measured on one thread, in
process time, but for that on a GPU.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from time import process_time

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from benchmarks.heads import F32, SATURATED, SPREAD, draw_head, draw_layer, draw_queries
from benchmarks.measure import Benchmark, Contender, Result, alternate, compare, make_product
from geometry import selection_counts, selection_profile
from geometry.bounds.scale_free import scale_free_lower_bounds
from geometry.selection.every_query import measure_queries

HEADS, KV_HEADS = 12, 1
"""Query heads and KV heads of a layer whose heads are measured together."""

KAPPAS = (0.005, 0.05, 0.5, 5.0, 50.0)
"""Five κ, from bounds that are nearly trivial to steep ones."""


@contextmanager
def limit_threads() -> Iterator[None]:
    """Limit BLAS, OpenMP and PyTorch to one thread inside the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def compare_with_product(*, n: int, head_dim: int, repeats: int) -> list[Result]:
    """The heads of one layer against one float32 matrix product n x d x n for each, saturated and not.

    Counts, profiles with one and five κ, and the scale-free bounds.
    """
    results, sizes, wide = [], {"heads": HEADS, "n": n, "head_dim": head_dim}, head_dim > 64
    for name, spread in (("", SPREAD), (".saturated", SATURATED)):
        drawn = draw_layer(
            np.random.default_rng(0), heads=HEADS, kv_heads=KV_HEADS, n=n, head_dim=head_dim, spread=spread
        )
        grouped, states = drawn[0].reshape(KV_HEADS, -1, n), drawn[1][:, None]
        norms = np.linalg.norm(states, axis=-1)
        contenders: dict[str, tuple[str, float, Contender]] = {
            "counts": ("counts and radii", 0.5 if wide else 0.8, partial(selection_counts, grouped, states)),
            "profile": ("everything, one κ", 0.9 if wide else 1.4, partial(selection_profile, grouped, states)),
            "kappas": ("everything, five κ", 5.0, partial(selection_profile, grouped, states, kappas=KAPPAS)),
            "scale_free": ("scale-free bounds", 1.0, partial(scale_free_lower_bounds, grouped, norms, head_dim)),
        }
        calls = [*(contender for _, _, contender in contenders.values()), make_product(states[0, 0], HEADS)]
        with limit_threads():
            *ours, product = alternate(*calls, repeats=repeats, clock=process_time).T
        against = (f"a float32 matrix product n x d x n for each of {HEADS} heads, one thread", product)
        for (short, (what, target, _)), seconds in zip(contenders.items(), ours, strict=True):
            described = f"{what} of {HEADS} heads, d = {head_dim}{', saturated' if name else ''}"
            figure = f"selection.{short}{name}"
            results.append(compare(figure, "cost", (described, seconds), against, sizes=sizes, target=target))
    return results


Counts = tuple[Tensor, Tensor, Tensor, Tensor]
"""k_in, k_out, r_min, r_max for N = 1 ... n - 1, (n - 1,) each."""


def count_vectorised(weights: Tensor, values: Tensor) -> Counts:
    """All N at once through ``cdist`` and masks; weights (n,), values (n, d)."""
    y, s = _compute_selections(weights, values)
    distances = torch.cdist(s, y)  # row N - 1: distances of all keys from s_N
    n = len(y)
    chosen = torch.ones(n - 1, n, dtype=torch.bool).tril()
    r_min = distances.masked_fill(chosen, torch.inf).amin(1)
    r_max = distances.masked_fill(~chosen, -torch.inf).amax(1)
    k_in = (chosen & (distances <= r_min[:, None])).sum(1)
    k_out = (~chosen & (distances <= r_max[:, None])).sum(1)
    return k_in, k_out, r_min, r_max


def count_in_loop(weights: Tensor, values: Tensor) -> Counts:
    """One N after another; weights (n,), values (n, d)."""
    y, s = _compute_selections(weights, values)
    counts = []
    for n in range(1, len(y)):
        distances = (y - s[n - 1]).norm(dim=1)
        chosen, left_out = distances[:n], distances[n:]
        r_min, r_max = left_out.min(), chosen.max()
        counts.append(((chosen <= r_min).sum(), (left_out <= r_max).sum(), r_min, r_max))
    k_in, k_out, nearest, farthest = (torch.stack(column) for column in zip(*counts, strict=True))
    return k_in, k_out, nearest, farthest


def _compute_selections(weights: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The y in order of decreasing weight, (n, d), and s_1 ... s_(n - 1), (n - 1, d)."""
    order = weights.argsort(descending=True, stable=True)
    y = weights[order, None] * values[order]
    return y, y.cumsum(0)[:-1]


def compare_with_pytorch(*, n: int, head_dim: int, repeats: int) -> list[Result]:
    """One head against PyTorch, vectorised and in a loop, both in float32 and written in the most direct way.

    The speed of a bare matrix product, which no exact count by one can exceed, is noted as well.
    """
    weights, values = draw_head(n, head_dim)
    tensors = torch.from_numpy(weights), torch.from_numpy(values)
    contenders = (
        ("vectorised", "cdist and masks", 5.0, lambda: count_vectorised(*tensors)),
        ("loop", "a loop over N", 20.0, lambda: count_in_loop(*tensors)),
    )
    calls = [lambda: selection_counts(weights, values), make_product(values), *(call for *_, call in contenders)]
    with limit_threads():
        ours, bare, *others = alternate(*calls, repeats=repeats, clock=process_time).T
    results, what = [], ("selection_counts of one head (counts and radii), one thread", ours)
    for (name, way, target, _), seconds in zip(contenders, others, strict=True):
        theirs = (f"counts and radii in PyTorch float32, {way}, one thread", seconds)
        note = f"the bare matrix product alone is {np.median(seconds / bare):.1f} times as fast"
        sizes = {"n": n, "head_dim": head_dim}
        results.append(compare(f"selection.{name}", "speed", what, theirs, sizes=sizes, target=target, note=note))
    return results


def measure_growth(*, lengths: Sequence[int], head_dim: int, repeats: int) -> list[Result]:
    """The exponent of n in the time of the profile of one query of one head."""
    calls = [partial(selection_profile, *draw_head(n, head_dim)) for n in lengths]
    return _fit_growth("selection.growth", "selection_profile of one head", calls, lengths, head_dim, repeats, 2.1)


def measure_growth_of_every_query(*, lengths: Sequence[int], head_dim: int, repeats: int) -> list[Result]:
    """The exponent of n in the time of all queries of one head on the grid of N."""
    calls = [partial(_measure_copy, *draw_queries(n, 1, head_dim)) for n in lengths]
    what = "all queries of one head on the grid of N"
    return _fit_growth("selection.every_query.growth", what, calls, lengths, head_dim, repeats, 3.05)


def _fit_growth(
    name: str, what: str, calls: Sequence[Contender], lengths: Sequence[int], head_dim: int, repeats: int, target: float
) -> list[Result]:
    """The exponent of n in the times of calls: the slope of a line through log time over log n, round by round."""
    with limit_threads():
        seconds = alternate(*calls, repeats=repeats, clock=process_time)
    exponents = np.polynomial.polynomial.polyfit(np.log(lengths), np.log(seconds).T, 1)[1]
    result = compare(
        name,
        "cost",
        (f"{what} at n = {lengths[-1]}", seconds[:, -1]),
        (f"the same at n = {lengths[0]} (exponent fitted through n = {', '.join(map(str, lengths))})", seconds[:, 0]),
        sizes={"shortest": lengths[0], "longest": lengths[-1], "head_dim": head_dim},
        target=target,
    )
    middle, lowest, highest = float(np.median(exponents)), float(exponents.min()), float(exponents.max())
    return [replace(result, kind="exponent", ratio=middle, lowest=lowest, highest=highest)]


def _measure_copy(weights: F32, values: F32) -> None:
    """Measure all queries but the first, whose weights are not overwritten."""
    measure_queries(weights.copy(), values, np.zeros(weights.shape[1], np.int64))


def measure_every_query(*, lengths: Sequence[int], head_dim: int, repeats: int) -> list[Result]:
    """All queries of the heads of a KV group on the grid of N, against one bare product for each head."""
    results, heads = [], 3
    for n in lengths:
        weights, values = draw_queries(n, heads, head_dim)
        measure, multiply = partial(_measure_copy, weights, values), make_product(values[0], heads)
        with limit_threads():
            seconds = alternate(measure, multiply, repeats=repeats, clock=process_time)
        what = (f"all {n - 1} queries of {heads} heads on the grid of N, d = {head_dim}", seconds[:, 0])
        against = (f"one float32 matrix product n x d x n for each of {heads} heads, one thread", seconds[:, 1])
        sizes = {"heads": heads, "n": n, "head_dim": head_dim}
        results.append(compare("selection.every_query", "cost", what, against, sizes=sizes, target=40.0))
    return results


def compare_with_gpu(*, heads: int, kv_heads: int, n: int, head_dim: int, repeats: int) -> list[Result]:
    """The profiles of the heads of one layer on a CUDA device, whose arrays are in the memory of the host."""
    weights, values = draw_layer(np.random.default_rng(0), heads=heads, kv_heads=kv_heads, n=n, head_dim=head_dim)
    grouped, states = weights.reshape(kv_heads, -1, n), values[:, None]
    contenders = [partial(selection_profile, grouped, states, device=device) for device in ("cuda", "cpu")]
    seconds = alternate(*contenders, repeats=repeats)
    sizes = {"heads": heads, "kv_heads": kv_heads, "n": n, "head_dim": head_dim}
    ours = ("selection_profile of the heads of a layer, on the GPU and one thread of the CPU", seconds[:, 0])
    theirs = ("the same on one thread of the CPU", seconds[:, 1])
    return [compare("selection.gpu", "cost", ours, theirs, sizes=sizes, target=0.5, note=torch.cuda.get_device_name())]


BENCHMARKS = (
    Benchmark(
        "selection.product",
        full=lambda: [
            *compare_with_product(n=1024, head_dim=64, repeats=15),
            *compare_with_product(n=1024, head_dim=128, repeats=15),
        ],
        small=partial(compare_with_product, n=256, head_dim=64, repeats=3),
    ),
    Benchmark(
        "selection.pytorch",
        full=partial(compare_with_pytorch, n=1024, head_dim=128, repeats=15),
        small=partial(compare_with_pytorch, n=256, head_dim=64, repeats=3),
    ),
    Benchmark(
        "selection.growth",
        full=partial(measure_growth, lengths=(512, 1024, 2048, 4096, 8192), head_dim=128, repeats=7),
        small=partial(measure_growth, lengths=(128, 256, 512), head_dim=64, repeats=3),
    ),
    Benchmark(
        "selection.every_query",
        full=partial(measure_every_query, lengths=(512, 1024), head_dim=64, repeats=9),
        small=partial(measure_every_query, lengths=(128,), head_dim=64, repeats=3),
    ),
    Benchmark(
        "selection.every_query.growth",
        full=partial(measure_growth_of_every_query, lengths=(256, 512, 1024, 2048), head_dim=64, repeats=5),
        small=partial(measure_growth_of_every_query, lengths=(64, 128), head_dim=64, repeats=2),
    ),
    Benchmark(
        "selection.gpu",
        full=partial(compare_with_gpu, heads=32, kv_heads=8, n=1024, head_dim=128, repeats=5),
        small=partial(compare_with_gpu, heads=4, kv_heads=2, n=128, head_dim=64, repeats=3),
        missing=lambda: None if torch.cuda.is_available() else "no CUDA device",
    ),
)
