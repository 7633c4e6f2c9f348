"""Measures of a selection and their nulls, read slowly and literally, without any code of the product.

In rational arithmetic, which no rounding touches. What is arguable about a definition is a field of ``Reading``, so
that a test can put a wrong one in its place.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tests.geometry import oracle

MEASURES = ("precision", "recall", "f_r_max", "f_r_min", "specificity", "auc")


def generator(words: Sequence[int], null: int, draw: int) -> np.random.Generator:
    """Philox as ``separation.nulls`` documents it: words of 64 bits make the key, null and draw begin the counter."""
    halves = [half for word in words for half in (word & 0xFFFFFFFF, word >> 32)]
    key = np.random.SeedSequence(halves).generate_state(2, np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, draw, null]))


def random_keys(weights: np.ndarray, words: Sequence[int], draw: int) -> list[int]:
    """All keys in the order in which random selections take them."""
    falling = oracle.selected(weights, len(weights))
    return [falling[place] for place in generator(words, 0, draw).permutation(len(weights))]


def with_replacement(weights: np.ndarray, words: Sequence[int], draw: int) -> list[int]:
    """A wrong reading: keys may come twice."""
    return generator(words, 0, draw).integers(len(weights), size=len(weights)).tolist()


def shuffled(n: int, first: int, last: int, words: Sequence[int], draw: int) -> np.ndarray:
    """Which value state each position gets, if positions ``first`` to ``last`` − 1 change places."""
    return np.r_[:first, first + generator(words, 1, draw).permutation(last - first), last:n]


@dataclass(frozen=True)
class Reading:
    """How the definitions are read; the defaults are right."""

    tie: Fraction = Fraction(1, 2)  # What a pair of equally far keys adds to W
    closed: bool = True  # Whether a ball holds its surface
    order: Callable[[np.ndarray, Sequence[int], int], list[int]] = random_keys  # The order of random selections
    moves_sink: bool = False  # Whether the sink's value state is shuffled too
    moves_last: bool = False  # Whether the last token's is

    def places(self, n: int, words: Sequence[int], draw: int, *, sink: bool) -> np.ndarray:
        """Which value state each position gets."""
        return shuffled(n, int(sink and not self.moves_sink), n if self.moves_last else n - 1, words, draw)


RIGHT = Reading()


def of_distances(selected: list, left_out: list, reading: Reading = RIGHT) -> list[Fraction]:
    """The measures in order of ``MEASURES``, from what orders the distances of both kinds of keys."""
    size, others, nearest, farthest = len(selected), len(left_out), min(left_out), max(selected)
    k_in = sum(d <= nearest if reading.closed else d < nearest for d in selected)
    k_out = sum(d <= farthest if reading.closed else d < farthest for d in left_out)
    pairs = sum(Fraction(j < i) + reading.tie * (j == i) for i in selected for j in left_out)
    precision, recall = Fraction(size, size + k_out), Fraction(k_in, size)
    f_r_max, f_r_min = (2 * x / (1 + x) for x in (precision, recall))
    return [precision, recall, f_r_max, f_r_min, 1 - Fraction(k_out, others), 1 - pairs / (size * others)]


def of_selection(y: list[list], inside: list[int], reading: Reading = RIGHT) -> list[Fraction]:
    """The measures of a selection, in whatever arithmetic y is given in."""
    energy = oracle.energies(oracle.add([y[i] for i in inside]), y)
    outside = sorted(set(range(len(y))) - set(inside))
    return of_distances([energy[i] for i in inside], [energy[j] for j in outside], reading)


def observed(weights: np.ndarray, values: np.ndarray, sizes: Sequence[int], reading: Reading = RIGHT) -> np.ndarray:
    """The measures of the N largest weights, (measure, grid), rounded once."""
    y = oracle.rational(weights, values)
    return table(of_selection(y, oracle.selected(weights, size), reading) for size in sizes)


def table(rows: Sequence[list[Fraction]]) -> np.ndarray:
    """Rows of measures as (measure, grid) in float64."""
    return np.array([[float(measure) for measure in row] for row in rows]).T


def random_selection(
    weights: np.ndarray,
    values: np.ndarray,
    sizes: Sequence[int],
    words: Sequence[int],
    draws: int,
    reading: Reading = RIGHT,
) -> np.ndarray:
    """The mean over draws of the measures of N random keys, (measure, grid)."""
    y, drawn = oracle.rational(weights, values), []
    for draw in range(draws):
        order = reading.order(weights, words, draw)
        drawn.append(table(of_selection(y, order[:size], reading) for size in sizes))
    return np.mean(drawn, axis=0)


def shuffled_values(
    weights: np.ndarray,
    values: np.ndarray,
    sizes: Sequence[int],
    words: Sequence[int],
    draws: int,
    *,
    sink: bool = True,
    reading: Reading = RIGHT,
) -> np.ndarray:
    """The mean over draws of the measures of heads whose value states have changed places, (measure, grid)."""
    places = [reading.places(len(weights), words, draw, sink=sink) for draw in range(draws)]
    return np.mean([observed(weights, values[place], sizes, reading) for place in places], axis=0)
