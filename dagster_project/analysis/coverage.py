"""How often means lie within the bounds of Theorems 1 and 2, and how far from them, of all sequences and without each.

At the last query, on a log grid of N. The bounds are of expectations, so means are compared with mean bounds.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from dagster_project.analysis.passes import Block, Summary
from dagster_project.analysis.sources import Rows, Sources
from geometry.arrays import F64, I64, Bool
from geometry.bounds import lower
from geometry.grids import compute_log_weights, log_grid
from geometry.statistics.intervals import leave_one_out
from storage.warehouse.rows import build_batch

METRICS = ("precision", "recall")

WIDEST = 0.5
"""Largest width of informative bounds: upper minus lower, as a share of the possible range. Of numbers anywhere in the
range at most half lie within such bounds."""

LEAST_LOWER = 0.1  # Least share of the possible range that a lower bound leaves out if it says anything
MOST = 0.5  # The theorems apply to a head and N if Δ > 0 in more than this share of the sequences
ROUNDING = 1e-6  # Bounds are stored in float32 (as the SQL macro `inside` allows)


_Measured = tuple[F64, dict[tuple[float, str], F64]]
"""Whether Δ > 0, (S, head, N), and by κ and metric its value and bounds, NaN without bounds, (S, 3, head, N) each."""


class Coverage(Summary):
    """The rows of ``coverage_by_sequence``, of the last query: how the bounds hold, as means over ln N from 2 on.

    One layer on the grid, with its means without each sequence, is in memory.
    """

    def __init__(self, sources: Sources) -> None:
        self._query = sources.query
        self._kappas = sources.study.analysis.kappas
        self._parts: list[_Measured] = []
        sequences, self._grid = sources.metrics.sequences, log_grid(max(sources.query + 1, 2))
        self._heads = {(kappa, metric): _Sums(sequences, self._grid) for kappa in self._kappas for metric in METRICS}

    def measure(self, block: Block) -> _Measured | None:
        """Whether Δ > 0, and the curves of one block, on the grid; None of other queries."""
        if block.query != self._query:
            return None
        n = block.grid
        parts = lower.Ingredients(**{name: block.read(name)[..., n - 1] for name in lower.INGREDIENTS})
        unit = block.unit[..., None]
        margin = lower.margin(parts, unit)
        values = (n / (n + block.read("k_out")[..., n - 1]), block.read("k_in")[..., n - 1] / n)
        uppers = [block.read(f"{metric}_upper")[..., n - 1].astype(np.float64) for metric in METRICS]
        curves = {}
        for index, kappa in enumerate(self._kappas):
            lowers = lower.lower_bounds(
                parts, size=n, n_keys=block.n_keys, head_dim=block.size.head_dim, unit=unit, kappa=kappa
            )
            for at, metric in enumerate(METRICS):
                curves[kappa, metric] = np.stack([values[at], lowers[at], uppers[at][:, :, index]], axis=1)
        return np.where(np.isnan(margin), np.nan, margin > 0), curves

    def add(self, block: Block, measured: _Measured | None) -> Rows:
        """Add a layer, once all its sequences are there."""
        if measured is not None:
            self._parts.append(measured)
        if self._parts and block.is_last and block.n_keys > 2:
            positive = np.concatenate([premise for premise, _ in self._parts])
            applies = np.nan_to_num(positive.mean(axis=0)) > MOST
            for place, sums in self._heads.items():
                curves = np.concatenate([of_sequence[place] for _, of_sequence in self._parts])
                sums.add(_average(curves), applies, block.n_keys, place[1])
        if block.is_last:
            self._parts = []
        yield from ()

    def finish(self) -> Rows:
        """Yield the rows."""
        for (kappa, metric), sums in self._heads.items():
            columns = sums.build_columns()
            constant = {"kappa": np.full(len(columns["covered"]), kappa)}
            yield "coverage_by_sequence", build_batch(constant | columns, metric=metric)


@np.errstate(invalid="ignore")
def _is_within(mean: F64, low: F64, high: F64) -> Bool:
    """Whether means lie within their bounds, up to their rounding."""
    inside: Bool = (mean >= low - ROUNDING) & (mean <= high + ROUNDING)
    return inside


@np.errstate(invalid="ignore")
def _is_informative(low: F64, high: F64, floor: F64) -> Bool:
    """Whether bounds exclude at least a share 1 − ``WIDEST`` of the range from ``floor`` to 1."""
    narrow: Bool = high - np.maximum(low, floor) <= WIDEST * (1 - floor)
    return narrow


def _average(values: F64) -> F64:
    """The mean over sequences, then without each, (S, …) → (S + 1, …)."""
    return np.concatenate([values.mean(axis=0)[None], leave_one_out(values)])


class _Sums:
    """Sums over the heads of the model at one κ, of one metric: of all sequences, then without each."""

    def __init__(self, sequences: int, grid: I64) -> None:
        self._grid, self._last = grid, 2
        self._covered = np.zeros((2, sequences + 1))
        self._rows = 0
        self._curves = np.zeros((4, sequences + 1, grid.size))
        """Of the heads that have bounds: mean, lower and upper bound, and number."""
        self._floor = np.zeros(grid.size)

    def add(self, means: F64, applies: Bool, n_keys: int, metric: str) -> None:
        """Add the heads of a layer; means and bounds (S + 1, 3, head, N), whether the theorems apply (head, N)."""
        (mean, low, high), size = means.swapaxes(0, 1), means.shape[-1]
        n = self._grid[:size]
        floor = n / n_keys if metric == "precision" else np.zeros(size)
        carries = applies & (n > 1) & _is_informative(low[0], high[0], floor)
        weights = compute_log_weights(n, 2, n_keys - 1) * carries
        self._covered += [(weights * _is_within(mean, low, high)).sum(axis=(1, 2)), np.full(len(mean), weights.sum())]
        self._rows += int(carries.sum())
        bounded = ~np.isnan(low)
        for index, curve in enumerate((mean, low, high, bounded)):
            self._curves[index, :, :size] += np.where(bounded, curve, 0).sum(axis=1)
        self._floor[:size] += floor * bounded[0].sum(axis=0)
        self._last = max(self._last, n_keys - 1)

    def build_columns(self) -> dict[str, Any]:
        """Columns of ``coverage_by_sequence``; NaN where nothing carries a number."""
        with np.errstate(invalid="ignore", divide="ignore"):  # 0/0 where no head has bounds
            mean, low, high = (curve / self._curves[3] for curve in self._curves[:3])
            floor = self._floor / self._curves[3, 0]
            covered = self._covered[0] / self._covered[1]
        carries = (self._grid > 1) & _is_informative(low[0], high[0], floor)
        with np.errstate(invalid="ignore"):
            says = (self._grid > 1) & (low[0] - floor >= LEAST_LOWER * (1 - floor))
        over_n = compute_log_weights(self._grid, 2, self._last) if (self._grid > 1).any() else np.zeros(self._grid.size)
        sequences = len(mean) - 1
        return {
            "without_sequence": pa.array([None, *range(sequences)], pa.int32()),
            "covered": covered,
            "covered_rows": np.full(sequences + 1, self._rows, np.int32),
            "enveloped": _average_over_n(_is_within(mean, low, high), over_n * carries),
            "enveloped_rows": np.full(sequences + 1, int(carries.sum()), np.int32),
            "upper_distance": _average_over_n(np.abs(high - mean), over_n),
            "lower_excess": _average_over_n(mean - low - np.abs(high - mean), over_n * says),
            "lower_rows": np.full(sequences + 1, int(says.sum()), np.int32),
        }


def _average_over_n(curves: Any, weights: F64) -> F64:
    """Weighted means over N of those that have a value, (S + 1, N) → (S + 1,); NaN without one."""
    known = weights * ~np.isnan(curves)
    with np.errstate(invalid="ignore"):
        means: F64 = (np.nan_to_num(curves) * known).sum(axis=1) / known.sum(axis=1)
    return means
