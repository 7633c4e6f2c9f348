"""Intervals over sequences, read slowly: Student's t by SciPy, and statistics computed again without each sequence."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np
from scipy import stats

Ends = tuple[float, float, float]
"""An estimate and the ends of its interval."""

LINE = (-np.inf, np.inf)
SHARE = (0.0, 1.0)
DIFFERENCE = (-1.0, 1.0)


def of_mean(numbers: Iterable[float], domain: tuple[float, float] = LINE) -> Ends:
    """The mean over sequences, and mean ± t · standard error, within the domain."""
    given = np.array([*numbers], np.float64)
    return _reach(float(given.mean()), float(stats.sem(given)), given.size, domain)


def of_statistic(statistic: Callable[[np.ndarray], float], sequences: int, domain: tuple[float, float] = LINE) -> Ends:
    """A statistic of numbered sequences with the jackknife's interval: computed again without each of them."""
    every = np.arange(sequences)
    left_out = np.array([statistic(every[every != sequence]) for sequence in every])
    error = np.sqrt((sequences - 1) / sequences * ((left_out - left_out.mean()) ** 2).sum())
    return _reach(statistic(every), float(error), sequences, domain)


@cache
def _find_t(degrees: int) -> float:
    return float(stats.t.ppf(0.975, degrees))


def _reach(value: float, error: float, sequences: int, domain: tuple[float, float]) -> Ends:
    reach = _find_t(sequences - 1) * error
    return value, max(value - reach, domain[0]), min(value + reach, domain[1])


def columns(name: str, ends: Ends) -> dict[str, float]:
    """The columns of an estimate."""
    return dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))


def near(row: dict[str, Any], wanted: dict[str, float], rel: float = 1e-5, abs_: float = 1e-9) -> bool:
    """Whether a row has these numbers, NULL where one is NaN."""
    found = [np.nan if row[name] is None else float(row[name]) for name in wanted]
    return np.allclose(found, [*wanted.values()], rtol=rel, atol=abs_, equal_nan=True)
