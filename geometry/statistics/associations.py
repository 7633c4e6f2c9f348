"""Whether two quantities go together over the heads of a model, within its layers.

Both depend on depth in most models, so that their correlation over all heads says little. Each sequence gives one
correlation of the two, both minus their layer's mean. Sequences say how well it is known; exchanging the heads of whole
KV groups within their layers says how large it would be if the two were unrelated.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from geometry.arrays import F64, I64, Bool
from geometry.statistics.arrangements import Arrangements
from geometry.statistics.intervals import RESOLUTION
from geometry.statistics.jackknife import transform_fisher

LEAST_HEADS = 3
"""Least number of heads of a correlation: that of two heads is always 1 or −1."""


@dataclass(frozen=True)
class Association:
    """The correlation of two quantities over heads within layers."""

    of_sequences: F64
    """Fisher's z of each sequence, (S,); of a difference, that of both. NaN where a quantity does not vary."""
    arranged: Arrangements | None
    """The mean correlation beside those of KV groups in random places of their layers; None without one."""
    heads: int
    """Number of heads that have both quantities in every sequence."""

    @property
    def p(self) -> float:
        """The two-sided p value of the arrangements; NaN without a correlation."""
        if self.arranged is None:
            return math.nan
        return min(1.0, 2 * min(self.arranged.p(above=above) for above in (True, False)))


def associate(
    x: ArrayLike, y: ArrayLike, layers: ArrayLike, groups: ArrayLike, *, less: ArrayLike | None = None, seed: int = 0
) -> Association:
    """Correlate two quantities of heads within layers, sequence by sequence.

    Parameters
    ----------
    x, y
        Quantities of every sequence and head, (S, heads); heads that lack one in any sequence (NaN) are left out.
    layers, groups
        Layer and KV group of each head, (heads,). Groups are arranged within their layer, among those of equal size.
    less
        If given, another quantity like ``x``: the result is the correlation of x minus that of this one.
    seed
        Seed of the arrangements.

    Raises
    ------
    ValueError
        If the shapes disagree.
    """
    given = [np.asarray(values, np.float64) for values in (x, y, *([] if less is None else [less]))]
    places = [np.asarray(place, np.int64) for place in (layers, groups)]
    if given[0].ndim != 2 or any(values.shape != given[0].shape for values in given):
        msg = f"x, y and less must be of one shape (sequences, heads), got {[values.shape for values in given]}"
        raise ValueError(msg)
    if any(place.shape != given[0].shape[1:] for place in places):
        msg = f"layers and groups must have an element for each of {given[0].shape[1]} heads"
        raise ValueError(msg)
    known = np.all([np.isfinite(values).all(axis=0) for values in given], axis=0)
    layer, group = (place[known] for place in places)
    one, other, *subtracted = (_normalise(values[:, known], layer) for values in given)
    blocks = _find_blocks(layer, group)
    z, mean = _correlate(one, other), one
    if subtracted:
        z, mean = z - _correlate(subtracted[0], other), one - subtracted[0]
    defined = ~np.isnan(z)
    return Association(z, _arrange(mean[defined], other[defined], blocks, seed), int(known.sum()))


def rank_within(values: ArrayLike, layers: ArrayLike) -> F64:
    """Ranks of the heads among those of their layer, over their number, (S, heads); equal numbers share their ranks."""
    from scipy.stats import rankdata  # imported here because it is slow to import

    given, place = np.asarray(values, np.float64), np.asarray(layers)
    ranks = np.full(given.shape, np.nan)
    for layer in np.unique(place):
        own = place == layer
        ranks[:, own] = rankdata(given[:, own], axis=1, nan_policy="omit") / own.sum()
    return ranks


def correlate_heads(x: ArrayLike, y: ArrayLike) -> F64:
    """Pearson correlations over the heads that have both numbers, (…, heads) → (…).

    They are shown, never judged. NaN for fewer than ``LEAST_HEADS`` heads, or where a quantity is the same in all.
    """
    one, other = np.broadcast_arrays(np.asarray(x, np.float64), np.asarray(y, np.float64))
    known = ~(np.isnan(one) | np.isnan(other))
    apart = [_centre(np.where(known, values, 0.0), known) for values in (one, other)]
    scale = np.sqrt((apart[0] ** 2).sum(axis=-1)) * np.sqrt((apart[1] ** 2).sum(axis=-1))
    defined = (known.sum(axis=-1) >= LEAST_HEADS) & (scale > 0)
    products = (apart[0] * apart[1]).sum(axis=-1) / np.where(defined, scale, 1.0)
    return np.where(defined, np.clip(products, -1, 1), np.nan)


def _centre(values: F64, known: Bool) -> F64:
    """Differences to the mean over the last axis; 0 where all values are equal up to rounding."""
    count = np.maximum(known.sum(axis=-1, keepdims=True), 1)
    apart = np.where(known, values - values.sum(axis=-1, keepdims=True) / count, 0.0)
    size = np.abs(values).max(axis=-1, keepdims=True, initial=0.0)
    return np.where(np.abs(apart).max(axis=-1, keepdims=True, initial=0.0) > RESOLUTION * size, apart, 0.0)


def _normalise(values: F64, layer: I64) -> F64:
    """Differences to the mean of the layer, of length 1 in each sequence, (S, heads); 0 where nothing varies."""
    apart = np.zeros(values.shape)
    for number in np.unique(layer):
        own = layer == number
        apart[:, own] = _centre(values[:, own], np.ones((1, int(own.sum())), np.bool_))
    length = np.sqrt((apart**2).sum(axis=1, keepdims=True))
    scaled: F64 = np.divide(apart, length, out=np.zeros_like(apart), where=length > 0)
    return scaled


def _correlate(one: F64, other: F64) -> F64:
    """Fisher's z of each sequence, from two normalised quantities, (S, heads) → (S,); NaN where one is 0."""
    varies = one.any(axis=1) & other.any(axis=1) & (one.shape[1] >= LEAST_HEADS)
    return np.where(varies, transform_fisher((one * other).sum(axis=1)), np.nan)


def _find_blocks(layer: I64, group: I64) -> list[I64]:
    """Heads that may be exchanged: for every layer and size of group the heads of each such group, (groups, size)."""
    members: dict[tuple[int, int], list[I64]] = {}
    for number in np.unique(group):
        heads = np.flatnonzero(group == number)
        members.setdefault((int(layer[heads[0]]), heads.size), []).append(heads)
    return [np.stack(of_size) for of_size in members.values()]


def _arrange(one: F64, other: F64, blocks: list[I64], seed: int) -> Arrangements | None:
    """The correlation summed over sequences beside those of random arrangements; None if there is none.

    An arrangement π of the groups of a block contributes Σ_g A[g, π(g)], A[g, h] the product of the heads of g and h
    summed over sequences; so an arrangement costs as many sums as there are groups.
    """
    if not one.any() or not other.any():
        return None
    products = [np.einsum("sgk,shk->gh", one[:, block], other[:, block]) for block in blocks]
    observed = float(sum(np.trace(of_block) for of_block in products))
    slack = RESOLUTION * max(1.0, len(one))

    def count(rng: np.random.Generator, draws: int) -> tuple[int, int]:
        drawn = np.zeros(draws)
        for of_block in products:
            groups = np.arange(len(of_block))
            drawn += of_block[groups, rng.permuted(np.tile(groups, (draws, 1)), axis=1)].sum(axis=1)
        return int((drawn >= observed - slack).sum()), int((drawn <= observed + slack).sum())

    ways = float(np.prod([math.factorial(len(block)) for block in blocks], dtype=np.float64))
    return Arrangements(count, f"{sum(map(len, blocks)):,} KV groups", ways, seed)
