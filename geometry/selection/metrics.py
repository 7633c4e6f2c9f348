"""Precision, Recall and the other metrics of a selection, averaged over sequences from its counts, or over ln N."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geometry.accelerate import compile_kernel, compile_sum_kernel
from geometry.arrays import F64
from geometry.grids import BANDS, compute_band_weights, fit_over_ln_n

METRICS = ("precision", "recall", "f_r_max", "f_r_min", "specificity", "precision_excess")
"""The metrics that are averaged, in the order of arrays."""


BANDED, LEVELS = ("recall", "specificity"), ("precision_excess", "r_min", "premise_share")
"""What is averaged over ln N: in every band, and over all N from 2 on."""


@dataclass(frozen=True)
class MetricMoments:
    """Metrics of some sequences; element i of the last axis belongs to N = i + 1."""

    sequences: int
    mean: F64
    """Mean over sequences, (metric, head, N)."""
    squares: F64
    """Sum over sequences of the squared differences to it, (metric, head, N)."""
    over_heads: F64
    """Sum over heads, (sequence, metric, N)."""


def average_metrics(k_in: NDArray[np.integer], k_out: NDArray[np.integer], n_keys: int) -> MetricMoments:
    """Average the metrics of the heads of one layer over sequences, in one pass over their counts.

    Definitions 1-3 and eq. 4 of the paper: P = N/(N + K_out), R = K_in/N, F = 2x/(1 + x) of each; specificity
    1 − K_out/(n − N), and Precision's excess (P − N/n)/(1 − N/n) above its floor.

    Parameters
    ----------
    k_in, k_out
        Counts, integers (sequence, head, N), N from 1 to n − 1.
    n_keys
        n, the number of keys.
    """
    sequences, heads, n = k_in.shape
    mean, squares = np.zeros((2, len(METRICS), heads, n))
    over_heads = np.zeros((sequences, len(METRICS), n))
    _sum_metrics(k_in, k_out, n_keys, mean, squares, over_heads)
    return MetricMoments(sequences, mean, squares, over_heads)


@compile_sum_kernel
def _sum_metrics(
    k_in: NDArray[np.integer], k_out: NDArray[np.integer], n_keys: int, mean: F64, squares: F64, over_heads: F64
) -> None:
    """Fill the arrays of ``MetricMoments``: running means and squares (Welford), and sums over heads."""
    sequences, heads, last = k_in.shape
    values = np.empty((len(METRICS), last))
    floor = np.arange(1, last + 1) / n_keys
    above, outside = 1 / (1 - floor), 1 / (n_keys - np.arange(1, last + 1))
    for head in range(heads):
        for sequence in range(sequences):
            for at in range(last):
                n, inside, beside = at + 1, k_in[sequence, head, at], k_out[sequence, head, at]
                values[0, at] = n / (n + beside)
                values[1, at] = inside / n
                values[2, at] = 2 * n / (2 * n + beside)
                values[3, at] = 2 * inside / (n + inside)
                values[4, at] = 1 - beside * outside[at]
                values[5, at] = (values[0, at] - floor[at]) * above[at]
            share = 1 / (sequence + 1)
            for metric in range(len(METRICS)):
                for at in range(last):
                    apart = values[metric, at] - mean[metric, head, at]
                    mean[metric, head, at] += apart * share
                    squares[metric, head, at] += apart * (values[metric, at] - mean[metric, head, at])
                    over_heads[sequence, metric, at] += values[metric, at]


def average_levels(
    k_in: NDArray[np.integer],
    k_out: NDArray[np.integer],
    r_min: NDArray[np.floating],
    norm_s: NDArray[np.floating],
    margin: F64,
    n_keys: int,
) -> dict[str, F64]:
    """Means over ln N of every sequence and head of one layer, in one pass.

    Parameters
    ----------
    k_in, k_out
        Counts, integers (sequence, head, N), N from 1 to n − 1.
    r_min, norm_s
        Radius and ‖s_N‖, in the unit of the value states, (sequence, head, N).
    margin
        Δ/B, (sequence, head, N); NaN where there is none (``geometry.bounds.lower.margin``).
    n_keys
        n, the number of keys.

    Returns
    -------
    dict
        Float64 (sequence, head) each: Recall and specificity with each suffix of ``geometry.grids.BANDS``, and as
        ``LEVELS`` Precision's excess above N/n, r_min relative to ‖s_N‖, and the share of N with Δ > 0; over the N that
        have the quantity, NaN where none has.
    """
    weights, others = compute_band_weights(n_keys), np.zeros((len(LEVELS), *r_min.shape[:2]))
    others[0], *banded = _average_counts(k_in, k_out, weights)
    _fill_levels(r_min, norm_s, margin, weights[:, 0].copy(), others[1:])
    levels = dict(zip(LEVELS, others, strict=True))
    for name, of_bands in zip(BANDED, banded, strict=True):
        levels |= {f"{name}{band}": of_bands[..., index] for index, band in enumerate(BANDS)}
    return levels


def follow_cosines(
    cos_sink: NDArray[np.floating], cos_last: NDArray[np.floating], a_0: NDArray[np.floating]
) -> dict[str, F64]:
    """The course over ln N of the cosines of s_N with the value states of the sink and of the last token.

    Parameters
    ----------
    cos_sink, cos_last
        Cosines, (…, N), N from 1 to n − 1; NaN where there is none.
    a_0
        Weighted norm of the sink, (…, N); NaN where it is not selected.

    Returns
    -------
    dict
        Float64 (…) each: ``cos_sink_max``, the largest where the sink is selected, and level and change of both
        (``geometry.grids.fit_over_ln_n``); NaN where there is none.
    """
    faced = np.where(np.isnan(a_0), np.nan, cos_sink)
    course = {"cos_sink_max": np.fmax.reduce(faced, axis=-1, initial=np.nan).astype(np.float64)}
    for name, cosines in (("cos_sink", cos_sink), ("cos_last", cos_last)):
        course[f"{name}_level"], course[f"{name}_change"] = fit_over_ln_n(cosines)
    return course


def _average_counts(k_in: NDArray[np.integer], k_out: NDArray[np.integer], weights: F64) -> tuple[F64, F64, F64]:
    """Means over ln N of Precision's excess, (sequence, head), and of Recall and specificity, (sequence, head, band).

    Products of matrices, since the latter are linear in the counts, and the excess in Precision.
    """
    n_keys = len(weights) + 1
    n = np.arange(1.0, n_keys)
    share = weights[:, 0] / (1 - n / n_keys)
    excess = (n / (n + k_out)) @ share - share @ (n / n_keys)
    recall = np.matmul(k_in, weights / n[:, None], dtype=np.float64)
    outside = np.matmul(k_out, weights / (n_keys - n)[:, None], dtype=np.float64)
    return excess, recall, weights.sum(axis=0) - outside


@compile_kernel
def _fill_levels(
    r_min: NDArray[np.floating], norm_s: NDArray[np.floating], margin: F64, weights: F64, others: F64
) -> None:
    """Fill the means of what not every N has, the relative radius and whether Δ > 0, (level, sequence, head)."""
    sequences, heads, last = r_min.shape
    for sequence in range(sequences):
        for head in range(heads):
            radius, positive, long, bounded = 0.0, 0.0, 0.0, 0.0
            for at in range(last):
                weight, place = weights[at], (sequence, head, at)
                length = np.float64(norm_s[place])
                if length > 0 and not np.isnan(r_min[place]):
                    long += weight
                    radius += r_min[place] / length * weight
                if not np.isnan(margin[place]):
                    bounded += weight
                    positive += weight * (margin[place] > 0)
            others[0, sequence, head] = radius / long if long > 0 else np.nan
            others[1, sequence, head] = positive / bounded if bounded > 0 else np.nan
