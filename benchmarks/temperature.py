"""Selections at several temperatures against counts at one, and the Jacobian's norm against a sort.

Holds the benchmarks ``temperature.*``. The cost of counts at one temperature is in ``benchmarks.selection``.
"""

from functools import partial
from time import process_time

import numpy as np

from benchmarks.heads import draw_head, draw_layer
from benchmarks.measure import Benchmark, Result, alternate, compare
from benchmarks.selection import limit_threads
from geometry import selection_counts
from geometry.limits.jacobian import jacobian_norm, sensitivity
from geometry.limits.temperature import TEMPERATURES
from geometry.limits.tempered import selection_by_temperature


def measure_temperatures(*, n: int, head_dim: int, repeats: int) -> list[Result]:
    """One head at five temperatures, with all measures, against its counts at T = 1."""
    weights, values = draw_head(n, head_dim)
    with limit_threads():
        seconds = alternate(
            lambda: selection_counts(weights, values),
            lambda: selection_by_temperature(weights, values),
            repeats=repeats,
            clock=process_time,
        )
    one = ("selection_counts of it, all N, one thread", seconds[:, 0])
    several = (
        f"selection_by_temperature of one head at {len(TEMPERATURES)} temperatures, on the log grid",
        seconds[:, 1],
    )
    return [
        compare("temperature.selections", "cost", several, one, sizes={"n": n, "head_dim": head_dim}, target=6.0),
    ]


def measure_norms(*, heads: int, n: int, repeats: int) -> list[Result]:
    """The norm of every head at one temperature and at five, against sorting its weights as the profile does."""
    weights, _ = draw_layer(np.random.default_rng(0), heads=heads, kv_heads=1, n=n, head_dim=1)
    with limit_threads():
        seconds = alternate(
            lambda: np.argsort(-weights, axis=-1, kind="stable"),
            lambda: jacobian_norm(weights),
            lambda: sensitivity(weights),
            repeats=repeats,
            clock=process_time,
        )
    sort = ("a stable argsort of their weights", seconds[:, 0])
    one = ("jacobian_norm of all heads, one thread", seconds[:, 1])
    several = (f"sensitivity of all heads at {len(TEMPERATURES)} temperatures", seconds[:, 2])
    sizes = {"heads": heads, "n": n}
    return [
        compare("temperature.norm", "cost", one, sort, sizes=sizes, target=1.5),
        compare("temperature.norms", "cost", several, sort, sizes=sizes, target=7.5),
    ]


BENCHMARKS = (
    Benchmark(
        "temperature.selections",
        full=partial(measure_temperatures, n=1024, head_dim=128, repeats=21),
        small=partial(measure_temperatures, n=128, head_dim=16, repeats=3),
    ),
    Benchmark(
        "temperature.norms",
        full=partial(measure_norms, heads=64, n=1024, repeats=21),
        small=partial(measure_norms, heads=8, n=128, repeats=3),
    ),
)
