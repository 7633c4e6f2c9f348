"""Changes over the layers of a model, beside what its layers would show in any other order.

The place of a step is chosen from the data, so the data cannot test it: with its layers in random order, most profiles
have a step whose interval over sequences excludes 0. The largest change of the mean profile, over all places of a step
and as a straight line, is therefore compared with the largest one of the layers in random order. Where a model has
layers of full and of local attention, layers are exchanged only with others of their kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import factorial, prod

import numpy as np
from numpy.typing import ArrayLike

from geometry.arrays import F64, I64, Bool
from geometry.statistics.arrangements import Arrangements
from geometry.statistics.intervals import RESOLUTION
from geometry.statistics.jackknife import leave_one_out
from geometry.statistics.moments import estimate_mean


@dataclass(frozen=True)
class Change:
    """How a quantity differs between the layers of a model."""

    first_half: F64
    """Mean over the first half of the layers, (S,); of an odd number, the middle one is in neither."""
    last_half: F64
    """Mean over the last half."""
    by_depth: Arrangements
    """The largest change with depth, beside that of layers in random order, each in a place of its kind."""
    step: int | None
    """First layer after a step, if the change is one: whichever sequence is left out, it is there and larger than any
    other change, and it predicts a sequence better than a straight line does, with the whole interval of R²."""
    full: F64 | None
    """Mean over the layers of full attention, (S,); None if all layers are of one kind."""
    local: F64 | None
    """Mean over the others."""
    by_kind: Arrangements | None
    """The difference of both, beside that of the kinds in random order."""
    kinds_explain_more: bool
    """Whether kinds explain more of the variance over layers than any change with depth."""


def measure_change(profiles: ArrayLike, full: ArrayLike, *, seed: int = 0) -> Change:
    """Measure how a quantity changes over layers.

    Parameters
    ----------
    profiles
        Means of every sequence and layer, (S, L) with S ≥ 2 and L ≥ 2, without NaN.
    full
        Whether each layer has full attention, (L,) bool.
    seed
        Seed of the random orders.
    """
    values, is_full = np.asarray(profiles, np.float64), np.asarray(full, np.bool_)
    mean, shapes, half = values.mean(axis=0), build_shapes(values.shape[1]), values.shape[1] // 2
    kinds = [np.flatnonzero(is_full == kind) for kind in np.unique(is_full)]
    mixed = len(kinds) > 1
    contrast = _scale(is_full.astype(np.float64)) if mixed else np.zeros(len(mean))
    return Change(
        values[:, :half].mean(axis=1),
        values[:, -half:].mean(axis=1),
        arrange_layers(_leave_out_kinds(mean, kinds), shapes, kinds, seed=seed),
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


def _leave_out_kinds(profile: F64, kinds: list[I64]) -> F64:
    """A profile less the mean of each kind of layer."""
    apart = profile.copy()
    for layers in kinds:
        apart[layers] -= profile[layers].mean()
    return apart


def arrange_layers(
    profile: ArrayLike, shapes: ArrayLike, kinds: Sequence[I64] | None = None, *, seed: int = 0
) -> Arrangements:
    """The largest rise, and the largest fall, of a profile by any shape, beside those of its layers in random order.

    Parameters
    ----------
    profile
        A number of each layer, (L,).
    shapes
        What a rise is: numbers of each layer with the sum 0, (L,) or of several shapes (shapes, L).
    kinds
        Layers that are exchanged with each other, of each kind; by default all.
    seed
        Seed of the random orders.
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
        ways *= float(factorial(len(layers)) // prod(factorial(int(count)) for count in alike))
    return ways


def _find_step(values: F64, shapes: F64) -> int | None:
    """First layer after the step of all profiles; None if it is not certain, or none."""
    others = leave_one_out(values)
    largest = np.abs(others @ shapes.T).argmax(axis=1)
    place, line = int(largest[0]), len(shapes) - 1
    if place == line or (largest != place).any():
        return None
    total = np.square(values - values.mean(axis=1, keepdims=True)).sum(axis=1)
    squares = [np.square(values - _predict(others, shapes[shape])).sum(axis=1) for shape in (place, line)]
    varies: Bool = total > 0
    gain = estimate_mean((squares[1][varies] - squares[0][varies]) / total[varies])
    return place + 1 if gain.low > 0 else None


def _predict(profiles: F64, shape: F64) -> F64:
    """The least squares of profiles by one shape and a constant, (S, L)."""
    predicted: F64 = profiles.mean(axis=1, keepdims=True) + np.outer(profiles @ shape, shape)
    return predicted
