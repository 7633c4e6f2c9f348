"""How many of the selected keys two heads share."""

import numpy as np
from numpy.typing import NDArray

from geometry.arrays import I64


def count_shared(ranked: NDArray[np.integer], other: NDArray[np.integer], counts: NDArray[np.integer]) -> I64:
    """Count the keys in both selections I_N, exactly, for several N.

    Parameters
    ----------
    ranked, other
        The keys of largest weight of each, in order of falling weight, integers (…, R); below 0 where there is none.
    counts
        The numbers N, integers (k,), from 1 to R.

    Returns
    -------
    ndarray
        |I_N ∩ I'_N|, int64 (…, k).
    """
    rank = np.arange(ranked.shape[-1])
    same = (ranked[..., :, None] == other[..., None, :]) & (ranked >= 0)[..., None]
    later = np.maximum(rank[:, None], rank)  # a key is in both selections from this N on
    return np.stack([(same & (later < count)).sum(axis=(-2, -1)) for count in counts], axis=-1)
