"""Measures of selections compared with those of a null model: means over sequences, differences, and their intervals.

Holds the statistics for any measure and any null: of single heads, and of all heads of a model, added layer by layer.
What does not belong here: measures and nulls themselves (``geometry.separation.chance``), and the draws of sequences
and heads (``geometry.statistics.resampling``).

Differences are paired: a null is drawn for each sequence, query and head. Letters in shapes as in
``geometry.statistics.resampling``: S sequences, G clusters of heads, H heads, R replicates; … are the axes of the
measures.
"""

import math
from dataclasses import dataclass

import numpy as np

from geometry.arrays import F64, I64, Floats
from geometry.statistics.resampling import (
    LEAST_KNOWN,
    LEVEL,
    Resampling,
    estimate_means_bytes,
    percentile_ends,
    weighted_means,
)
from geometry.threads import one_blas_thread

DOMAIN = (-1.0, 1.0)
"""Range of differences of measures between 0 and 1."""


@dataclass(frozen=True)
class NullDifferences:
    """Means over sequences, or over sequences and heads; float64 arrays of one shape."""

    value: F64
    """Mean of the selections."""
    null_value: F64
    """Mean of the null; each sequence enters with the mean over its draws."""
    difference: F64
    """``value`` minus ``null_value``."""
    se: F64
    """Standard error of the difference over sequences (of a model: over sequences and clusters of heads); NaN for
    one sequence or cluster."""
    low: F64
    """Lower end of the difference's interval; NaN for one sequence or cluster."""
    high: F64
    """Upper end of the difference's interval."""


def head_differences(observed: Floats, null: Floats, drawn: F64, *, level: float = LEVEL) -> NullDifferences:
    """Differences of one head or several, with intervals over sequences (``percentile_ends``).

    Parameters
    ----------
    observed, null
        Measures of the selections and of the null, the latter as means over draws, from 0 to 1, without NaN, (S, …).
    drawn
        How often each sequence is drawn, (S, R + 1), as ``Resampling.sequences``.
    level
        Probability that an interval covers the true value.

    Returns
    -------
    NullDifferences
        Arrays (…).

    Raises
    ------
    ValueError
        If the number of sequences differs from that of ``drawn``.

    Notes
    -----
    Takes at most ``estimate_difference_bytes`` in addition to the arguments.
    """
    sequences = len(observed)
    value, null_value = (given.mean(axis=0, dtype=np.float64) for given in (observed, null))
    apart = np.subtract(observed, null, dtype=np.float64)
    spread = apart.std(axis=0, ddof=1) if sequences > 1 else np.full(apart.shape[1:], np.nan)
    low, high = percentile_ends(weighted_means(apart, drawn), units=sequences, level=level, domain=DOMAIN)
    return NullDifferences(value, null_value, value - null_value, spread / np.sqrt(sequences), low, high)


def estimate_difference_bytes(sequences: int, size: int, replicates: int) -> int:
    """Upper bound of the memory of ``head_differences`` of ``size`` measures without its arguments, in bytes."""
    return estimate_means_bytes(sequences, size, replicates) + 8 * size * (2 * sequences + 2 * replicates + 16)


class ModelDifferences:
    """Differences of the mean over all heads of a model, layer by layer, with intervals over sequences and KV groups.

    The mean at each index of the last axis is over the heads that have a measure there, equally weighted.

    Parameters
    ----------
    shape
        Shape of the measures of one head; along the last axis, heads may have fewer elements.
    resampling
        The draws of sequences and of clusters, which are the KV groups of all layers together, in order.
    """

    def __init__(self, shape: tuple[int, ...], resampling: Resampling) -> None:
        self._resampling = resampling
        self._clusters = 0
        self._sums: F64 = np.zeros((2, *shape))
        self._replicates: F64 = np.zeros((*shape, resampling.sequences.shape[1]))
        self._drawn: F64 = np.zeros((shape[-1], resampling.sequences.shape[1]))
        self.heads: I64 = np.zeros(shape[-1], np.int64)
        """Number of heads in the mean, (last axis,)."""

    def add(self, observed: F64, null: F64, heads: int) -> None:
        """Add the heads of a layer.

        Parameters
        ----------
        observed, null
            Sums over the heads of each cluster of the layer, (S, clusters of the layer, …), the last axis
            as long as that of the layer's heads.
        heads
            Heads in each cluster of the layer.

        Raises
        ------
        ValueError
            If there are more clusters than were drawn.
        """
        first, after = self._clusters, self._clusters + observed.shape[1]
        if after > len(self._resampling.clusters):
            msg = f"{after} clusters of heads were added, {len(self._resampling.clusters)} were drawn"
            raise ValueError(msg)
        drawn, reach = self._resampling.clusters[first:after], observed.shape[-1]
        sequences = self._resampling.sequences / len(observed)
        with one_blas_thread:
            for index, weights in enumerate(drawn):
                apart = observed[:, index] - null[:, index]
                self._replicates[..., :reach, :] += np.tensordot(apart, sequences * weights, axes=(0, 0))
        self._sums[0, ..., :reach] += observed.mean(axis=0).sum(axis=0)
        self._sums[1, ..., :reach] += null.mean(axis=0).sum(axis=0)
        self._drawn[:reach] += heads * drawn.sum(axis=0)
        self.heads[:reach] += heads * (after - first)
        self._clusters = after

    def compute_differences(self, *, level: float = LEVEL) -> NullDifferences:
        """The means over heads, of the given shape; NaN where there is no head.

        There is no interval where fewer than ``LEAST_KNOWN`` of the replicates draw one of the heads.
        """
        with np.errstate(invalid="ignore"):  # 0/0 where there is no head
            value, null_value = self._sums / self.heads
        units = self._resampling.units
        se, low, high = np.full((3, *value.shape), np.nan)
        for at, weights in enumerate(self._drawn):
            drawn = weights > 0
            if units < 2 or not drawn[0] or drawn.mean() < LEAST_KNOWN:
                continue
            replicates = self._replicates[..., at, drawn] / weights[drawn]
            low[..., at], high[..., at] = percentile_ends(replicates, units=units, level=level, domain=DOMAIN)
            se[..., at] = replicates[..., 1:].std(axis=-1) * math.sqrt(units / (units - 1))
        return NullDifferences(value, null_value, value - null_value, se, low, high)


def estimate_model_bytes(size: int, replicates: int) -> int:
    """Upper bound of the memory of a ``ModelDifferences`` of ``size`` measures, and of its result, in bytes."""
    return 8 * (3 * size + 64) * (replicates + 8)
