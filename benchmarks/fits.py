"""The four-phase fits of many heads: against one descent by SciPy, and through Dask against a plain loop.

Holds the benchmarks ``fits.*``.
"""

import math
from collections.abc import Sequence
from functools import partial
from time import process_time
from typing import Any

import numpy as np
from dask.base import compute
from dask.delayed import delayed
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import least_squares

from benchmarks.measure import Benchmark, Contender, Result, alternate, compare
from geometry.assumptions.phases import PhaseFit, fit_phases

F64 = NDArray[np.float64]

WORKERS = 2

WAYS = {
    "threads": f"the same heads through Dask on {WORKERS} threads",
    "processes": f"the same heads through Dask on {WORKERS} processes, their start included",
}


def phase_curve(
    positions: ArrayLike,
    *,
    p_sink: float,
    p_base: float,
    eta: float,
    eta_growth: float,
    omega: float,
    t_1: int,
    t_2: int,
) -> F64:
    """The weight of Assumption 3 at absolute positions, float64; parameters of absent phases may be NaN.

    Without growth, ``eta_growth`` NaN, positions behind T_2 have the weight of the plateau.
    """
    x = np.asarray(positions, np.float64)
    content = np.where(x <= t_1, 1.0, 1.0 + eta * np.cos(omega * x))
    rate = 0.0 if math.isnan(eta_growth) else eta_growth
    growth = np.exp(rate * np.maximum(x - t_2, 0.0))
    curve: F64 = np.where(x == 0, p_sink, p_base * np.where(x > t_2, growth, content))
    return curve


def draw(heads: int, n: int) -> F64:
    """Mean weights by position (heads, n) of all four phases, with noise; three of four heads lack some phase."""
    rng = np.random.default_rng(0)
    rows = []
    for head in range(heads):
        t_2 = n - 1 if head % 4 == 0 else int(rng.uniform(0.6, 0.9) * n)
        curve = phase_curve(
            np.arange(n),
            p_sink=0.4,
            p_base=1e-4,
            eta=0.05 if head % 4 == 2 else rng.uniform(0.3, 0.9),
            eta_growth=3 / max(n - 1 - t_2, 1),
            omega=rng.uniform(0.1, 2),
            t_1=t_2 if head % 4 < 2 else n // 5,
            t_2=t_2,
        )
        rows.append(curve * np.exp(0.1 * rng.standard_normal(n)))
    return np.array(rows)


def fit_heads(weights: F64) -> list[PhaseFit]:
    """Fits of some heads, (heads, n), one after another."""
    return [fit_phases(weight) for weight in weights]


def fit_by_descent(weight: F64, t_1: int, t_2: int, start: Sequence[float]) -> Any:
    """SciPy's least squares of log p_base, η, ω and the rate of growth from one start, with given edges."""
    z, x = np.log(weight[1:]), np.arange(1, weight.size)
    inside, behind = (x > t_1) & (x <= t_2), np.maximum(x - t_2, 0)

    def compute_residual(theta: F64) -> F64:
        level, eta, omega, rate = theta
        curve: F64 = level + np.log1p(eta * np.cos(omega * x)) * inside + rate * behind - z
        return curve

    return least_squares(compute_residual, start, x_scale="jac")


def measure_head(*, n: int, repeats: int) -> list[Result]:
    """One head with all phases: every variant, all edges and starts, against one descent by SciPy."""
    t_1, t_2, eta, omega, growth = n // 5, 3 * n // 4, 0.5, 0.4, 3 / (n - 3 * n // 4)
    curve = phase_curve(
        np.arange(n), p_sink=0.4, p_base=1e-4, eta=eta, eta_growth=growth, omega=omega, t_1=t_1, t_2=t_2
    )
    weight = curve * np.exp(0.1 * np.random.default_rng(0).standard_normal(n))
    start = (np.log(1e-4) + 0.1, 0.9 * eta, omega + 0.1 / n, 1.1 * growth)
    seconds = alternate(
        lambda: fit_phases(weight),
        lambda: fit_by_descent(weight, t_1, t_2, start),
        repeats=repeats,
        clock=process_time,
    )
    every = ("fit_phases of one head: every variant, all T_1, T_2 and starts, one thread", seconds[:, 0])
    one = (
        "scipy.optimize.least_squares of it, started close to the planted parameters, T_1 and T_2 given",
        seconds[:, 1],
    )
    return [compare("fits.head", "cost", every, one, sizes={"n": n}, target=5.0)]


def measure_phases(*, heads: int, n: int, chunk: int, repeats: int, ways: Sequence[str] = tuple(WAYS)) -> list[Result]:
    """Every way of running the fits against the loop, in wall-clock time."""
    weights = draw(heads, n)
    tasks = [delayed(fit_heads)(weights[start : start + chunk]) for start in range(0, heads, chunk)]
    through: list[Contender] = [partial(compute, tasks, scheduler=way, num_workers=WORKERS) for way in ways]
    seconds = alternate(lambda: fit_heads(weights), *through, repeats=repeats)
    loop = ("fit_phases of every head in a loop", seconds[:, 0])
    sizes = {"heads": heads, "n": n, "chunk": chunk}
    return [
        compare(f"fits.{way}", "speed", (WAYS[way], seconds[:, 1 + index]), loop, sizes=sizes)
        for index, way in enumerate(ways)
    ]


BENCHMARKS = (
    Benchmark(
        "fits.head",
        full=partial(measure_head, n=512, repeats=51),
        small=partial(measure_head, n=128, repeats=3),
    ),
    Benchmark(
        "fits.phases",
        full=partial(measure_phases, heads=128, n=1024, chunk=8, repeats=3),
        small=partial(measure_phases, heads=8, n=128, chunk=2, repeats=2),
    ),
)
