"""What the estimates of all claims share: the arrays of a layer, their resampling, and the record of an estimate."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from geometry.arrays import F64, I64
from geometry.statistics.resampling import Interval, Resampling, compute_log_weights, percentile_interval

SINK_TIMES = 10.0
"""Position 0 is a sink of a head if its weight is at least so many times the uniform share; a hundred in the paper."""

Pair = tuple[F64, F64]
"""An array for Precision and one for Recall."""


@dataclass(frozen=True)
class Layer:
    """The arrays of one layer that claims use: all sequences, at the last query.

    Arrays are float64 (S, H, grid) unless stated otherwise: sequences, heads, N of ``n``; NaN where there is no value.
    """

    number: int
    """Number of the layer."""
    groups: I64
    """Index of each head's KV group among those of the model, (H,)."""
    n_keys: int
    """Keys that the query attends to."""
    n: I64
    """N, ascending, the part of the model's grid below ``n_keys``, (grid,)."""
    k_in: F64
    k_out: F64
    r_min: F64
    norm_s: F64
    margin: F64
    """Δ/B in the scale of the bounds, with the sign of Δ."""
    lower: Mapping[float, Pair]
    """Lower bounds of Precision and Recall for each κ."""
    upper: Mapping[float, Pair]
    """Upper bounds for each κ."""
    rho_0: F64
    """ρ_0 of the keys attended to, (S, H)."""
    sink_times: F64
    """Weight of position 0 as a multiple of the uniform share 1/n, (S, H)."""
    value_norms: F64
    """Norms of the value states of each KV head at all positions, (S, KV, position)."""

    @property
    def kv_groups(self) -> I64:
        """Index of each KV head among the KV groups of the model, (KV,)."""
        first: I64 = self.groups.min() + np.arange(self.value_norms.shape[1])
        return first

    @cached_property
    def over_n(self) -> F64:
        """Weights by which ln N counts evenly from N = 2 on, (grid,); 0 for a layer of two keys or fewer."""
        if self.n_keys < 3:
            return np.zeros(self.n.size)
        return compute_log_weights(self.n, 2, self.n_keys - 1)


class Resampled:
    """Means over resampled sequences of the arrays of a layer, (H, grid, R + 1), each computed when first needed."""

    def __init__(self, layer: Layer, resampling: Resampling) -> None:
        self.layer, self._resampling = layer, resampling
        self.weights = resampling.count_head_draws(layer.groups)
        """How often each head is drawn, (H, R + 1)."""

    @cached_property
    def precision(self) -> F64:
        """Precision P(r_max, N)."""
        return self.compute_means(self.layer.n / (self.layer.n + self.layer.k_out))

    @cached_property
    def recall(self) -> F64:
        """Recall R(r_min, N)."""
        return self.compute_means(self.layer.k_in / self.layer.n)

    @cached_property
    def specificity(self) -> F64:
        """Share of the keys left out that are outside the ball of r_max."""
        return self.compute_means(1 - self.layer.k_out / (self.layer.n_keys - self.layer.n))

    @property
    def excess(self) -> F64:
        """Precision above its floor N/n, as a share of the possible range."""
        floor = (self.layer.n / self.layer.n_keys)[:, None]
        return (self.precision - floor) / (1 - floor)

    def compute_means(self, values: F64) -> F64:
        """Means over sequences, (S, …) → (…, R + 1)."""
        return self._resampling.means(values)

    def compute_level(self, means: F64) -> F64:
        """Means over ln N from N = 2 on, (H, grid, R + 1) → (H, R + 1); NaN where there is no such N."""
        weights = self.layer.over_n[:, None] * ~np.isnan(means)
        with np.errstate(invalid="ignore"):  # 0/0
            levels: F64 = (np.nan_to_num(means) * weights).sum(axis=1) / weights.sum(axis=1)
        return levels


@dataclass(frozen=True)
class Estimated:
    """The estimate of a claim from one study."""

    interval: Interval
    rows: int = 0
    """Number of rows behind the estimate, in the unit that ``paper_claims`` states."""
    clusters: int = 0
    """KV groups among them."""
    premise: float | None = None
    """The number by which the claim's premise is judged."""
    reason: str | None = None
    """Why the claim cannot be tested, if its premise does not hold; None if it does."""


@dataclass(frozen=True)
class Statistics:
    """The draws of a study, and simultaneous intervals."""

    resampling: Resampling
    family: int
    """How many claims there are."""

    def compute_interval(
        self, replicates: F64, clusters: int, domain: tuple[float, float] = (-math.inf, math.inf)
    ) -> Interval:
        """The interval of a statistic from its replicates, (R + 1,), and the number of KV groups behind it."""
        units = min(len(self.resampling.sequences), clusters)
        return percentile_interval(replicates, units=units, family=self.family, domain=domain)


SHARE = (0.0, 1.0)
"""Domain of a share."""

CORRELATION = (-1.0, 1.0)
"""Domain of a correlation."""


def count_groups(groups: NDArray[np.integer]) -> int:
    """Number of distinct KV groups of some heads."""
    return int(np.unique(groups).size)
