"""The keys of largest weight of each head, one by one: which they are, and how they stand to s_N.

Holds ``top_keys``. What does not belong here: numbers about all selected keys (``geometry.selection.profile``).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from geometry.accelerate import compile_kernel
from geometry.arrays import F64, I32, I64, Bool, Floats
from geometry.inputs import broadcast_lead, convert_dtype, iterate_heads, read_heads
from geometry.quantities import TOP_KEYS
from geometry.selection.keys import add_key, compare_distances, distance, inner, length, scale_states, sort_keys

SURELY = 1 - 1e-9
"""Factor by which a bound must be beaten for a key to be left out of a search without its distance: above rounding."""


@dataclass(frozen=True)
class TopKeys:
    """The K keys of largest weight of each head, in order of falling weight; arrays (…, K)."""

    key: I32
    """Index of the key among those attended to."""
    weight: F64
    """Its weight α."""
    contribution: F64
    """‖α v‖, in model units."""
    relative_distance: F64
    """‖s_N − α v‖ / ‖s_N‖; NaN if s_N is 0."""
    within_r_min: Bool
    """Whether it is one of the N selected keys and no farther from s_N than every other key; False if N = n."""
    within_r_min_at: Bool
    """The same for N from 1 to K, (…, K, K): the last axis is N − 1."""


def top_keys(weights: ArrayLike, values: ArrayLike, *, n: int, count: int = TOP_KEYS) -> TopKeys:
    """The keys of largest weight of each head, their contributions, and their distances from s_N.

    Parameters
    ----------
    weights
        Attention weights α of one query over the keys it may attend to, in order of position, (…, n_keys). A NumPy
        array, but not a masked array, or a PyTorch tensor.
    values
        Value states v of the same keys, (…, n_keys, d). Leading axes broadcast against those of ``weights``.
    n
        N of s_N, 1 to n_keys.
    count
        Most keys to return, at least 1; K is this number, or n_keys if that is smaller.

    Returns
    -------
    TopKeys
        Arrays (…, K). Ties go to the lower position. Up to N = K keys, ``within_r_min`` counts K_in of
        ``selection_profile``: equal α v are equally far.

    Raises
    ------
    ValueError
        If ``n`` or ``count`` is out of range, or for the reasons given in ``geometry.selection_profile``, except that
        one key is allowed.

    Notes
    -----
    In float64, O(K · n_keys · d) per head after one sort of its weights, most often much less.
    """
    alpha, states = read_heads(weights, values, least_keys=1)
    if not 1 <= n <= alpha.shape[-1] or count < 1:
        raise ValueError(f"n must be from 1 to {alpha.shape[-1]} and count at least 1, got n = {n} and count = {count}")
    shape = (*broadcast_lead(alpha, states), min(count, alpha.shape[-1]))
    lengths = {name: np.empty(shape) for name in ("weight", "contribution", "relative_distance")}
    within, at = np.empty(shape, np.bool_), np.empty((*shape, shape[-1]), np.bool_)
    keys = TopKeys(key=np.empty(shape, np.int32), within_r_min=within, within_r_min_at=at, **lengths)
    for head, of_head, of_keys in iterate_heads(alpha, states):
        scaled, exponent = scale_states(convert_dtype(of_keys))
        wide, order = of_head.astype(np.float64), sort_keys(of_head)
        keys.key[head] = order[: shape[-1]]
        keys.weight[head] = wide[order[: shape[-1]]]
        norms = wide * np.linalg.norm(scaled.astype(np.float64), axis=-1)
        _measure_keys(wide, scaled, order, n, keys.contribution[head], keys.relative_distance[head])
        last = keys.within_r_min[head]
        _compare_keys(wide, scaled, norms, order, np.array([n]), last[:, None])
        _compare_keys(wide, scaled, norms, order, np.arange(1, shape[-1] + 1), keys.within_r_min_at[head])
        keys.contribution[head] = np.ldexp(keys.contribution[head], exponent)
    return keys


@compile_kernel
def _measure_keys(alpha: F64, states: Floats, order: I64, size: int, contributions: F64, distances: F64) -> None:
    """Fill ‖y‖ and the distance from s_N over ‖s_N‖ of the first keys of ``order``.

    alpha: (n,); states: (n, d); order: keys in order of falling weight, (n,); size: N; outputs: (K,).
    """
    s, part = np.zeros(states.shape[1]), np.empty(states.shape[1])
    for key in order[:size]:
        add_key(alpha[key], states[key], s)
    norm = length(s)
    for rank in range(contributions.size):
        key = order[rank]
        for k in range(s.size):
            part[k] = alpha[key] * states[key, k]
        contributions[rank] = length(part)
        distances[rank] = distance(s, alpha, states, key) / norm if norm > 0.0 else np.nan


@compile_kernel
def _compare_keys(alpha: F64, states: Floats, norms: F64, order: I64, sizes: I64, within: Bool) -> None:
    """Fill whether each of the first K keys of ``order`` is selected and within r_min of s_N, for some N, ascending.

    norms: ‖y‖, (n,); sizes: N, (N,); within: output, (K, N); the rest as for ``_measure_keys``.
    """
    s, taken = np.zeros(states.shape[1]), 0
    for column, size in enumerate(sizes):
        for key in order[taken:size]:
            add_key(alpha[key], states[key], s)
        taken, nearest = size, _find_nearest(s, alpha, states, norms, order[size:])
        for rank in range(len(within)):
            chosen = rank < size and nearest >= 0
            within[rank, column] = chosen and compare_distances(s, alpha, states, order[rank], nearest) <= 0.0


@compile_kernel
def _find_nearest(s: F64, alpha: F64, states: Floats, norms: F64, keys: I64) -> int:
    """The first of some keys that is nearest to s; −1 without keys.

    ‖s‖² − ‖s − y‖² = 2⟨s, y⟩ − ‖y‖² is at most ‖y‖ (2‖s‖ − ‖y‖): a key for which that is less than for the nearest one
    so far is farther, whatever its direction.
    """
    nearest, most, norm = -1, -np.inf, length(s)
    for key in keys:
        if norms[key] < norm and norms[key] * (2.0 * norm - norms[key]) < most * SURELY:
            continue
        if nearest < 0 or compare_distances(s, alpha, states, key, nearest) < 0.0:
            nearest = key
            most = 2.0 * alpha[key] * inner(s, states[key]) - norms[key] ** 2
    return nearest
