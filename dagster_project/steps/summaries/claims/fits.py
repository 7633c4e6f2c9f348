"""Claims about the fits of Assumptions 2 and 3 (Figures 3 and 4).

Fitting every replicate would take too long. Fits are repeated with one group of sequences, or of KV groups, left out at
a time, and intervals follow from these.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dagster_project.steps.cluster import run_in_parallel
from dagster_project.steps.summaries.claims.parts import Estimated, Statistics
from geometry.arrays import F64
from geometry.assumptions.decay import fit_decay
from geometry.assumptions.phases import PhaseFit, fit_phases
from geometry.statistics.resampling import (
    Interval,
    assign_groups,
    jackknife_interval,
    linearise,
    mean_over_heads,
    median_over_heads,
    percentile_interval,
    resample,
)
from storage.zarr.layers import list_attending_layers, read_layer

if TYPE_CHECKING:
    from storage.zarr.sequences import SequenceStore

LEAST_SIMILARITY = 0.1
"""Mean cosine of neighbours below which there is no similarity that could decay: zeros would fit such a curve."""

CURVES_PER_TASK = 16
"""Curves fitted by one task."""


@dataclass(frozen=True)
class Left:
    """Sums over groups of averaged quantities, so that any group can be left out."""

    total: F64
    """(groups, …)."""
    known: F64
    """Number of summands."""

    def compute_means(self) -> F64:
        """The mean of all, then without each group, (1 + groups, …); for a single group twice the same."""
        total, known = (_leave_each_out(part) for part in (self.total, self.known))
        means: F64 = np.divide(total, known, out=np.full(total.shape, np.nan), where=known > 0)
        return means


def _leave_each_out(part: F64) -> F64:
    """The sum over all groups, then without each, (1 + groups, …)."""
    whole = part.sum(axis=0, keepdims=True)
    return np.concatenate([whole, whole if len(part) == 1 else whole - part])


@dataclass(frozen=True)
class SimilarityFits:
    """Fits of Assumption 2 of every KV head: to all sequences, then without each group of them, (1 + groups, KV)."""

    neighbours: F64
    """Mean cosine at distance 1 over all sequences, (KV,)."""
    mae: F64
    """Mean absolute error of the exponential."""
    advantage: F64
    """By how much its BIC is below that of the form with a floor, for each independent distance."""


def fit_similarity(metrics: "SequenceStore") -> SimilarityFits:
    """The fits of a study; the curves of all KV heads, once per group of sequences, are in memory."""
    return fit_cosines(
        np.concatenate(
            [_sum_similarity(metrics, layer).compute_means() for layer in list_attending_layers(metrics)], axis=1
        )
    )


def fit_cosines(whole: F64) -> SimilarityFits:
    """The fits of mean cosines by distance: of all sequences, then without each group, (1 + groups, KV, distance)."""
    curves = whole.reshape(-1, whole.shape[-1])  # (1 + groups, KV, distance)
    starts = range(0, len(curves), CURVES_PER_TASK)
    found = run_in_parallel(partial(_fit_decays, curves[start : start + CURVES_PER_TASK]) for start in starts)
    mae, advantage = np.concatenate(found).T.reshape(2, *whole.shape[:2])
    return SimilarityFits(whole[0, :, 1], mae, advantage)


def _sum_similarity(metrics: "SequenceStore", layer: int) -> Left:
    """Sums of the mean cosines of one layer over groups of sequences, (groups, KV, distance)."""
    group = assign_groups(metrics.sizes["sequence"])
    shape = (int(group.max()) + 1, metrics.layers[layer].kv_heads, metrics.sizes["key"])
    total, known = np.zeros(shape), np.zeros(shape)
    for sequence, index in enumerate(group):
        curves = read_layer(metrics, "mean_cosine", layer, sequence=sequence).astype(np.float64)
        total[index] += np.nan_to_num(curves)
        known[index] += ~np.isnan(curves)
    return Left(total, known)


def _fit_decays(curves: F64) -> F64:
    """Error of the exponential, and its advantage, of each curve: (curve, 2)."""
    fits = [fit_decay(curve) for curve in curves]
    sign = {"exponential": 1.0, "floor": -1.0, None: math.nan}
    return np.array(
        [(fit.mae, sign[fit.preferred] * abs(fit.bic_floor - fit.bic) / fit.effective_points) for fit in fits]
    )


def estimate_similarity_claims(fits: SimilarityFits, statistics: Statistics) -> dict[str, Estimated]:
    """The claims about similarity by name, over the KV heads whose neighbours have a similarity that could decay."""
    similar = ~np.isnan(fits.mae).any(axis=0) & (np.nan_to_num(fits.neighbours) >= LEAST_SIMILARITY)
    drawn = resample(len(fits.mae) - 1, len(statistics.resampling.clusters), statistics.resampling.replicates)
    weights = drawn.count_head_draws(np.flatnonzero(similar))
    rows, premise = int(similar.sum()), float(similar.mean())
    lacking = f"neighbours have a mean cosine of {LEAST_SIMILARITY:g} in {rows} of {similar.size} KV heads"

    units = min(len(drawn.sequences), rows)

    def estimate(replicates: F64, domain: tuple[float, float]) -> Estimated:
        """The estimate of what is taken over these heads."""
        interval = percentile_interval(replicates, units=units, family=statistics.family, domain=domain)
        return Estimated(interval, rows, rows, premise, None if rows else lacking)

    mae, advantage = (linearise(of[0, similar], of[1:, similar], drawn.sequences) for of in (fits.mae, fits.advantage))
    return {
        "similarity_decays_exponentially": estimate(mean_over_heads(mae, weights), (0, np.inf)),
        "exponential_preferred": estimate(_compute_median(advantage, weights), (-np.inf, np.inf)),
    }


def _compute_median(values: F64, weights: F64) -> F64:
    """The median over heads, (R + 1,); NaN without heads."""
    return median_over_heads(values, weights) if len(values) else np.full(weights.shape[1], np.nan)


@dataclass(frozen=True)
class WeightFits:
    """Fits of Assumption 3 to the model's mean weights at the last query."""

    whole: PhaseFit
    without_sequences: tuple[PhaseFit, ...]
    """Without each group of sequences."""
    without_heads: tuple[PhaseFit, ...]
    """Without each group of KV groups."""
    heads: int
    """How many heads there are."""
    clusters: int
    """How many KV groups."""


def fit_weights(tensors: "SequenceStore") -> WeightFits:
    """The fits of a study; one layer of one sequence and about a hundred curves are in memory."""
    query, sizes = tensors.sizes["query"] - 1, tensors.layers
    last = int(tensors.read("query_position", 0)[-1])
    first = tensors.read("first_key", (slice(None), query)).max(axis=0)
    of_sequence = assign_groups(tensors.sizes["sequence"])
    clusters = sum(size.kv_heads for size in sizes)
    of_cluster = assign_groups(clusters)
    shape = (int(of_sequence.max()) + 1, int(of_cluster.max()) + 1, last + 1)
    total, known, begun = np.zeros(shape), np.zeros(shape), 0
    for layer in list_attending_layers(tensors):
        size, seen = sizes[layer], slice(int(first[layer]), last + 1)
        cluster = of_cluster[begun + np.arange(size.heads) // (size.heads // size.kv_heads)]
        begun += size.kv_heads
        for sequence, index in enumerate(of_sequence):
            weights = read_layer(tensors, "attention", layer, sequence=sequence, query=query, key=seen)
            np.add.at(total[index, :, seen], cluster, weights.astype(np.float64))
            np.add.at(known[index, :, seen], cluster, 1.0)
    return fit_mean_weights(total, known, heads=sum(size.heads for size in sizes), clusters=clusters)


def fit_mean_weights(total: F64, known: F64, *, heads: int, clusters: int) -> WeightFits:
    """The fits of mean weights by position.

    Parameters
    ----------
    total, known
        Sums of weights over groups of sequences and of KV groups, and how many were summed,
        (groups, groups, position).
    heads, clusters
        How many heads and KV groups there are.
    """
    by_sequence, by_head = (Left(total.sum(axis=axis), known.sum(axis=axis)).compute_means() for axis in (1, 0))
    fits = run_in_parallel(partial(_fit_phases, curve) for curve in (*by_sequence, *by_head[1:]))
    groups = len(by_sequence) - 1
    return WeightFits(fits[0], tuple(fits[1 : groups + 1]), tuple(fits[groups + 1 :]), heads, clusters)


def _fit_phases(curve: F64) -> PhaseFit:
    """``fit_phases`` of a curve that is NaN where a window hides the position."""
    first = int(np.isnan(curve).sum())
    return fit_phases(curve[first:], first=first)


def estimate_weight_claims(fits: WeightFits, statistics: Statistics) -> dict[str, Estimated]:
    """The claims about weights by name."""
    ratio = _estimate(fits, statistics, _compute_log_ratio)
    ends = (math.exp(end) for end in (ratio.interval.value, ratio.interval.low, ratio.interval.high))
    return {
        "sink_dominates": replace(ratio, interval=Interval(*ends)),
        "four_phases": _estimate(fits, statistics, _measure_oscillation),
        "phases_fit": _estimate(fits, statistics, lambda fit: fit.r2_log, (-math.inf, 1.0)),
    }


def _estimate(
    fits: WeightFits,
    statistics: Statistics,
    statistic: Callable[[PhaseFit], float],
    domain: tuple[float, float] = (-math.inf, math.inf),
) -> Estimated:
    """The estimate of one statistic of the fit."""
    left_out = ([statistic(fit) for fit in kind] for kind in (fits.without_sequences, fits.without_heads))
    interval = jackknife_interval(statistic(fits.whole), *left_out, family=statistics.family, domain=domain)
    reason = "the mean weights have no fit" if fits.whole.status != "ok" else None
    return Estimated(interval, fits.heads, fits.clusters, reason=reason)


def _compute_log_ratio(fit: PhaseFit) -> float:
    """Logarithm of the sink's weight over that of a plateau key; NaN without either."""
    return math.log(fit.p_sink / fit.p_base) if fit.p_sink > 0 and fit.p_base > 0 else math.nan


def _measure_oscillation(fit: PhaseFit) -> float:
    """By how much the smallest BIC of a variant that oscillates is below that of one that does not, per position.

    How many independent positions a fit is worth is itself uncertain, and scales both criteria alike.
    """
    without, oscillating = ((fit.bic_plateau, fit.bic_growth), (fit.bic_tied, fit.bic_untied))
    gain = min(without) - min(bic for bic in (*oscillating, math.inf) if not math.isnan(bic))
    return gain / fit.effective_points
