"""AUC of a head's selection, and its measures compared with those of two null models: the public functions.

Holds ``separation``, ``separability`` and the result type of the latter. What does not belong here: how the numbers are
computed (``geometry.separation.comparisons`` and ``geometry.separation.chance``) and files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geometry.arrays import F64, I64, Floats
from geometry.grids import choose_grid
from geometry.inputs import broadcast_lead, choose_device, convert_dtype, iterate_groups, read_heads
from geometry.selection.keys import compare_distances, distance
from geometry.separation.comparisons import MEASURES, arrange_keys, compare, compute_measures, count_selections, select
from geometry.separation.kernels import sort_by_distance

U64 = NDArray[np.uint64]

NULLS = ("random_selection", "shuffled_values")  # The nulls by name


def make_key(words: I64) -> U64:
    """The key of the generator for the words that identify a head, uint64 (2,); words: whole numbers ≥ 0, (words,)."""
    entropy = np.ascontiguousarray(words, np.uint64).view(np.uint32)  # a fixed number of them per word
    return np.asarray(np.random.SeedSequence(entropy).generate_state(2, np.uint64), np.uint64)


class Draws:
    """Draws of both nulls, from one generator that is set back for each: a new one takes five times as long."""

    def __init__(self) -> None:
        bits = np.random.Philox(0)
        self.generator, self.bits, self.start = np.random.Generator(bits), bits, bits.state

    def draw_order(self, key: U64, draw: int, n: int) -> I64:
        """A random order of n keys, (n,)."""
        return self.begin(key, "random_selection", draw).permutation(n)

    def shuffle_places(self, key: U64, draw: int, n: int, *, sink: bool) -> I64:
        """The position of the value state assigned to each of n positions, (n,); the last and the sink keep theirs."""
        places, movable = np.arange(n), slice(1 if sink else 0, n - 1)
        places[movable] = self.begin(key, "shuffled_values", draw).permutation(places[movable])
        return places

    def begin(self, key: U64, null: str, draw: int) -> np.random.Generator:
        """The generator at the beginning of a draw, until the next draw begins."""
        self.start["state"] = {"counter": np.array([0, 0, draw, NULLS.index(null)], np.uint64), "key": key}
        self.bits.state = self.start
        return self.generator


def separability_of_heads(
    weights: Floats, values: Floats, words: I64, sizes: I64, *, draws: int, sink: bool, place: str = "cpu"
) -> F64:
    """The measures of heads, and their means over the draws of each null, (1 + nulls, head, measure, grid).

    Of heads that share their value states: weights (head, n), values (n, d), words (head, words), sizes (grid,); means
    over no draws are NaN. place: as in ``geometry.separation.comparisons.Keys``.
    """
    keys, streams, drawn = arrange_keys(weights, values, place), [make_key(of_head) for of_head in words], Draws()
    heads, n = weights.shape
    measures = np.zeros((1 + len(NULLS), heads, len(MEASURES), len(sizes)))
    measures[0] = compute_measures(compare(keys, sizes), sizes, n)
    together = max(1, count_selections(n, len(sizes)) // heads)
    for first in range(0, draws, together):
        some = [(key, draw) for draw in range(first, min(first + together, draws)) for key in streams]
        orders = np.array([drawn.draw_order(key, draw, n) for key, draw in some])
        places = np.array([drawn.shuffle_places(key, draw, n, sink=sink) for key, draw in some])
        random = select(keys, sizes, orders, np.arange(len(some)) % heads)
        counts = compare(keys, sizes, random), compare(keys.shuffle(places), sizes)
        of_draws = compute_measures(np.concatenate(counts, axis=1), sizes, n)
        measures[1:] += of_draws.reshape(len(NULLS), -1, *measures.shape[1:]).sum(axis=1)
    measures[1:] = measures[1:] / draws if draws else np.nan
    return measures


__all__ = ["MEASURES", "NULLS", "Separability", "separability", "separation"]


@dataclass(frozen=True)
class Separability:
    """The measures of a selection, and their means over the draws of two null models, for every N of a grid.

    Arrays are float64 (…, measure, grid), leading axes as given, measures in the order of ``MEASURES``: P(r_max, N),
    R(r_min, N), F(r_max, N), F(r_min, N), specificity 1 − K_out/(n − N), and AUC(N).
    """

    n: I64
    """N, (grid,)."""
    observed: F64
    """Measures of the selection of the N largest weights."""
    random_selection: F64
    """Mean over draws: N random keys, with their own weights and value states. NaN without draws."""
    shuffled_values: F64
    """Mean over draws: the N largest weights, value states permuted at random among the keys except the sink
    and the last token. NaN without draws."""


def separation(
    weights: ArrayLike, values: ArrayLike, n: Sequence[int] | I64 | None = None, *, device: str | None = None
) -> F64:
    """AUC(N): the probability that a random selected key is nearer to s_N than a random key left out.

    AUC(N) = 1 − W/(N (n − N)) for n keys, where W is the number of pairs (i ∈ I_N, j ∉ I_N) with D_j < D_i and half of
    those with D_j = D_i, D_l = ‖s_N − y_l‖²; the double sum of eq. 22 counts ties fully. AUC is 1/2 if selection and
    distance are unrelated. A random selection has a larger AUC, because the selected keys are terms of s_N: compare
    with the AUC that ``separability`` gives for ``random_selection``.

    Parameters
    ----------
    weights
        Attention weights α of one query over the keys it may attend to, in order of position, (…, n), as for
        ``selection_profile``: a NumPy array or a PyTorch tensor.
    values
        Value states v of the same keys, (…, n, d). Leading axes broadcast against those of ``weights``.
    n
        N, ascending whole numbers from 1 to n − 1, (grid,); by default ``log_grid`` of the number of keys.
    device
        ``cuda`` or ``cuda:1`` to compute there, ``cpu`` to compute here; by default, where ``values`` are.

    Returns
    -------
    ndarray
        float64 (…, grid). Exact: 2 W is a whole number that equals a float64 evaluation of the definition, up to
        differences that float64 cannot resolve; keys of equal y are ties.

    Raises
    ------
    ValueError
        If ``n`` is not ascending within 1 to n − 1, or for the reasons given in ``selection_profile``.
    RuntimeError
        If ``device`` is a GPU that PyTorch cannot use.

    Notes
    -----
    O(grid · (n d + n log n)) per head, on one thread, with the memory of a tile for any number of heads. A GPU
    multiplies and sorts a tile at a time, in about as much of its own memory; what is O(grid · n) is computed on the
    CPU. Heads that share value states are computed together. Heads in which many keys of different y are equally far,
    up to float64 rounding, take up to O(grid · n² d).
    """
    return separability(weights, values, n, draws=0, seed=0, device=device).observed[..., -1, :]


def separability(
    weights: ArrayLike,
    values: ArrayLike,
    n: Sequence[int] | I64 | None = None,
    *,
    draws: int,
    seed: ArrayLike,
    sink: bool = True,
    device: str | None = None,
) -> Separability:
    """Precision, Recall, F, specificity and AUC on a grid of N, and their means under two null models.

    Parameters
    ----------
    weights, values, n, device
        As for ``separation``.
    draws
        Draws of each null, at least 0.
    seed
        Distinguishes the draws of different heads: a whole number ≥ 0, to which the index of the head along the leading
        axes is appended; or the words themselves, such as (seed, sequence, query, layer, head), whole numbers ≥ 0
        (…, words) whose leading axes broadcast against those of the heads. Draws depend only on the words, the null and
        the number of the draw, and are the same on every device.
    sink
        Whether the first key is position 0 of the sequence, whose value state is not shuffled. If a window hides
        position 0, only the value state of the last token is not shuffled.

    Returns
    -------
    Separability
        NumPy arrays (…, measure, grid), on every device.

    Raises
    ------
    ValueError
        If ``draws`` is negative, ``seed`` is not as described, or for the reasons given in ``separation``.
    RuntimeError
        If ``device`` is a GPU that PyTorch cannot use.

    Notes
    -----
    A draw costs about as much as ``separation``. Selections of one random draw are nested over N. Memory as for
    ``separation``.
    """
    if draws < 0:
        raise ValueError(f"draws must be at least 0, got {draws}")
    place = choose_device(weights, values, device)
    alpha, states = read_heads(weights, values)
    sizes, lead = choose_grid(n, alpha.shape[-1]), broadcast_lead(alpha, states)
    words = _build_words(seed, lead)
    words = words.reshape(-1, words.shape[-1])
    measures = np.empty((1 + len(NULLS), len(words), len(MEASURES), len(sizes)))
    for heads, rows, of_keys in iterate_groups(alpha, states):
        measures[:, heads] = separability_of_heads(
            rows, of_keys, words[heads], sizes, draws=draws, sink=sink, place=place
        )
    return Separability(sizes, *measures.reshape(1 + len(NULLS), *lead, len(MEASURES), len(sizes)))


def _build_words(seed: Any, lead: tuple[int, ...]) -> I64:
    """The words that identify each head, (*lead, words); a ValueError if the seed is not valid."""
    words = np.asarray(seed)
    if not np.issubdtype(words.dtype, np.integer) or (words < 0).any() or words.shape[-1:] == (0,):
        raise ValueError(f"seed must be whole numbers ≥ 0, got {seed!r}")
    if words.ndim == 0:
        index = np.indices(lead).reshape(len(lead), *lead)
        return np.stack([np.broadcast_to(words, lead), *index], axis=-1).astype(np.int64)
    try:
        return np.broadcast_to(words, (*lead, words.shape[-1])).astype(np.int64)
    except ValueError:
        raise ValueError(
            f"seed must have the shape (…, words) with leading axes that broadcast to {lead}, got {words.shape}"
        ) from None


@dataclass(frozen=True)
class SeparationCurve:
    """Precision and Recall of one selection within every radius about s_N at which they change (eq. 2, 3 and 32).

    Arrays are float64 (points,), one point for each distance at which there are keys, ascending; keys at equal
    distances make one point. At r_min Precision is not 1 as in eq. 4, because the closed ball contains a key left out.
    """

    radius: F64
    """r, in the unit of the values."""
    precision: F64
    """P(r, N), the share of selected keys among those within r (eq. 2)."""
    recall: F64
    """R(r, N) = F_in(r), the share of the selected keys that is within r (eq. 3, 32)."""
    false_positive_share: F64
    """The share of the keys left out that is within r."""
    auc: float
    """AUC(N), the area under Recall over the share of false positives, joined by straight lines starting at (0, 0)."""


def separation_curve(weights: ArrayLike, values: ArrayLike, n: int) -> SeparationCurve:
    """P(r, N), R(r, N) and the share of false positives of one head over all radii r, for one N.

    Parameters
    ----------
    weights
        Attention weights α of one query over the keys it may attend to, in order of position, (n,), as for
        ``selection_profile``.
    values
        Value states v of the same keys, (n, d).
    n
        N, from 1 to n − 1.

    Returns
    -------
    SeparationCurve
        ``auc`` is that of ``separation``. As there, keys are in exact order, and keys of equal y are equally far.

    Raises
    ------
    ValueError
        If ``weights`` has more than one axis, or for the reasons given in ``separation``.

    Notes
    -----
    O(n log n + n d).

    References
    ----------
    *Geometric Analysis of Token Selection in Multi-Head Attention*, arXiv 2602.01893, eq. 2, 3, 32.
    """
    alpha, states = read_heads(weights, values)
    if alpha.ndim != 1 or states.ndim != 2:
        raise ValueError(
            f"separation_curve takes one head, weights (n,) and values (n, d), got {alpha.shape} and {states.shape}"
        )
    auc = separation(alpha, states, [n])
    keys = arrange_keys(convert_dtype(alpha)[None], convert_dtype(states))
    y, s = keys.weigh(0), select(keys, np.array([n])).s[0, 0]
    order, ones = np.argsort(keys.a[0] ** 2 - 2 * (y @ s)), np.ones(len(alpha))
    sort_by_distance(order, s, y, ones)
    last = np.array([*(compare_distances(s, ones, y, *pair) < 0 for pair in pairwise(order)), True])
    selected, left_out = (np.cumsum(part)[last] for part in (order < n, order >= n))
    radius = np.array([distance(s, ones, y, key) for key in order[last]])
    return SeparationCurve(
        radius=np.maximum.accumulate(np.ldexp(radius, keys.exponent)),
        precision=selected / (selected + left_out),
        recall=selected / n,
        false_positive_share=left_out / (len(alpha) - n),
        auc=float(auc[0]),
    )
