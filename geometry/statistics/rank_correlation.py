"""Spearman's rank correlation over heads, with heads of one KV group as a cluster.

Holds ``rank_correlation``. Heads of a group read the same keys and value states and are not independent: intervals
resample groups, and permutations exchange whole groups. For correlations of means over sequences see
``geometry.statistics.bootstrap``.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geometry.arrays import F64

REPLICATES = 1000
"""Number of resamplings of the groups, and of permutations."""

LEVEL = 0.95
"""Share of the replicates that an interval contains."""

LEAST_HEADS = 3
"""Least number of heads of a correlation: that of two heads is always 1 or −1."""

LEAST_SHARE = 0.5
"""Share of the replicates that must have a correlation for there to be an interval."""


@dataclass(frozen=True)
class RankCorrelation:
    """A rank correlation over heads."""

    correlation: float
    """Spearman's, with mean ranks for ties; NaN for fewer than ``LEAST_HEADS`` heads, or where one side is constant."""
    low: float
    """Lower end of the 95 % percentile interval over resampled groups; NaN for one group, or if most replicates are."""
    high: float
    """Upper end of that interval."""
    p: float
    """Two-sided: share of permutations of groups, including the data, whose correlation is at least as far from 0."""
    heads: int
    """Number of heads that have both numbers."""
    groups: int
    """Number of their groups."""


def rank_correlation(
    x: ArrayLike, y: ArrayLike, groups: ArrayLike, *, replicates: int = REPLICATES, seed: int = 0
) -> RankCorrelation:
    """Spearman's rank correlation of two numbers of each head.

    Takes about 32 · replicates · heads bytes.

    Parameters
    ----------
    x, y
        Numbers of the heads, (heads,); heads for which either is NaN are left out.
    groups
        Number of each head's KV group, (heads,).
    replicates
        Number of resamplings, and of permutations.
    seed
        Seed of both.

    Raises
    ------
    ValueError
        If the shapes differ.
    """
    xs, ys, labels = np.asarray(x, np.float64), np.asarray(y, np.float64), np.asarray(groups)
    if xs.ndim != 1 or xs.shape != ys.shape or xs.shape != labels.shape:
        msg = f"x, y and groups must have the same length, got {xs.shape}, {ys.shape} and {labels.shape}"
        raise ValueError(msg)
    known = np.isfinite(xs) & np.isfinite(ys)
    xs, ys = xs[known], ys[known]
    members = [np.flatnonzero(labels[known] == label) for label in np.unique(labels[known])]
    found = float(_spearman(xs[None], ys[None])[0]) if xs.size >= LEAST_HEADS else np.nan
    if np.isnan(found):
        return RankCorrelation(np.nan, np.nan, np.nan, np.nan, int(xs.size), len(members))
    rng = np.random.default_rng(seed)
    low, high = _interval(xs, ys, members, replicates, rng)
    permuted = _spearman(np.stack([xs[_exchange_groups(members, rng)] for _ in range(replicates)]), ys[None])
    as_far = (np.abs(permuted) >= abs(found) - 1e-12).sum()
    return RankCorrelation(found, low, high, float((1 + as_far) / (1 + replicates)), int(xs.size), len(members))


def _spearman(x: F64, y: F64) -> F64:
    """Rank correlations along the last axis, (R, heads) or (1, heads) each; NaN where one side is constant."""
    from scipy.stats import rankdata  # imported here because it is slow to import

    ranks = [rankdata(part, axis=-1) for part in (x, y)]
    one, other = (part - part.mean(axis=-1, keepdims=True) for part in ranks)
    scale = np.sqrt((one**2).sum(axis=-1) * (other**2).sum(axis=-1))
    found: F64 = np.divide((one * other).sum(axis=-1), scale, out=np.full(scale.shape, np.nan), where=scale > 0)
    return found


def _interval(
    x: F64, y: F64, members: list[NDArray[np.int64]], replicates: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Percentiles of the correlations over resampled groups, which may be of different sizes."""
    if len(members) == 1:
        return np.nan, np.nan
    found = np.empty(replicates)
    for replicate in range(replicates):
        drawn = np.concatenate([members[group] for group in rng.integers(len(members), size=len(members))])
        found[replicate] = _spearman(x[None, drawn], y[None, drawn])[0]
    defined = found[~np.isnan(found)]
    if defined.size < LEAST_SHARE * replicates:
        return np.nan, np.nan
    low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _exchange_groups(members: list[NDArray[np.int64]], rng: np.random.Generator) -> NDArray[np.int64]:
    """Indices of the heads after a random permutation of groups of equal size."""
    index = np.empty(sum(map(len, members)), np.int64)
    for size in {len(group) for group in members}:
        alike = np.stack([group for group in members if len(group) == size])
        index[alike] = alike[rng.permutation(len(alike))]
    return index
