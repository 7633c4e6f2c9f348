"""Null models: random selections and shuffled value states, drawn reproducibly, and their mean measures.

Holds the draws of the two null models, which are the same on every device, and their measures.
What does not belong here: checks of the input (``geometry.separation.chance``), and comparisons of pairs
(``geometry.separation.comparisons``).

- *random selection*: the N keys are the first N of a random order of all keys; y is unchanged. A draw uses one order
  for all N, so selections of one draw are nested, and each is a uniformly random subset.
- *shuffled values*: the weights, and so I_N, are unchanged; value states are permuted at random among the keys except
  the sink and the last token. The measures are those that the weights alone would give.

Draws come from Philox, a counter-based generator: its key is derived from the words that identify a head, and its
counter starts at the null and the number of the draw. A draw depends only on these and on the algorithm with which
NumPy draws permutations.
"""

import threading

import numpy as np
from numpy.typing import NDArray

from geometry.arrays import F64, I64, Floats
from geometry.separation.comparisons import (
    MEASURES,
    arrange_keys,
    compare,
    compute_measures,
    count_selections,
    select,
)

U64 = NDArray[np.uint64]

NULLS = ("random_selection", "shuffled_values")
"""The nulls by name."""


def make_key(words: I64) -> U64:
    """The key of the generator for the words that identify a head, uint64 (2,); words: whole numbers ≥ 0, (words,)."""
    entropy = np.ascontiguousarray(words, np.uint64).view(np.uint32)  # a fixed number of them per word
    return np.asarray(np.random.SeedSequence(entropy).generate_state(2, np.uint64), np.uint64)


def draw_order(key: U64, draw: int, n: int) -> I64:
    """A random order of n keys, (n,)."""
    return _STREAM.seek(key, "random_selection", draw).permutation(n)


def shuffle_places(key: U64, draw: int, n: int, *, sink: bool) -> I64:
    """The position of the value state assigned to each of n positions, (n,); the last and the sink keep theirs."""
    places, movable = np.arange(n), slice(1 if sink else 0, n - 1)
    places[movable] = _STREAM.seek(key, "shuffled_values", draw).permutation(places[movable])
    return places


class _Stream(threading.local):
    """A generator of each thread, which is set to where a draw begins: a new one takes ten times as long."""

    def __init__(self) -> None:
        self.generator = np.random.Generator(np.random.Philox(key=0))

    def seek(self, key: U64, null: str, draw: int) -> np.random.Generator:
        """The generator at the beginning of a draw."""
        place = {"counter": (0, 0, draw, NULLS.index(null)), "key": key}
        unused = {"buffer": (0,) * 4, "buffer_pos": 4, "has_uint32": 0, "uinteger": 0}
        self.generator.bit_generator.state = {"bit_generator": "Philox", "state": place} | unused
        return self.generator


_STREAM = _Stream()


def separability_of_heads(
    weights: Floats, values: Floats, words: I64, sizes: I64, *, draws: int, sink: bool, place: str = "cpu"
) -> F64:
    """The measures of heads, and their means over the draws of each null, (1 + nulls, head, measure, grid).

    Of heads that share their value states: weights (head, n), values (n, d), words (head, words), sizes (grid,); means
    over no draws are NaN. place: as in ``geometry.separation.comparisons.Keys``.
    """
    keys, streams = arrange_keys(weights, values, place), [make_key(of_head) for of_head in words]
    heads, n = weights.shape
    measures = np.zeros((1 + len(NULLS), heads, len(MEASURES), len(sizes)))
    measures[0] = compute_measures(compare(keys, sizes), sizes, n)
    together = max(1, count_selections(n, len(sizes)) // heads)
    for first in range(0, draws, together):
        some = [(key, draw) for draw in range(first, min(first + together, draws)) for key in streams]
        orders = np.array([draw_order(key, draw, n) for key, draw in some])
        places = np.array([shuffle_places(key, draw, n, sink=sink) for key, draw in some])
        random = select(keys, sizes, orders, np.arange(len(some)) % heads)
        counts = compare(keys, sizes, random), compare(keys.shuffle(places), sizes)
        of_draws = compute_measures(np.concatenate(counts, axis=1), sizes, n)
        measures[1:] += of_draws.reshape(len(NULLS), -1, *measures.shape[1:]).sum(axis=1)
    measures[1:] = measures[1:] / draws if draws else np.nan
    return measures
