"""Claims about the model's mean curves: their elbow, where separability is weakest, and where Recall settles."""

from itertools import pairwise
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagster_project.steps.summaries.claims.parts import SHARE, Estimated, Resampled, Statistics, count_groups
from geometry.arrays import F64, I64
from geometry.statistics.resampling import compute_log_weights

BANDS = 3
"""Small, intermediate and large N: as many parts of equal length over ln N, from N = 2 to the last."""

DISTINGUISHABLE = (0.70, 0.85)
"""Share of the selected keys told apart, as reported for arXiv 2508.17821 (see ``distinguishable_share``)."""

_MEASURES = ("precision", "recall", "specificity")


class Separation:
    """Mean Precision, Recall and specificity over heads, layer by layer; every head counts alike.

    Memory: 32 · grid · (R + 1) bytes.
    """

    def __init__(self, n: I64, statistics: Statistics) -> None:
        self._n, self._statistics = n, statistics
        shape = (n.size, statistics.resampling.replicates + 1)
        self._sums = {measure: np.zeros(shape) for measure in _MEASURES}
        self._weights = np.zeros(shape)
        self._groups: list[I64] = []
        self._last = 1

    def add(self, resampled: Resampled) -> None:
        """Add the heads of a layer."""
        size = resampled.layer.n.size
        for measure, total in self._sums.items():
            total[:size] += (getattr(resampled, measure) * resampled.weights[:, None]).sum(axis=0)
        self._weights[:size] += resampled.weights.sum(axis=0)
        self._groups.append(resampled.layer.groups)
        self._last = max(self._last, resampled.layer.n_keys - 1)

    def compute_curve(self, measure: str) -> F64:
        """The mean over heads, (grid, R + 1); NaN where no head is drawn."""
        with np.errstate(invalid="ignore"):  # 0/0
            mean: F64 = self._sums[measure] / self._weights
        return mean

    def estimate_claims(self, connection: duckdb.DuckDBPyConnection) -> dict[str, Estimated]:
        """The claims by name.

        Parameters
        ----------
        connection
            A database with the macros of ``sql``.
        """
        groups = np.concatenate(self._groups) if self._groups else np.empty(0, np.int64)
        clusters = count_groups(groups)
        basis = {"rows": groups.size, "clusters": clusters}
        elbow, weakest, unsettled = self._find_elbows(connection), self._measure_weakest(), self._measure_settling()
        none, few = "the mean curve has no elbow", f"there are fewer than {BANDS} values of N from 2 on"
        return {
            "small_n_elbow": Estimated(
                self._statistics.compute_interval(elbow, clusters, (1, self._last)),
                **basis,
                reason=none if np.isnan(elbow[0]) else None,
            ),
            "intermediate_weakest": Estimated(
                self._statistics.compute_interval(weakest, clusters, (-1, 1)),
                **basis,
                reason=few if np.isnan(weakest[0]) else None,
            ),
            "distinguishable_share_settles": Estimated(
                self._statistics.compute_interval(unsettled, clusters, SHARE),
                **basis,
                reason=few if np.isnan(unsettled[0]) else None,
            ),
        }

    def _find_elbows(self, connection: duckdb.DuckDBPyConnection) -> F64:
        """N of the elbow of each replicate, (R + 1,); NaN where there is none."""
        replicates = self._weights.shape[1]
        n, replicate = (axis.ravel() for axis in np.indices((self._n.size, replicates)))
        alike, known = np.zeros(n.size, np.int32), self._weights.ravel() > 0
        columns: dict[str, NDArray[Any]] = {"query": alike, "layer": replicate.astype(np.int32), "head": alike}
        columns |= {"n": self._n[n], **{name: self.compute_curve(name).ravel() for name in ("precision", "recall")}}
        connection.register("resampled_curves", pa.table({name: column[known] for name, column in columns.items()}))
        found = connection.sql("SELECT layer, elbow_n FROM elbows_of(resampled_curves)").fetchnumpy()
        connection.unregister("resampled_curves")
        elbows = np.full(replicates, np.nan)
        elbows[found["layer"]] = np.ma.filled(np.ma.asarray(found["elbow_n"]).astype(np.float64), np.nan)
        return elbows

    def _measure_weakest(self) -> F64:
        """By how much the lower end exceeds the middle, for the one of specificity and Recall with the smaller excess.

        (R + 1,); the ends are the mean over ln N of the first and of the last band.
        """
        bands = [self._compute_band_means(measure) for measure in ("specificity", "recall")]
        return np.minimum(*(np.minimum(first, last) - middle for first, middle, last in bands))

    def _measure_settling(self) -> F64:
        """Largest distance of Recall from the middle of ``DISTINGUISHABLE`` in the middle and the last band, (R + 1,).

        Both bands count, since a curve that only passes through does not settle.
        """
        _, *settled = self._compute_band_means("recall")
        away: F64 = np.abs(np.stack(settled) - sum(DISTINGUISHABLE) / 2).max(axis=0)
        return away

    def _compute_band_means(self, measure: str) -> list[F64]:
        """Means over ln N of a curve in each of ``BANDS``, (R + 1,) each; NaN where there are too few N."""
        curve = self.compute_curve(measure)
        if self._last <= BANDS:
            return [np.full(curve.shape[1], np.nan)] * BANDS
        edges = np.exp(np.linspace(np.log(2), np.log(self._last), BANDS + 1))
        return [
            _compute_range_mean(self._n, curve, int(np.ceil(low)), int(np.floor(high))) for low, high in pairwise(edges)
        ]


def _compute_range_mean(n: I64, curve: F64, first: int, last: int) -> F64:
    """Mean over ln N of a curve from one N to another, (grid, R + 1) → (R + 1,); NaN without such an N."""
    if not ((n >= first) & (n <= last)).any():
        return np.full(curve.shape[1], np.nan)
    weights = compute_log_weights(n, first, last)[:, None]
    inside = weights[:, 0] > 0
    mean: F64 = (curve[inside] * weights[inside]).sum(axis=0)
    return mean
