"""How benchmarks are measured: contenders alternate in one process, and a figure is a median of ratios.

Holds the timing, ``Benchmark``, ``Result`` and the description of the machine.

The speed of a machine differs from that of others and changes during a measurement; ratios of times taken in succession
hardly do. Every figure is therefore the median over rounds of the ratio of two times taken in the same round.
"""

import os
import platform
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Quantity = Literal["cost", "speed", "exponent"]
"""cost: our time over theirs; speed: theirs over ours; exponent: growth of our time. Only speed is better if higher."""

Contender = Callable[[], object]

LIBRARIES = ("dask", "duckdb", "numba", "numpy", "pyarrow", "torch", "transformers", "zarr")


@dataclass(frozen=True)
class Result:
    """One figure: ``what`` compared with ``against``."""

    name: str
    kind: Quantity
    what: str
    against: str
    ratio: float
    """Median of the ratios of all rounds."""
    lowest: float
    highest: float
    """Smallest and largest ratio of a round: the uncertainty of the figure."""
    what_median: float
    against_median: float
    """Seconds."""
    target: float | None
    """What the ratio should reach (speed) or not exceed (cost, exponent)."""
    repeats: int
    sizes: dict[str, int]
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None if there is none."""
        if self.target is None:
            return None
        return self.ratio >= self.target if self.kind == "speed" else self.ratio <= self.target


@dataclass(frozen=True)
class Benchmark:
    """One benchmark in two sizes."""

    name: str
    full: Callable[[], list[Result]]
    small: Callable[[], list[Result]]
    """The same within seconds: tests that it works; its figures mean little."""
    missing: Callable[[], str | None] = lambda: None
    """Returns the requirement that this machine does not meet, or None."""


def alternate(
    *contenders: Contender, repeats: int, clock: Callable[[], float] = time.perf_counter
) -> NDArray[np.float64]:
    """Seconds each contender takes, (repeats, contenders).

    For contenders that run on one thread and do not access the disk, ``time.process_time`` is the fairer clock: it is
    stopped while another program uses the core. On an idle machine both clocks agree.

    Each contender runs once without measurement (compilation, caches). Then they alternate, in forward and reverse
    order, so that a machine that slows down or speeds up favours none.
    """
    for contender in contenders:
        contender()
    seconds = np.empty((repeats, len(contenders)))
    for row in range(repeats):
        order = range(len(contenders))
        for index in order if row % 2 == 0 else reversed(order):
            start = clock()
            contenders[index]()
            seconds[row, index] = clock() - start
    return seconds


def compare(
    name: str,
    kind: Literal["cost", "speed"],
    what: tuple[str, NDArray[np.float64]],
    against: tuple[str, NDArray[np.float64]],
    *,
    sizes: Mapping[str, int],
    target: float | None = None,
    note: str = "",
) -> Result:
    """The figure of two contenders, each a description and its seconds by round, (repeats,)."""
    ours, theirs = what[1], against[1]
    ratios = ours / theirs if kind == "cost" else theirs / ours
    return Result(
        name=name,
        kind=kind,
        what=what[0],
        against=against[0],
        ratio=float(np.median(ratios)),
        lowest=float(ratios.min()),
        highest=float(ratios.max()),
        what_median=float(np.median(ours)),
        against_median=float(np.median(theirs)),
        target=target,
        repeats=len(ratios),
        sizes=dict(sizes),
        note=note,
    )


def make_product(states: NDArray[np.float32], times: int = 1) -> Contender:
    """Float32 matrix products n x d x n of ``states`` (n, d) with their copy, into preallocated memory."""
    left, right, out = states.copy(), np.ascontiguousarray(states.T), np.empty((len(states),) * 2, np.float32)
    return lambda: [np.matmul(left, right, out=out) for _ in range(times)]


def describe_machine() -> dict[str, Any]:
    """Description of the machine: processor, cores, current load, versions; nothing that identifies it."""
    described = Path("/proc/cpuinfo")  # of Linux
    named = re.search(r"model name\s*:\s*(.*)", described.read_text(encoding="utf-8")) if described.exists() else None
    return {
        "cpu": named[1] if named else platform.processor() or "unknown",
        "cores": os.cpu_count() or 1,
        "load": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {"python": platform.python_version()} | {name: version(name) for name in LIBRARIES},
    }
