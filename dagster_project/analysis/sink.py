"""The correlation over heads of Recall and the sink's similarity (Section 4.1, Figure 6), for every query and N."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagster_project.analysis.passes import Block, Summary
from dagster_project.analysis.sources import Rows, Sources
from geometry.arrays import F64, I64
from geometry.grids import log_grid
from geometry.statistics.arrangements import LEAST_HEADS
from geometry.statistics.intervals import RESOLUTION, average_known, estimate_correlation, leave_one_out
from storage.warehouse.rows import build_batch, fill_columns


class SinkEffect(Summary):
    """The rows of ``sink_effect``: every query, on a log grid of N; depth moves both, so that it is shown, not judged.

    Recall of one layer on the grid is in memory, and sums over heads of its means without each sequence.
    """

    def __init__(self, sources: Sources) -> None:
        self._parts: list[tuple[F64, F64]] = []
        sequences = sources.metrics.sequences
        self._sums = {index: _Sums(sequences, query) for index, query in enumerate(sources.queries)}

    def measure(self, block: Block) -> tuple[F64, F64]:
        """Recall on the grid, (sequence, head, N), and ρ_0, (sequence, head)."""
        n = block.grid
        return block.read("k_in")[..., n - 1] / n, block.read("rho_0_of_keys").repeat(block.group, axis=1).astype(float)

    def add(self, block: Block, measured: tuple[F64, F64]) -> Rows:
        """Add a layer, once all its sequences are there."""
        self._parts.append(measured)
        if block.is_last:
            recall, rho_0 = (np.concatenate(of_all) for of_all in zip(*self._parts, strict=True))
            self._sums[block.index].add(recall, rho_0)
            self._parts = []
        yield from ()

    def finish(self) -> Rows:
        """Yield the rows of every query."""
        yield from (("sink_effect", sums.build_rows()) for sums in self._sums.values())


class _Sums:
    """Sums over heads at one query from which correlations follow: of all sequences, and without each."""

    def __init__(self, sequences: int, query: int) -> None:
        self._query, self._grid = query, log_grid(max(query + 1, 2))
        self.heads: I64 = np.zeros(self._grid.size, np.int64)
        self._sums: F64 = np.zeros((6, sequences + 1, self._grid.size))

    def add(self, recall: F64, rho_0: F64) -> None:
        """Add the heads that have a ρ_0 in some sequence."""
        seen = ~np.isnan(rho_0).all(axis=0)
        both = recall[:, seen], rho_0[:, seen, None]  # the latter at any N
        x, y = (np.concatenate([average_known(of)[None], leave_one_out(of)]) for of in both)
        known = ~(np.isnan(x) | np.isnan(y))
        x, y, size = np.where(known, x, 0), np.where(known, y, 0), x.shape[-1]
        for index, term in enumerate((known, x, y, x * x, y * y, x * y)):
            self._sums[index, :, :size] += term.sum(axis=1)
        self.heads[:size] += int(seen.sum())

    def build_rows(self) -> pa.RecordBatch:
        """The rows of ``sink_effect`` of the query."""
        whole, *left_out = _correlate_sums(self._sums)
        estimate = estimate_correlation(whole, left_out)
        columns: dict[str, NDArray[Any]] = {"n": self._grid.astype(np.int32), "heads": self.heads.astype(np.int32)}
        constant = fill_columns(self._grid.size, query=self._query, sequences=self._sums.shape[1] - 1)
        return build_batch(constant | columns | estimate.name_ends("correlation"))


def _correlate_sums(sums: F64) -> F64:
    """Pearson correlations from the number of heads and the sums of x, y, x², y² and xy; NaN where there is none."""
    count, x, y, xx, yy, xy = sums
    each = np.maximum(count, 1)
    spread_x, spread_y = xx - x * x / each, yy - y * y / each
    known = (count >= LEAST_HEADS) & (spread_x > RESOLUTION * xx) & (spread_y > RESOLUTION * yy)
    scale = np.sqrt(np.where(known, spread_x * spread_y, 1))
    return np.where(known, np.clip((xy - x * y / each) / scale, -1, 1), np.nan)
