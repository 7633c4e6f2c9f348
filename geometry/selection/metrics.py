"""Precision, Recall and the other metrics of a selection, averaged over sequences from its counts."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geometry.accelerate import compile_sum_kernel
from geometry.arrays import F64

METRICS = ("precision", "recall", "f_r_max", "f_r_min", "specificity", "precision_excess")
"""The metrics that are averaged, in the order of arrays."""


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
    for head in range(heads):
        for sequence in range(sequences):
            for at in range(last):
                n = at + 1
                precision = n / (n + k_out[sequence, head, at])
                recall = k_in[sequence, head, at] / n
                floor = n / n_keys
                values[0, at] = precision
                values[1, at] = recall
                values[2, at] = 2 * precision / (1 + precision)
                values[3, at] = 2 * recall / (1 + recall)
                values[4, at] = 1 - k_out[sequence, head, at] / (n_keys - n)
                values[5, at] = (precision - floor) / (1 - floor)
            share = 1 / (sequence + 1)
            for metric in range(len(METRICS)):
                for at in range(last):
                    apart = values[metric, at] - mean[metric, head, at]
                    mean[metric, head, at] += apart * share
                    squares[metric, head, at] += apart * (values[metric, at] - mean[metric, head, at])
                    over_heads[sequence, metric, at] += values[metric, at]
