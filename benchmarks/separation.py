"""AUC and the nulls on a grid of N against one matrix product.

Holds the benchmarks ``separation.*``. Heads are those of ``benchmarks.heads``. All contenders run on one thread and
are measured in process time, but for ``separation.threads_*``: the same heads on two threads and on one, in seconds.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from time import process_time

import numpy as np

from benchmarks.heads import draw_head
from benchmarks.measure import Benchmark, Result, alternate, compare, make_product
from benchmarks.selection import limit_threads
from geometry.arrays import F64, I64
from geometry.grids import half_octave_grid, log_grid
from geometry.separation import comparisons
from geometry.separation.chance import Draws, make_key, separability, separation

HEADS = 64
"""Heads that are computed on two threads and on one."""


def make_grid(n: int, length: int) -> I64:
    """``length`` values of N, evenly spaced on a log axis: the coarsest ``log_grid`` with enough values, shortened."""
    grid = next(grid for points in count(2) if len(grid := log_grid(n, points)) >= length)
    return np.delete(grid, np.arange(length - 1, len(grid) - 1))


def compare_threads(*, sizes: Sequence[int], head_dim: int, repeats: int) -> list[Result]:
    """Separability of heads of few and of many keys on two threads, one BLAS thread each, against one."""
    results = []
    for n in sizes:
        measure = partial(separability, *draw_head(n, head_dim), half_octave_grid(n), draws=4)

        def run(threads: int, measure: Callable[..., object] = measure) -> None:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(lambda seed: measure(seed=seed), range(HEADS)))

        with limit_threads():
            seconds = alternate(partial(run, 2), partial(run, 1), repeats=repeats)
        two = (f"separability of {HEADS} heads of {n} keys, two threads", seconds[:, 0])
        one, given = ("one thread", seconds[:, 1]), {"n": n, "head_dim": head_dim}
        results.append(compare(f"separation.threads_{n}", "cost", two, one, sizes=given))
    return results


def compare_with_product(*, n: int, head_dim: int, length: int, repeats: int) -> list[Result]:
    """AUC of one head and one draw of each null, on a grid of N, against one float32 matrix product n x d x n."""
    weights, values = draw_head(n, head_dim)
    grid, key, keys = make_grid(n, length), make_key(np.array([0])), comparisons.arrange_keys(weights[None], values)
    places, of = Draws().shuffle_places(key, 0, n, sink=True)[None], np.zeros(1, np.int64)

    def measure(keys: comparisons.Keys, orders: I64 | None = None) -> F64:
        selections = comparisons.select(keys, grid, orders, of)
        return comparisons.compute_measures(comparisons.compare(keys, grid, selections), grid, n)

    with limit_threads():
        seconds = alternate(
            lambda: separation(weights, values, grid),
            lambda: measure(keys, Draws().draw_order(key, 0, n)[None]),
            lambda: measure(keys.shuffle(places)),
            make_product(values),
            repeats=repeats,
            clock=process_time,
        )
    against = ("one float32 matrix product n x d x n, one thread", seconds[:, -1])
    sizes = {"n": n, "head_dim": head_dim, "grid": len(grid)}
    contenders = (
        ("separation.auc", "separation of one head (AUC), one thread", 1.5),
        ("separation.random_selection", "six measures of one random selection of a head", 1.0),
        ("separation.shuffled_values", "six measures of a head whose value states are shuffled once", 1.0),
    )
    return [
        compare(name, "cost", (what, seconds[:, index]), against, sizes=sizes, target=target)
        for index, (name, what, target) in enumerate(contenders)
    ]


BENCHMARKS = (
    Benchmark(
        "separation.product",
        full=partial(compare_with_product, n=1024, head_dim=128, length=48, repeats=51),
        small=partial(compare_with_product, n=256, head_dim=64, length=24, repeats=5),
    ),
    Benchmark(
        "separation.threads",
        full=partial(compare_threads, sizes=(128, 256, 512, 1024, 2048), head_dim=64, repeats=7),
        small=partial(compare_threads, sizes=(16, 32), head_dim=8, repeats=3),
    ),
)
