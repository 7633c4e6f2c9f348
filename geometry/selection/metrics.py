"""Precision, Recall and the other metrics of a selection, averaged over sequences from its counts, or over ln N."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geometry.accelerate import compile_kernel, compile_sum_kernel
from geometry.arrays import F64
from geometry.bounds import lower
from geometry.grids import BANDS, compute_band_weights

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
    k_in: NDArray[np.integer],
    k_out: NDArray[np.integer],
    n_keys: int,
    mean: F64,
    squares: F64,
    over_heads: F64,
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
    parts: lower.Ingredients,
    unit: F64,
    n_keys: int,
) -> dict[str, F64]:
    """Means over ln N of every sequence and head of one layer, in one pass.

    Parameters
    ----------
    k_in, k_out
        Counts, integers (sequence, head, N), N from 1 to n − 1.
    r_min, norm_s
        Radius and ‖s_N‖, in the unit of the value states, (sequence, head, N).
    parts
        Ingredients of the margin, arrays (sequence, head, N).
    unit
        What the values are divided by for the margin, (sequence, head).
    n_keys
        n, the number of keys.

    Returns
    -------
    dict
        Float64 (sequence, head) each: Recall and specificity with each suffix of ``geometry.grids.BANDS``, and as
        ``LEVELS`` Precision's excess above N/n, r_min relative to ‖s_N‖, and the share of N with Δ > 0; over the N that
        have the quantity, NaN where none has.
    """
    names = ("a_min_in", "a_max_out", "s_in", "rho_out", "a_max_in")
    least, most, total, cosine, largest = (np.asarray(getattr(parts, name)) for name in names)
    weights, others = compute_band_weights(n_keys), np.zeros((len(LEVELS), *unit.shape))
    others[0], *banded = _average_counts(k_in, k_out, weights)
    _fill_levels(r_min, norm_s, least, most, total, cosine, largest, unit, weights[:, 0].copy(), others[1:])
    levels = dict(zip(LEVELS, others, strict=True))
    for name, of_bands in zip(BANDED, banded, strict=True):
        levels |= {f"{name}{band}": of_bands[..., index] for index, band in enumerate(BANDS)}
    return levels


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


_subtract_overlap: Any = compile_kernel(lower.subtract_overlap)


@compile_kernel
def _fill_levels(
    r_min: NDArray[np.floating],
    norm_s: NDArray[np.floating],
    least: NDArray[np.floating],
    most: NDArray[np.floating],
    total: NDArray[np.floating],
    cosine: NDArray[np.floating],
    largest: NDArray[np.floating],
    unit: F64,
    weights: F64,
    others: F64,
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
                outside, inside = np.float64(most[place]), np.float64(total[place])
                divisor = (largest[place] + outside + inside) * unit[sequence, head]
                margin = _subtract_overlap(np.float64(least[place]), outside, inside, np.float64(cosine[place]))
                if divisor > 0 and unit[sequence, head] > 0 and not np.isnan(margin):
                    bounded += weight
                    positive += weight * (margin / divisor > 0)
            others[0, sequence, head] = radius / long if long > 0 else np.nan
            others[1, sequence, head] = positive / bounded if bounded > 0 else np.nan
