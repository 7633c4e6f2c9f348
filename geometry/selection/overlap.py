"""How many of the selected keys two rows of weights share."""

import numpy as np
from numpy.typing import NDArray

from geometry.arrays import I64


def count_shared(weights: NDArray[np.floating], other: NDArray[np.floating], counts: NDArray[np.integer]) -> I64:
    """Count the keys in both selections I_N, exactly, for several N.

    I_N are the N keys of largest weight; ties go to the lower position.

    Parameters
    ----------
    weights, other
        Weights of two models for the same keys, floats (…, n).
    counts
        The numbers N, integers (k,), from 1 to n.

    Returns
    -------
    ndarray
        |I_N ∩ I'_N|, int64 (…, k).
    """
    later = np.maximum(_rank(weights), _rank(other))  # a key is in both selections from this N on
    return np.stack([(later < count).sum(axis=-1) for count in counts], axis=-1)


def _rank(weights: NDArray[np.floating]) -> I64:
    """The rank of each key by descending weight, from 0."""
    order = np.argsort(-weights, axis=-1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(weights.shape[-1]), axis=-1)
    return ranks
