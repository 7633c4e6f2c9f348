"""Counts at several temperatures against those at one.

Holds the benchmarks ``temperature.*``. What does not belong here: the cost of counts (``benchmarks.selection``).
"""

from functools import partial
from time import process_time

import numpy as np

from benchmarks.measure import Benchmark, Result, alternate, compare
from benchmarks.selection import draw, one_thread
from geometry import selection_counts
from geometry.temperature import TEMPERATURES, counts_by_temperature


def temperatures(*, n: int, head_dim: int, points: int, repeats: int) -> list[Result]:
    """One head at five temperatures, for all N and for a grid of N, against its counts as they are."""
    weights, values = draw(n, head_dim=head_dim)
    grid = np.unique(np.geomspace(1, n - 1, points).round().astype(int)).tolist()
    with one_thread():
        seconds = alternate(
            lambda: selection_counts(weights, values),
            lambda: counts_by_temperature(weights, values),
            lambda: counts_by_temperature(weights, values, n=grid),
            repeats=repeats,
            clock=process_time,
        )
    one = ("selection_counts of it, all N, one thread", seconds[:, 0])
    every = (f"counts_by_temperature of one head at {len(TEMPERATURES)} temperatures, all N", seconds[:, 1])
    some = (f"the same at a grid of {points} N", seconds[:, 2])
    sizes = {"n": n, "head_dim": head_dim}
    return [
        compare("temperature.counts", "cost", every, one, sizes=sizes, target=6.0),
        compare("temperature.grid", "cost", some, one, sizes=sizes | {"grid": len(grid)}, target=2.0),
    ]


BENCHMARK = Benchmark(
    "temperature.counts",
    full=partial(temperatures, n=1024, head_dim=128, points=48, repeats=21),
    small=partial(temperatures, n=128, head_dim=16, points=8, repeats=3),
)
