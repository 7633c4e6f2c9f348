"""Means over sequences of the bounds of Precision, Recall and F: those printed for every κ, and the scale-free ones."""

from typing import Any

import numpy as np
import pyarrow as pa

from dagster_project.analysis.layer_means import LayerMeans
from dagster_project.analysis.passes import Block
from dagster_project.analysis.sources import Sources
from geometry.arrays import F64
from geometry.bounds.lower import LOWER, sum_lower_bounds
from geometry.statistics.intervals import Mean, average
from storage.warehouse.rows import build_batch, index_columns

SCORES = {"precision": "f_r_max", "recall": "f_r_min"}
"""The F-score that follows from each metric, where the other is 1 by convention (eq. 4, 16, 17)."""


class BoundMeans(LayerMeans):
    """The rows of ``bound_means``."""

    table = "bound_means"

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        self._kappas, self._scale = sources.study.analysis.kappas, sources.study.analysis.scale

    def measure(self, block: Block) -> dict[str, Mean]:
        """Means of one block: printed bounds (head, κ, N), all others (head, N)."""
        margin, of_sink = block.margins
        counts = (~np.isnan(margin)).sum(axis=0)
        means = {"margin": average(margin), "premise_share": Mean(counts, (margin > 0).sum(axis=0))}
        sums = sum_lower_bounds(margin, of_sink, n_keys=block.n_keys, head_dim=block.size.head_dim, kappas=self._kappas)
        means |= {name: Mean(counts[:, None], total) for name, total in zip(LOWER, sums, strict=True)}
        for metric, score in SCORES.items():
            upper = block.read(f"{metric}_upper").astype(np.float64)
            means |= {f"{metric}_upper": average(upper), f"{score}_upper": average(2 * upper / (1 + upper))}
            means[f"{metric}_scale_free"] = average(block.read(f"{metric}_lower_scale_free"))
        return means

    def build_rows(self, block: Block, means: dict[str, F64]) -> pa.RecordBatch:
        """The rows of a layer: of each head those of every κ, then the scale-free ones, by N."""
        precision, recall = (means.pop(f"{metric}_scale_free") for metric in SCORES)
        n = np.arange(1, block.n_keys)
        # F is concave in P, which is at least n / n_keys, so the chord from there to 1 lies below it; F is at least R
        chord = 1 - (1 - precision) * (block.n_keys / (block.n_keys + n))
        free = dict(zip(LOWER, (precision, recall, chord, recall), strict=True))
        shape = (block.size.heads, len(self._kappas) + 1, n.size)
        place = index_columns(shape, "head", "family", "n", query=block.query, layer=block.layer)
        place["n"] += 1
        families = place.pop("family")
        is_free = families == len(self._kappas)
        columns: dict[str, Any] = {}
        for name, mean in means.items():  # NULL where a family has no such bound
            joined = np.full(shape, np.nan)
            joined[:, :-1] = mean if mean.ndim == 3 else mean[:, None]
            joined[:, -1] = free.get(name, np.nan)
            columns[name] = joined.ravel()
        columns["kappa"] = pa.array(np.append(self._kappas, np.nan)[families], mask=is_free)
        columns["family"] = pa.DictionaryArray.from_arrays(is_free.astype(np.int8), ["printed", "scale_free"])
        columns["scale"] = pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(is_free.size, np.int8), mask=is_free), [self._scale]
        )
        return build_batch(place | columns)
