"""Distance between the selected keys and the rest, compared with that of a random selection.

Holds the distance for some N, the closed form for random selections and the N at which both are equal, in float64
NumPy. ``geometry.selection_profile`` computes the distance for every N, as ``distance_rest``.

The question is that of *Limitations of Normalization in Attention Mechanism* (arXiv 2508.17821): whether softmax
attention still separates the selected keys from the rest as their number and the context grow.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from geometry.arrays import F64, I64
from geometry.grids import choose_grid
from geometry.inputs import check_heads, convert_array, iterate_heads
from geometry.separation.comparisons import Keys, arrange_keys
from geometry.separation.kernels import sum_selected

SLACK = 1e-6
"""Relative difference below which distances are equal: they may have been stored in float32."""


def rest_distance(weights: ArrayLike, values: ArrayLike, n: Sequence[int] | I64 | None = None) -> F64:
    """d̃(N) = ‖Σ_{i∉I_N} y_i − s_N‖ = ‖s_n − 2 s_N‖ for some N, y_i = α_i v_i.

    Parameters
    ----------
    weights, values, n
        As for ``geometry.separation.chance.separation``: weights (…, n), values (…, n, d), ascending N (grid,).

    Returns
    -------
    ndarray
        float64 (…, grid), in the unit of ``values``: the ``distance_rest`` of ``selection_profile`` at these N.

    Raises
    ------
    ValueError
        As ``geometry.separation.chance.separation``.

    Notes
    -----
    O(n log n + n d) per head. All products and sums are in float64.

    References
    ----------
    *Limitations of Normalization in Attention Mechanism*, arXiv 2508.17821.
    """
    alpha, states = convert_array(weights), convert_array(values)
    check_heads(alpha, states)
    sizes = choose_grid(n, alpha.shape[-1])
    distance = np.empty((*np.broadcast_shapes(alpha.shape[:-1], states.shape[:-2]), sizes.size))
    for head, row, of_keys in iterate_heads(alpha, states):
        keys = arrange_keys(row, of_keys)
        distance[head] = np.ldexp(np.linalg.norm(subtract_selected(keys, sizes)[0], axis=-1), keys.exponent)
    return distance


def subtract_selected(keys: Keys, sizes: I64) -> F64:
    """s_n − 2 s_N for every N of ``sizes``, for each arrangement of the keys of a head, (arrangement, grid, d)."""
    arrangements, n, d = keys.y.shape
    sums = np.empty((arrangements, len(sizes) + 1, d))
    sum_selected(keys.orders, keys.y, np.append(sizes, n), sums)
    return sums[:, -1:] - 2 * sums[:, :-1]


def random_subset_distance(
    norm_output: ArrayLike, norm_contributions: ArrayLike, *, size: ArrayLike, n_keys: ArrayLike
) -> F64:
    """Root mean square of ‖Σ_{i∉S} y_i − Σ_{i∈S} y_i‖ over all sets S of N of the n keys.

    Parameters
    ----------
    norm_output
        ‖s_n‖, the norm of the sum of all y_i = α_i v_i, in any unit; as ``geometry.output_parts`` gives it.
    norm_contributions
        √Σ‖y_i‖², in the same unit; as ``geometry.output_parts`` gives it.
    size
        N, the number of selected keys.
    n_keys
        n, the number of keys.

    Returns
    -------
    ndarray
        float64, in the unit of the norms, of the shape that the arguments broadcast to; NaN unless 1 ≤ N < n.

    Notes
    -----
    Let ε_i be −1 for keys of S and 1 for all others, so that the difference is Σ ε_i y_i. For i ≠ j the mean of
    ε_i ε_j over all S is ((n − 2N)² − n) / (n(n − 1)), and Σ_{i≠j} ⟨y_i, y_j⟩ is ‖s_n‖² − Σ‖y_i‖². So the mean square
    is

        4N(n − N) / (n(n − 1)) · (Σ‖y_i‖² − ‖s_n‖²/n) + (1 − 2N/n)² ‖s_n‖²,

    where the first bracket, n times the variance of y over the keys, is not negative.
    """
    whole, parts, n, keys = (np.asarray(x, np.float64) for x in (norm_output, norm_contributions, size, n_keys))
    there = (n >= 1) & (n < keys)
    n, keys = np.where(there, n, np.nan), np.where(keys > 1, keys, np.nan)
    mean = whole / np.sqrt(keys)
    spread = np.sqrt(np.maximum(parts - mean, 0) * (parts + mean))
    distance: F64 = np.hypot(np.sqrt(4 * n * (keys - n) / (keys * (keys - 1))) * spread, (1 - 2 * n / keys) * whole)
    return distance


def critical_n(distance_rest: ArrayLike, random_distance: ArrayLike) -> F64:
    """The first N at which the selected keys are no farther from the rest than a random selection.

    Parameters
    ----------
    distance_rest
        d̃(N) = ‖s_n − 2 s_N‖ for N = 1, 2, … along the last axis, as ``geometry.selection_profile`` gives it; NaN
        beyond the last N of a head.
    random_distance
        The same for random selections, as ``random_subset_distance`` gives it; broadcasts against ``distance_rest``.

    Returns
    -------
    ndarray
        float64 (…): N, or NaN if the selected keys are always farther.
    """
    distance, random = np.broadcast_arrays(np.asarray(distance_rest), np.asarray(random_distance, np.float64))
    met = distance <= random * (1 + SLACK)
    first: F64 = np.where(met.any(axis=-1), met.argmax(axis=-1) + 1.0, np.nan)
    return first
