"""Claims about the bounds of Theorems 1 and 2: their premise, how often they hold, and how far off they are (Figure 5).

κ is unknown, so a statement about a bound is judged, in every replicate, at the computed κ that favours it most.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from dagster_project.steps.summaries.claims.parts import (
    SHARE,
    Estimated,
    Layer,
    Pair,
    Resampled,
    Statistics,
    count_groups,
)
from geometry.arrays import F64, I64, Bool
from geometry.statistics.resampling import compute_log_weights

WIDEST = 0.9
"""Largest width of informative bounds: upper minus lower, as a share of the possible range."""

MOST = 0.5
"""The theorems apply to a head and N if Δ > 0 in more than this share of the sequences."""

_ROUNDING = 1e-6
"""Bounds are stored in float32 (as the SQL macro ``inside`` allows)."""

_METRICS = ("precision", "recall")


class Bounds:
    """The bounds of every head and of the model's means, layer by layer.

    Memory: 8 · (R + 1) · grid · (2 + 8 K) bytes, K the number of κ.
    """

    def __init__(self, n: I64, statistics: Statistics, kappas: Sequence[float], *, least: Mapping[str, int]) -> None:
        """``least`` is the number of rows that each claim needs: a κ with fewer is not considered."""
        self._n, self._statistics, self._least = n, statistics, least
        replicates = statistics.resampling.replicates + 1
        self._premise = np.zeros((2, replicates))
        """Over heads: share of ln N with Δ > 0, and weights."""
        self._covered = {kappa: np.zeros((2, 2, replicates)) for kappa in kappas}
        """By metric, over the rows that carry the claim: weight of those within their bounds, weight of all."""
        self._rows = {kappa: np.zeros(2, np.int64) for kappa in kappas}
        self._curves = {kappa: np.zeros((2, 3, n.size, replicates)) for kappa in kappas}
        """By metric, over heads: mean, lower and upper bound."""
        self._floors = np.zeros((2, n.size, replicates))
        self._weights = np.zeros((n.size, replicates))
        self._groups: list[I64] = []
        self._carrying: dict[float, list[list[I64]]] = {kappa: [[], []] for kappa in kappas}
        self._last = 1

    def add(self, resampled: Resampled) -> None:
        """Add the heads of a layer."""
        layer = resampled.layer
        if layer.n_keys < 3:
            return
        share = resampled.compute_means(np.where(np.isnan(layer.margin), np.nan, layer.margin > 0))
        level = resampled.compute_level(share)
        known = ~np.isnan(level) * resampled.weights
        self._premise += [(np.nan_to_num(level) * known).sum(axis=0), known.sum(axis=0)]
        bounded = ~np.isnan(share[..., 0])
        weights = resampled.weights[:, None] * bounded[..., None]
        size = layer.n.size
        self._weights[:size] += weights.sum(axis=0)
        floors = _compute_floors(layer)
        for metric, floor in enumerate(floors):
            self._floors[metric, :size] += floor[:, None] * weights.sum(axis=0)
        premised = (np.nan_to_num(share[..., 0]) > MOST) & (layer.n > 1)
        for kappa in self._covered:
            self._add_kappa(resampled, kappa, weights, premised)
        self._groups.append(layer.groups)
        self._last = max(self._last, layer.n_keys - 1)

    def _add_kappa(self, resampled: Resampled, kappa: float, weights: F64, premised: Bool) -> None:
        """Add the heads of a layer at one κ."""
        layer = resampled.layer
        for metric, floor in enumerate(_compute_floors(layer)):
            mean = getattr(resampled, _METRICS[metric])
            low, high = (resampled.compute_means(bounds[kappa][metric]) for bounds in (layer.lower, layer.upper))
            curves = self._curves[kappa][metric]
            for index, curve in enumerate((mean, low, high)):
                curves[index, : layer.n.size] += (np.nan_to_num(curve) * weights).sum(axis=0)
            carries = premised & _is_informative(low[..., 0], high[..., 0], floor)
            over_n = weights * (layer.over_n * carries)[..., None]
            self._covered[kappa][metric] += [
                (over_n * _is_within(mean, low, high)).sum(axis=(0, 1)),
                over_n.sum(axis=(0, 1)),
            ]
            self._rows[kappa][metric] += int(carries.sum())
            self._carrying[kappa][metric].append(layer.groups[carries.any(axis=1)])

    def estimate_claims(self) -> dict[str, Estimated]:
        """The claims by name."""
        groups = np.concatenate(self._groups) if self._groups else np.empty(0, np.int64)
        with np.errstate(invalid="ignore"):  # 0/0 where no head has bounds
            premise = self._premise[0] / self._premise[1]
        share = float(premise[0])
        clusters = count_groups(groups)
        interval = self._statistics.compute_interval(premise, clusters, SHARE)
        found = {"premise_holds": Estimated(interval, groups.size, clusters, share)}
        for metric, name in enumerate(_METRICS):
            found[f"{name}_covered"] = self._estimate_coverage(metric, share)
            found[f"{name}_enveloped"] = self._estimate_envelope(metric, share, groups)
        return found | self._estimate_distances(share, groups)

    def _estimate_coverage(self, metric: int, premise: float) -> Estimated:
        """Share of the (head, N) that carry the claim whose mean lies within its bounds."""
        name = f"{_METRICS[metric]}_covered"
        shares, rows = {}, {kappa: int(self._rows[kappa][metric]) for kappa in self._rows}
        for kappa, (inside, weight) in ((kappa, found[metric]) for kappa, found in self._covered.items()):
            with np.errstate(invalid="ignore"):  # 0/0 where nothing carries the claim
                shares[kappa] = inside / weight
        best = _select_best_kappa(shares, rows, self._least[name])
        clusters = count_groups(np.concatenate(self._carrying[best][metric])) if self._groups else 0
        return Estimated(
            self._statistics.compute_interval(_find_largest(shares, rows, self._least[name]), clusters, SHARE),
            rows=rows[best],
            clusters=clusters,
            premise=premise,
            reason=None if rows[best] else "no head has an N with informative bounds and Δ > 0 in most sequences",
        )

    def _estimate_envelope(self, metric: int, premise: float, groups: I64) -> Estimated:
        """Share of ln N, among N with informative bounds, at which the model's mean lies within its bounds."""
        name = f"{_METRICS[metric]}_enveloped"
        shares, rows = {}, {}
        for kappa in self._curves:
            (mean, low, high), floor = self._compute_model_means(kappa, metric)
            carries = (self._n > 1) & _is_informative(low[:, 0], high[:, 0], floor[:, 0])
            rows[kappa] = int(carries.sum())
            if rows[kappa]:
                weights = (compute_log_weights(self._n, 2, self._last) * carries)[:, None]
                shares[kappa] = (weights * _is_within(mean, low, high)).sum(axis=0) / weights.sum()
            else:
                shares[kappa] = np.full(mean.shape[1], np.nan)
        best = _select_best_kappa(shares, rows, self._least[name])
        return Estimated(
            self._statistics.compute_interval(
                _find_largest(shares, rows, self._least[name]), count_groups(groups), SHARE
            ),
            rows=rows[best],
            clusters=count_groups(groups),
            premise=premise,
            reason=None if rows[best] else f"the mean bounds leave out less than {1 - WIDEST:.0%} of what is possible",
        )

    def _estimate_distances(self, premise: float, groups: I64) -> dict[str, Estimated]:
        """How far the bounds are from the model's means, mean over ln N and over Precision and Recall."""
        uppers, excesses, rows, informative = {}, {}, {}, {}
        for kappa in self._curves:
            gaps = []
            carries = np.zeros(self._n.size, np.bool_)
            for metric in range(2):
                (mean, low, high), floor = self._compute_model_means(kappa, metric)
                gaps.append((high - mean, mean - low))
                carries |= _is_informative(low[:, 0], high[:, 0], floor[:, 0])
            above, below = (sum(parts) / 2 for parts in zip(*gaps, strict=True))
            known = (self._n > 1) & ~np.isnan(above[:, 0])
            rows[kappa], informative[kappa] = int(known.sum()), int((known & carries).sum())
            weights = (compute_log_weights(self._n, 2, max(2, self._last)) * known)[:, None] if known.any() else None
            uppers[kappa] = _compute_mean(np.abs(above), weights)
            excesses[kappa] = _compute_mean(below - np.abs(above), weights)
        tightest = {kappa: -values for kappa, values in uppers.items()}
        best, least = _select_best_kappa(tightest, rows, self._least["upper_tight"]), self._least["lower_conservative"]
        excess = _select_best_kappa(excesses, informative, least)
        clusters = count_groups(groups)
        return {
            "upper_tight": Estimated(
                self._statistics.compute_interval(
                    -_find_largest(tightest, rows, self._least["upper_tight"]), clusters, SHARE
                ),
                rows=rows[best],
                clusters=clusters,
                premise=premise,
                reason=None if rows[best] else "no head has bounds",
            ),
            "lower_conservative": Estimated(
                self._statistics.compute_interval(_find_largest(excesses, informative, least), clusters, (-1, 1)),
                rows=informative[excess],
                clusters=clusters,
                premise=premise,
                reason=None
                if informative[excess]
                else f"the mean bounds leave out less than {1 - WIDEST:.0%} of what is possible",
            ),
        }

    def _compute_model_means(self, kappa: float, metric: int) -> tuple[F64, F64]:
        """Mean over heads of the mean and of both bounds, (3, grid, R + 1), and of the floor, (grid, R + 1)."""
        with np.errstate(invalid="ignore"):  # 0/0 where no head has bounds
            return self._curves[kappa][metric] / self._weights, self._floors[metric] / self._weights


def _compute_floors(layer: Layer) -> Pair:
    """Smallest Precision and Recall that are possible with any geometry, (grid,)."""
    return layer.n / layer.n_keys, np.zeros(layer.n.size)


def _is_informative(low: F64, high: F64, floor: F64) -> Bool:
    """Whether bounds exclude at least a share 1 − ``WIDEST`` of the possible range; False where there are none."""
    with np.errstate(invalid="ignore"):
        narrow: Bool = high - np.maximum(low, floor) <= WIDEST * (1 - floor)
    return narrow


def _is_within(mean: F64, low: F64, high: F64) -> Bool:
    """Whether a mean lies within its bounds, up to their rounding."""
    with np.errstate(invalid="ignore"):
        inside: Bool = (mean >= low - _ROUNDING) & (mean <= high + _ROUNDING)
    return inside


def _compute_mean(curve: F64, weights: F64 | None) -> F64:
    """Weighted mean over the grid, (grid, R + 1) → (R + 1,); NaN without weights."""
    if weights is None:
        return np.full(curve.shape[1], np.nan)
    mean: F64 = (np.nan_to_num(curve) * weights).sum(axis=0) / weights.sum()
    return mean


def _select_best_kappa(values: Mapping[float, F64], rows: Mapping[float, int], least: int) -> float:
    """The κ with the largest value of those with enough rows; if there are none, the one with the most rows."""
    enough = [kappa for kappa in values if rows[kappa] >= least]
    return max(enough, key=lambda kappa: values[kappa][0]) if enough else max(rows, key=lambda kappa: rows[kappa])


def _find_largest(values: Mapping[float, F64], rows: Mapping[float, int], least: int) -> F64:
    """Find the largest value over the κ with enough rows, or that of the κ with most if there are none."""
    enough = [kappa for kappa in values if rows[kappa] >= least] or [_select_best_kappa(values, rows, least)]
    largest = np.stack([values[kappa] for kappa in enough])
    return np.where(np.isnan(largest).all(axis=0), np.nan, np.where(np.isnan(largest), -np.inf, largest).max(axis=0))
