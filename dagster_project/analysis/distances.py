"""Distances of the selected keys from the rest, and how near weights are to uniform ones, with exponents in N and n.

The measurements of arXiv 2508.17821, of every head and of the model. Fits are to the model's mean curves.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dagster_project.analysis.layer_means import LayerMeans
from dagster_project.analysis.passes import Block
from dagster_project.analysis.sources import Rows, Sources
from geometry.arrays import F64, I64
from geometry.grids import log_grid
from geometry.limits import fit_exponents, random_subset_distance
from geometry.statistics.intervals import POSITIVE, Moments, average, estimate_mean
from storage.warehouse.rows import build_batch, build_listed, fill_columns

DISTANCES = ("relative_distance", "relative_random_distance")  # Columns of both distances over the norm of the output
CONVERGENCE = ("effective_share", "n_90_share")  # Measures of how near weights are to uniform ones


class Distances(LayerMeans):
    """The rows of ``distance_means``, ``distance_means_model``, ``convergence_model`` and ``limit_exponents``.

    Means over heads of every sequence, query and N are in memory, and for each head and N of one layer 32 bytes.
    """

    table, dtype = "distance_means", np.float32

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        self._spread = Moments()
        self._models = [_Model(self._sequences, query) for query in sources.queries]

    def measure(self, block: Block) -> tuple[F64, F64]:
        """``DISTANCES`` over ‖s_n‖ of one block, (sequence, 2, head, N), and ``CONVERGENCE``, (sequence, 2, head)."""
        output, contributions = (block.read(name)[..., None] for name in ("norm_output", "norm_contributions"))
        distance = block.read("distance_rest").astype(np.float64)
        size = np.arange(1, block.n_keys)
        random = random_subset_distance(output, contributions, size=size, n_keys=block.n_keys)
        relative = np.stack([distance, random], axis=1) / np.where(output > 0, output, np.nan)[:, None]
        shares = [block.read(name) / np.float64(block.n_keys) for name in ("effective_keys", "n_90")]
        return relative, np.stack(shares, axis=1)

    def add(self, block: Block, measured: Any) -> Rows:
        """Add a block to the model, and yield the rows of the layer, once all its sequences are there."""
        relative, shares = measured
        self._spread.add(shares)
        self._models[block.index].add(block, relative, shares)
        if block.is_last:
            self._models[block.index].spreads.append(self._spread.mean)
            self._spread = Moments()
        yield from super().add(block, {name: average(relative[:, index]) for index, name in enumerate(DISTANCES)})

    def finish(self) -> Rows:
        """Yield the rows of the model."""
        models = [model for model in self._models if model.heads.any()]
        for model in models:
            yield "distance_means_model", build_batch(model.build_distance_columns())
            yield "convergence_model", build_batch(model.build_convergence_columns())
        if models:
            yield "limit_exponents", build_listed("limit_exponents", _fit_model(models))


class _Model:
    """Means over the heads of the model at one query, of every sequence."""

    def __init__(self, sequences: int, query: int) -> None:
        self.query, self.n_keys = query, 0
        self.heads: I64 = np.zeros(query, np.int64)  # Number of heads that have an N, (N,)
        self.spreads: list[F64] = []  # `CONVERGENCE` of the heads of every layer, means over sequences, (2, head) each
        self._known: I64 = np.zeros((sequences, query), np.int64)
        self._distances: F64 = np.zeros((sequences, 2, query))
        self._convergence: F64 = np.zeros((sequences, len(CONVERGENCE)))

    def add(self, block: Block, relative: F64, convergence: F64) -> None:
        """Add the heads of a block."""
        self.n_keys = max(self.n_keys, block.n_keys)
        self._distances[block.sequences, :, : block.n_keys - 1] += np.nan_to_num(relative).sum(axis=2)
        self._known[block.sequences, : block.n_keys - 1] += (~np.isnan(relative[:, 0])).sum(axis=1)
        self._convergence[block.sequences] += convergence.sum(axis=2)
        if block.is_last:
            self.heads[: block.n_keys - 1] += block.size.heads

    @property
    def distances(self) -> F64:
        """Both distances of every sequence, (sequence, 2, N); NaN where no head has an output."""
        known = self._known[:, None]
        means: F64 = np.divide(self._distances, known, out=np.full(self._distances.shape, np.nan), where=known > 0)
        return means

    @property
    def convergence(self) -> F64:
        """``CONVERGENCE`` of every sequence, (sequence, 2)."""
        means: F64 = self._convergence / self.heads[0]
        return means

    def build_distance_columns(self) -> dict[str, Any]:
        """Columns of ``distance_means_model``."""
        seen = self.heads > 0
        estimate = estimate_mean(self.distances[..., seen].swapaxes(0, 1)[0], POSITIVE)
        return {
            **fill_columns(int(seen.sum()), query=self.query, sequences=len(self._distances)),
            "n": np.flatnonzero(seen).astype(np.int32) + 1,
            "heads": self.heads[seen].astype(np.int32),
            **estimate.name_ends("relative_distance"),
            "relative_random_distance": estimate_mean(self.distances[:, 1, seen]).value,
        }

    def build_convergence_columns(self) -> dict[str, Any]:
        """Columns of ``convergence_model``: means over heads, and the middle 80 % of the heads."""
        p10, p90 = np.quantile(np.concatenate(self.spreads, axis=1), (0.1, 0.9), axis=1)
        parts = {"": self.convergence.mean(axis=0), "_p10": p10, "_p90": p90}
        return {
            **fill_columns(1, query=self.query, heads=int(self.heads[0]), sequences=len(self._convergence)),
            **{
                f"{name}{end}": part[index : index + 1]
                for index, name in enumerate(CONVERGENCE)
                for end, part in parts.items()
            },
        }


def _fit_model(models: list[_Model]) -> Iterator[dict[str, Any]]:
    """Rows of ``limit_exponents``."""
    for model in models:
        n = log_grid(max(model.n_keys, 2))
        half = n[n <= max(1, model.n_keys // 2)]  # beyond, the distance grows again, up to ‖s_n‖ at N = n
        place = {"measure": "distance", "axis": "n", "query": model.query}
        yield place | _fit(half, model.distances[:, 0, half - 1])
    keys = np.array([model.n_keys for model in models])
    if len(np.unique(keys)) < 2:
        return
    for power in range(int(np.log2(keys.min() / 2)) + 1):
        n = 2**power
        at_n = np.stack([model.distances[:, 0, n - 1] for model in models], axis=1)
        yield {"measure": "distance", "axis": "n_keys", "n": n} | _fit(keys, at_n)
    for index, measure in enumerate(CONVERGENCE):
        shares = np.stack([model.convergence[:, index] for model in models], axis=1)
        yield {"measure": measure, "axis": "n_keys"} | _fit(keys, shares)


def _fit(x: I64, y: F64) -> dict[str, Any]:
    """The columns of a fit to the mean of curves, (sequence, point)."""
    fit = fit_exponents(x, y)
    columns = {"exponent": fit.exponent, "exponent_low": fit.low, "exponent_high": fit.high, "level": fit.level}
    return {"points": fit.points, **columns, "r2": fit.r2}
