"""The selection profile against one matrix product, against PyTorch, against itself at other sizes and on a GPU.

Holds the benchmarks ``selection.*``. All of them use heads of ``benchmarks.heads`` and are measured on one thread, in
process time, but for that on a GPU.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from time import process_time

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import pytorch
from benchmarks.heads import F32, SATURATED, SPREAD, draw_head, draw_layer, draw_queries
from benchmarks.measure import Benchmark, Contender, Result, alternate, compare, make_product
from geometry import selection_counts, selection_profile
from geometry.bounds.scale_free import scale_free_lower_bounds
from geometry.selection.every_query import measure_queries

HEADS, KV_HEADS = 12, 1
"""Query heads and KV heads of a layer whose heads are measured together."""

KAPPAS = (0.005, 0.05, 0.5, 5.0, 50.0)
"""Five κ, from bounds that are nearly trivial to steep ones."""

COUNTS = "selection_counts of one head (counts and radii), one thread"


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
    """The heads of one layer against one float32 matrix product n x d x n for each, saturated and not."""
    results = []
    for name, spread in (("", SPREAD), (".saturated", SATURATED)):
        layer = draw_layer(
            np.random.default_rng(0), heads=HEADS, kv_heads=KV_HEADS, n=n, head_dim=head_dim, spread=spread
        )
        results += _compare_layer(name, *layer, repeats=repeats)
    return results


def _compare_layer(name: str, weights: F32, values: F32, *, repeats: int) -> list[Result]:
    """Counts, profiles with one and five κ, and the scale-free bounds, of weights (head, n) and their value states."""
    heads, n = weights.shape
    grouped, states = weights.reshape(len(values), -1, n), values[:, None]
    norms, product, head_dim = np.linalg.norm(states, axis=-1), make_product(values[0]), values.shape[-1]
    contenders: dict[str, tuple[str, float, Contender]] = {
        "counts": ("counts and radii", 0.8 if head_dim <= 64 else 0.5, lambda: selection_counts(grouped, states)),
        "profile": ("everything, one κ", 1.4 if head_dim <= 64 else 0.9, lambda: selection_profile(grouped, states)),
        "kappas": ("everything, five κ", 5.0, lambda: selection_profile(grouped, states, kappas=KAPPAS)),
        "scale_free": ("scale-free bounds", 1.0, lambda: scale_free_lower_bounds(grouped, norms, head_dim)),
    }
    with limit_threads():
        seconds = alternate(
            *(contender for _, _, contender in contenders.values()),
            lambda: [product() for _ in range(heads)],
            repeats=repeats,
            clock=process_time,
        )
    against = (f"a float32 matrix product n x d x n for each of {heads} heads, one thread", seconds[:, -1])
    return [
        compare(
            f"selection.{short}{name}",
            "cost",
            (f"{what} of {heads} heads, d = {head_dim}{', saturated' if name else ''}", seconds[:, index]),
            against,
            sizes={"heads": heads, "n": n, "head_dim": head_dim},
            target=target,
        )
        for index, (short, (what, target, _)) in enumerate(contenders.items())
    ]


def compare_with_pytorch(*, n: int, head_dim: int, repeats: int) -> list[Result]:
    """One head against PyTorch, vectorised and in a loop; the speed of a bare matrix product is noted as well."""
    weights, values = draw_head(n, head_dim)
    tensors = torch.from_numpy(weights), torch.from_numpy(values)
    with limit_threads():
        seconds = alternate(
            lambda: selection_counts(weights, values),
            lambda: pytorch.count_vectorised(*tensors),
            lambda: pytorch.count_in_loop(*tensors),
            make_product(values),
            repeats=repeats,
            clock=process_time,
        )
    ours, sizes = (COUNTS, seconds[:, 0]), {"n": n, "head_dim": head_dim}
    contenders = (
        (
            "selection.vectorised",
            "counts and radii in PyTorch float32, cdist and masks, one thread",
            seconds[:, 1],
            5.0,
        ),
        ("selection.loop", "counts and radii in PyTorch float32, a loop over N, one thread", seconds[:, 2], 20.0),
    )
    return [
        compare(
            name, "speed", ours, (what, theirs), sizes=sizes, target=target, note=_format_limit(theirs / seconds[:, 3])
        )
        for name, what, theirs, target in contenders
    ]


def _format_limit(ratios: NDArray[np.float64]) -> str:
    """Note on the speed that no exact count by a matrix product can exceed."""
    return f"the bare matrix product alone is {np.median(ratios):.1f} times as fast"


def measure_growth(*, lengths: Sequence[int], head_dim: int, repeats: int) -> list[Result]:
    """The exponent of n in the time of the profile of one query of one head."""
    heads = [partial(selection_profile, *draw_head(n, head_dim)) for n in lengths]
    sizes = {"shortest": lengths[0], "longest": lengths[-1], "head_dim": head_dim}
    return [_fit_growth("selection.growth", "selection_profile of one head", heads, lengths, repeats, sizes, 2.1)]


def _fit_growth(
    name: str, what: str, calls: Sequence[Contender], lengths: Sequence[int], repeats: int, sizes: dict[str, int],
    target: float,
) -> Result:  # fmt: skip
    """The exponent of n in the times of calls: the slope of a line through log time over log n, round by round."""
    with limit_threads():
        seconds = alternate(*calls, repeats=repeats, clock=process_time)
    exponents = np.polynomial.polynomial.polyfit(np.log(lengths), np.log(seconds).T, 1)[1]
    return Result(
        name=name,
        kind="exponent",
        what=f"{what} at n = {lengths[-1]}",
        against=f"the same at n = {lengths[0]} (exponent fitted through n = {', '.join(map(str, lengths))})",
        ratio=float(np.median(exponents)),
        lowest=float(exponents.min()),
        highest=float(exponents.max()),
        what_median=float(np.median(seconds[:, -1])),
        against_median=float(np.median(seconds[:, 0])),
        unit="s",
        target=target,
        repeats=repeats,
        sizes=sizes,
    )


def _measure_copy(weights: F32, values: F32) -> None:
    """Measure all queries but the first, whose weights are not overwritten."""
    measure_queries(weights.copy(), values, np.zeros(weights.shape[1], np.int64))


def _repeat(call: Contender, times: int) -> None:
    """Call something so many times."""
    for _ in range(times):
        call()


def measure_growth_of_every_query(*, lengths: Sequence[int], head_dim: int, repeats: int) -> list[Result]:
    """The exponent of n in the time of all queries of one head on the grid of N."""
    calls = [partial(_measure_copy, *draw_queries(n, 1, head_dim)) for n in lengths]
    sizes = {"shortest": lengths[0], "longest": lengths[-1], "head_dim": head_dim}
    what = "all queries of one head on the grid of N"
    return [_fit_growth("selection.every_query.growth", what, calls, lengths, repeats, sizes, 3.05)]


def measure_every_query(*, lengths: Sequence[int], head_dim: int, repeats: int) -> list[Result]:
    """All queries of the heads of a KV group on the grid of N, against one bare product for each head."""
    results, heads = [], 3
    for n in lengths:
        weights, values = draw_queries(n, heads, head_dim)
        product = make_product(values[0])
        with limit_threads():
            seconds = alternate(
                partial(_measure_copy, weights, values),
                partial(_repeat, product, heads),
                repeats=repeats,
                clock=process_time,
            )
        results.append(
            compare(
                "selection.every_query",
                "cost",
                (f"all {n - 1} queries of {heads} heads on the grid of N, d = {head_dim}", seconds[:, 0]),
                (f"one float32 matrix product n x d x n for each of {heads} heads, one thread", seconds[:, 1]),
                sizes={"heads": heads, "n": n, "head_dim": head_dim},
                target=40.0,
            )
        )
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
