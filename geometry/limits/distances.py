"""Distance between the selected keys and the rest, compared with that of a random selection.

Holds the difference of both sums for some N, and the closed form for random selections, in float64 NumPy.
``geometry.selection_profile`` computes the distance for every N, as ``distance_rest``.

The question is that of *Limitations of Normalization in Attention Mechanism* (arXiv 2508.17821): whether softmax
attention still separates the selected keys from the rest as their number and the context grow.
"""

import numpy as np
from numpy.typing import ArrayLike

from geometry.arrays import F64


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
