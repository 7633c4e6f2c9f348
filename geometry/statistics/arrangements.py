"""How large a statistic is beside those of things in random order, drawn until that decides.

Two quantities of heads are correlated within layers, sequence by sequence: both depend on depth in most models, so that
their correlation over all heads says little. Sequences say how well it is known; exchanging the heads of whole KV
groups within their layers says how large it would be if the two were unrelated.

The place of a step over layers is chosen from the data, so the data cannot test it: with layers in random order, most
profiles have a step whose interval over sequences excludes 0. The largest change of the mean profile, over all places
of a step and as a straight line, is therefore compared with that of layers in random order; layers of full and of local
attention are exchanged only with others of their kind.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import factorial
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from geometry.arrays import F64, I64, Bool
from geometry.statistics.intervals import RESOLUTION, estimate_mean, leave_one_out, transform_fisher

Count = Callable[[np.random.Generator, int], tuple[int, int]]
"""Draws so many arrangements and counts those whose statistic is as high as that of the data, and as low."""

End = Literal["value", "low", "high"]
"""A p value as estimated, or an end of the interval that its finite number of draws leaves it in."""

FIRST_DRAWS, MOST_DRAWS = 10_000, 1_000_000
"""Arrangements drawn at first, and at most; the p of an arrangement that none of the first reaches is 1/10,001."""

LUCK = 0.001
"""Probability with which the p value of all arrangements lies outside the interval that the drawn ones give."""


@dataclass
class Arrangements:
    """The p values of random arrangements; the data count as one of them (Phipson & Smyth 2010)."""

    count: Count
    what: str  # What is arranged, with its number, such as “9 KV groups”
    ways: float  # In how many ways that can be arranged; no p value of all of them is below 1/ways
    seed: int = 0
    draws: int = 0
    above: int = 0  # How many of the draws have a statistic as high
    below: int = 0  # How many have one as low

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        self.extend(FIRST_DRAWS)

    def extend(self, draws: int) -> None:
        """Draw so many more arrangements, ``FIRST_DRAWS`` at a time."""
        for start in range(0, draws, FIRST_DRAWS):
            block = min(FIRST_DRAWS, draws - start)
            above, below = self.count(self._rng, block)
            self.draws, self.above, self.below = self.draws + block, self.above + above, self.below + below

    def p(self, *, above: bool, end: End = "value") -> float:
        """The one-sided p value of a statistic as high, or as low, or an end of its Clopper-Pearson interval."""
        reached = self.above if above else self.below
        if end == "value":
            return (1 + reached) / (1 + self.draws)
        from scipy import special  # imported here because it is slow to import

        if end == "low":
            return float(special.betaincinv(reached, self.draws - reached + 1, LUCK / 2)) if reached else 0.0
        if reached == self.draws:
            return 1.0
        return float(special.betaincinv(reached + 1, self.draws - reached, 1 - LUCK / 2))


def settle(arrangements: Mapping[str, list[Arrangements]], decide: Callable[[End], Mapping[str, Any]]) -> None:
    """Draw arrangements until no decision depends on the luck of the draw, at most ``MOST_DRAWS`` of each.

    ``arrangements``: what each decision rests on, by its name; ``decide``: all decisions, by name, if every p value of
    arrangements were at that end of its interval.
    """
    while True:
        low, high = decide("low"), decide("high")
        doubtful = [one for name, of_name in arrangements.items() if low[name] != high[name] for one in of_name]
        short = [one for one in doubtful if one.draws < MOST_DRAWS]
        if not short:
            return
        for one in short:
            one.extend(min(3 * one.draws, MOST_DRAWS - one.draws))


FEW_GROUPS = 6
"""Up to so many groups of a block, the contributions of all their arrangements, 720, are listed and drawn from: the
claims of SmolLM2, with three groups to a layer, take 1.7 s less."""

LEAST_HEADS = 3  # Least number of heads of a correlation: that of two heads is always 1 or −1


@dataclass(frozen=True)
class Association:
    """The correlation of two quantities over heads within layers."""

    of_sequences: F64
    """Fisher's z of each sequence, (S,); of a difference, that of both. NaN where a quantity does not vary."""
    arranged: Arrangements | None
    """The mean correlation beside those of KV groups in random places of their layers; None without one."""
    heads: int  # Number of heads that have both quantities in every sequence

    @property
    def p(self) -> float:
        """The two-sided p value of the arrangements; NaN without a correlation."""
        if self.arranged is None:
            return math.nan
        return min(1.0, 2 * min(self.arranged.p(above=above) for above in (True, False)))


def associate(
    x: ArrayLike, y: ArrayLike, layers: ArrayLike, groups: ArrayLike, *, less: ArrayLike | None = None, seed: int = 0
) -> Association:
    """Correlate two quantities of heads within layers, sequence by sequence, (S, heads) each.

    Heads that lack one in any sequence (NaN) are left out. KV groups, (heads,), are arranged within their layer,
    (heads,), among those of equal size. With ``less``, another quantity like x, the result is the correlation of x
    minus that of it. A ValueError if the shapes disagree.
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
    summed over sequences; so an arrangement costs as many sums as there are groups, or one number of a few.
    """
    if not one.any() or not other.any():
        return None
    products = [np.einsum("sgk,shk->gh", one[:, block], other[:, block]) for block in blocks]
    observed = float(sum(np.trace(of_block) for of_block in products))
    slack = RESOLUTION * max(1.0, len(one))
    listed = [_list_contributions(of_block) if len(of_block) <= FEW_GROUPS else None for of_block in products]

    def count(rng: np.random.Generator, draws: int) -> tuple[int, int]:
        drawn = np.zeros(draws)
        for of_block, few in zip(products, listed, strict=True):
            if few is not None:
                drawn += few[rng.integers(few.size, size=draws)]
            else:
                groups = np.arange(len(of_block))
                drawn += of_block[groups, rng.permuted(np.tile(groups, (draws, 1)), axis=1)].sum(axis=1)
        return int((drawn >= observed - slack).sum()), int((drawn <= observed + slack).sum())

    ways = float(np.prod([factorial(len(block)) for block in blocks], dtype=np.float64))
    return Arrangements(count, f"{sum(map(len, blocks)):,} KV groups", ways, seed)


def _list_contributions(of_block: F64) -> F64:
    """What every arrangement of the groups of a block contributes, (ways,); of_block: A, (groups, groups)."""
    groups = np.arange(len(of_block))
    sums: F64 = of_block[groups, np.array(list(permutations(groups)))].sum(axis=1)
    return sums


@dataclass(frozen=True)
class Change:
    """How a quantity differs between the layers of a model."""

    first_half: F64  # Mean over the first half of the layers, (S,); of an odd number, the middle one is in neither
    last_half: F64  # Mean over the last half
    by_depth: Arrangements
    """The largest change with depth, beside that of layers in random order, each in a place of its kind."""
    step: int | None
    """First layer after a step, if the change is one: whichever sequence is left out, it is there and larger than any
    other change, and it predicts a sequence better than a straight line does, with the whole interval of R²."""
    full: F64 | None  # Mean over the layers of full attention, (S,); None if all layers are of one kind
    local: F64 | None  # Mean over the others
    by_kind: Arrangements | None  # The difference of both, beside that of the kinds in random order
    kinds_explain_more: bool  # Whether kinds explain more of the variance over layers than any change with depth


def measure_change(profiles: ArrayLike, full: ArrayLike, *, seed: int = 0) -> Change:
    """Measure how a quantity changes over layers: its means of every sequence and layer, (S, L), S and L ≥ 2, without
    NaN.

    ``full``: whether each layer has full attention, (L,).
    """
    values, is_full = np.asarray(profiles, np.float64), np.asarray(full, np.bool_)
    mean, shapes, half = values.mean(axis=0), build_shapes(values.shape[1]), values.shape[1] // 2
    kinds = [np.flatnonzero(is_full == kind) for kind in np.unique(is_full)]
    mixed = len(kinds) > 1
    contrast = _scale(is_full.astype(np.float64)) if mixed else np.zeros(len(mean))
    within_kinds = mean.copy()
    for layers in kinds:
        within_kinds[layers] -= mean[layers].mean()
    return Change(
        values[:, :half].mean(axis=1),
        values[:, -half:].mean(axis=1),
        arrange_layers(within_kinds, shapes, kinds, seed=seed),
        _find_step(values, shapes),
        values[:, is_full].mean(axis=1) if mixed else None,
        values[:, ~is_full].mean(axis=1) if mixed else None,
        arrange_layers(mean, contrast, seed=seed) if mixed else None,
        bool(abs(contrast @ mean) > np.abs(shapes @ mean).max()),
    )


def build_shapes(layers: int) -> F64:
    """Changes that rise with depth, (layers, layers): a step before each layer but the first, then a straight line.

    Each has mean 0 and length 1, so that its product with a profile is a correlation times the profile's spread.
    """
    along = np.arange(layers)
    steps = (along >= along[1:, None]).astype(np.float64)
    return np.stack([_scale(shape) for shape in (*steps, along.astype(np.float64))])


def _scale(shape: F64) -> F64:
    """A shape less its mean, of length 1."""
    apart = shape - shape.mean()
    scaled: F64 = apart / np.linalg.norm(apart)
    return scaled


def arrange_layers(
    profile: ArrayLike, shapes: ArrayLike, kinds: Sequence[I64] | None = None, *, seed: int = 0
) -> Arrangements:
    """The largest rise, and the largest fall, of a profile by any shape, beside those of its layers in random order.

    ``profile``: a number of each layer, (L,); ``shapes``: what a rise is, numbers of each layer with the sum 0, (L,) or
    (shapes, L); ``kinds``: layers that are exchanged with each other, by default all.
    """
    values, rises = np.asarray(profile, np.float64), np.atleast_2d(np.asarray(shapes, np.float64))
    places = [np.arange(len(values))] if kinds is None else kinds
    products = rises @ values
    slack = RESOLUTION * max(1.0, float(np.abs(products).max()))

    def count(rng: np.random.Generator, draws: int) -> tuple[int, int]:
        orders = np.empty((draws, len(values)), np.int64)
        for layers in places:
            orders[:, layers] = rng.permuted(np.tile(layers, (draws, 1)), axis=1)
        drawn = values[orders] @ rises.T
        above = drawn.max(axis=1) >= products.max() - slack
        below = drawn.min(axis=1) <= products.min() + slack
        return int(above.sum()), int(below.sum())

    return Arrangements(count, f"{len(values)} layers", _count_ways(rises, places), seed)


def _count_ways(shapes: F64, kinds: Sequence[I64]) -> float:
    """In how many ways layers can be ordered that some shape tells apart."""
    ways = 1.0
    for layers in kinds:
        alike = np.unique(shapes[:, layers].round(12), axis=1, return_counts=True)[1]
        ways *= float(factorial(len(layers)) // math.prod(factorial(int(count)) for count in alike))
    return ways


def _find_step(values: F64, shapes: F64) -> int | None:
    """First layer after the step of all profiles; None if it is not certain, or none."""
    others = leave_one_out(values)
    largest = np.abs(others @ shapes.T).argmax(axis=1)
    place, line = int(largest[0]), len(shapes) - 1
    if place == line or (largest != place).any():
        return None
    total = np.square(values - values.mean(axis=1, keepdims=True)).sum(axis=1)
    squares = []
    for shape in (shapes[place], shapes[line]):  # each sequence beside the least squares of the others
        predicted = others.mean(axis=1, keepdims=True) + np.outer(others @ shape, shape)
        squares.append(np.square(values - predicted).sum(axis=1))
    varies: Bool = total > 0
    gain = estimate_mean((squares[1][varies] - squares[0][varies]) / total[varies])
    return place + 1 if gain.low > 0 else None
