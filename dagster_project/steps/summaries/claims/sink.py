"""Claims about the sink's similarity and Recall over heads (Figure 6, Section 4.1, eq. 33)."""

import numpy as np

from dagster_project.steps.summaries.claims.parts import (
    CORRELATION,
    SHARE,
    SINK_TIMES,
    Estimated,
    Resampled,
    Statistics,
    count_groups,
)
from geometry.arrays import F64, I64
from geometry.statistics.resampling import LEAST_HEADS, NOTHING, compute_log_weights, correlation_over_heads

LEAST_SHARE = 0.5
"""Share of the heads that must have a sink for the study to say what sinks do."""

_LEVELS = ("recall", "excess", "r_min")
"""The quantities that are averaged over ln N, head by head."""


class Sink:
    """Correlations over heads of Recall, Precision and r_min with ρ_0, accumulated layer by layer.

    Heads that have a ρ_0 and attend to three keys or more are included. Memory: 56 · grid · (R + 1) bytes, and
    32 · (R + 1) per head.
    """

    def __init__(self, n: I64, statistics: Statistics) -> None:
        self._n, self._statistics = n, statistics
        replicates = statistics.resampling.replicates + 1
        self._sums = np.zeros((7, n.size, replicates))
        """Over heads: their number, weights, x, y, x², y², xy, with x the Recall minus 1/2 and y the ρ_0."""
        self._heads: dict[str, list[F64]] = {name: [] for name in (*_LEVELS, "rho_0", "weights", "sink_times")}
        self._groups: list[I64] = []
        self._last = 1

    def add(self, resampled: Resampled) -> None:
        """Add the heads of a layer."""
        layer, rho_0 = resampled.layer, resampled.compute_means(resampled.layer.rho_0)
        taking_part = ~np.isnan(rho_0[:, 0])
        if layer.n_keys < 3 or not taking_part.any():
            return
        weights = np.where(np.isnan(rho_0), 0.0, resampled.weights)
        y, size = np.nan_to_num(rho_0), layer.n.size
        for index in range(size):
            x = resampled.recall[:, index] - 0.5
            terms = (weights > 0, weights, weights * x, weights * y, weights * x * x, weights * y * y, weights * x * y)
            self._sums[:, index] += [term.sum(axis=0) for term in terms]
        relative = np.divide(layer.r_min, layer.norm_s, out=np.full_like(layer.r_min, np.nan), where=layer.norm_s > 0)
        levels = {"recall": resampled.recall, "excess": resampled.excess, "r_min": resampled.compute_means(relative)}
        found = {name: resampled.compute_level(means) for name, means in levels.items()}
        found |= {"rho_0": rho_0, "weights": weights, "sink_times": resampled.compute_means(layer.sink_times)[:, 0]}
        for name, values in found.items():
            self._heads[name].append(values[taking_part])
        self._groups.append(layer.groups[taking_part])
        self._last = max(self._last, layer.n_keys - 1)

    def estimate_claims(self) -> dict[str, Estimated]:
        """The claims by name."""
        if not self._groups:
            hidden = Estimated(NOTHING, reason="no head has a ρ_0: a window hides the sink, or it has no direction")
            return dict.fromkeys(("sink_raises_recall", "sink_effect_peaks_early", *_OF_LEVELS.values()), hidden)
        groups = np.concatenate(self._groups)
        heads = {name: np.concatenate(parts) for name, parts in self._heads.items()}
        has_sink = heads["sink_times"] >= SINK_TIMES
        premise = float(has_sink.mean())
        lacking = (
            f"position 0 gets {SINK_TIMES:g} times the uniform share in {int(has_sink.sum())} of {has_sink.size} heads"
        )
        correlations = self._compute_correlations()
        replicates = {
            "sink_raises_recall": (self._compute_positive_share(correlations), SHARE),
            "sink_effect_peaks_early": (self._find_peak(correlations), (2, self._last)),
        }
        replicates |= {
            claim: (correlation_over_heads(heads[level], heads["rho_0"], heads["weights"]), CORRELATION)
            for level, claim in _OF_LEVELS.items()
        }
        return {
            claim: Estimated(
                self._statistics.compute_interval(values, count_groups(groups), domain),
                rows=groups.size,
                clusters=count_groups(groups),
                premise=premise,
                reason=lacking if premise < LEAST_SHARE else None,
            )
            for claim, (values, domain) in replicates.items()
        }

    def _compute_correlations(self) -> F64:
        """Correlation of mean Recall and ρ_0 at every N, (grid, R + 1); NaN where there is none."""
        count, total, x, y, xx, yy, xy = self._sums
        each = np.maximum(total, 1)
        spread_x, spread_y = xx - x * x / each, yy - y * y / each
        known = (count >= LEAST_HEADS) & (spread_x > 1e-12 * xx) & (spread_y > 1e-12 * yy)
        scale = np.sqrt(np.where(known, spread_x * spread_y, 1))
        return np.where(known, np.clip((xy - x * y / each) / scale, -1, 1), np.nan)

    def _compute_positive_share(self, correlations: F64) -> F64:
        """Share of ln N, from N = 2 on, at which the correlation is above 0, among N that have one; (R + 1,)."""
        weights = compute_log_weights(self._n, 2, self._last)[:, None] * ~np.isnan(correlations)
        with np.errstate(invalid="ignore"):  # 0/0 where there is none
            share: F64 = (weights * (correlations > 0)).sum(axis=0) / weights.sum(axis=0)
        return share

    def _find_peak(self, correlations: F64) -> F64:
        """N from 2 on of the largest correlation, the smallest such N; (R + 1,)."""
        sought = np.where(np.isnan(correlations) | (self._n < 2)[:, None], -np.inf, correlations)
        return np.where(np.isfinite(sought).any(axis=0), self._n[sought.argmax(axis=0)], np.nan)


_OF_LEVELS = {
    "recall": "sink_predicts_recall",
    "excess": "sink_predicts_precision",
    "r_min": "sink_widens_r_min",
}
"""The claim that each level over ln N belongs to."""
