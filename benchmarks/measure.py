"""How everything here is measured: contenders take turns in one process, and a figure is a median of ratios.

Holds the timing, ``Benchmark``, ``Result`` and the description of the machine.

Speeds of machines differ and change while one measures, ratios of neighbours in time hardly do. So every figure is the
median over rounds of the ratio of two times taken in the same round; never a time of today against one of yesterday.
"""

import math
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["cost", "speed", "exponent"]
"""cost: our time over theirs; speed: theirs over ours; exponent: how our time grows. Of speed, more is better."""

Contender = Callable[[], object]

LIBRARIES = ("dask", "duckdb", "numba", "numpy", "pyarrow", "torch", "transformers", "zarr")


@dataclass(frozen=True)
class Result:
    """One figure: ``what`` against ``against``."""

    name: str
    kind: Kind
    what: str
    against: str
    ratio: float
    """Median of the ratios of all rounds."""
    lowest: float
    highest: float
    """Smallest and largest ratio of a round: how far to trust the figure."""
    what_median: float
    against_median: float
    unit: str
    """Of the two medians."""
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
    """One subject in its two sizes."""

    name: str
    full: Callable[[], list[Result]]
    small: Callable[[], list[Result]]
    """The same within seconds: shows that it works, its figures mean little."""
    missing: Callable[[], str | None] = lambda: None
    """What this machine lacks for it, if anything."""


def alternate(
    *contenders: Contender, repeats: int, clock: Callable[[], float] = time.perf_counter
) -> NDArray[np.float64]:
    """Seconds each contender takes, (repeats, contenders).

    For contenders that keep to one thread and touch no disk, ``time.process_time`` is the fairer clock: it stands still
    while another program has the core. On an idle machine both say the same.

    Each runs once unmeasured (compilation, caches). Then they take turns, forwards and backwards, so that a machine
    that slows down or speeds up favours none.
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
        unit="s",
        target=target,
        repeats=len(ratios),
        sizes=dict(sizes),
        note=note,
    )


def machine() -> dict[str, Any]:
    """What was measured on: processor, cores, load at this moment, versions; nothing that names the machine."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else math.nan
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 1,
        "load": None if math.isnan(load) else round(load, 2),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {"python": platform.python_version()} | {name: version(name) for name in LIBRARIES},
    }


def _cpu_model() -> str:
    """The processor's name as Linux has it, elsewhere as Python has it."""
    described = Path("/proc/cpuinfo")
    if described.exists():
        for line in described.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
