"""Norms of value states: how much they vary over positions (Assumption 1)."""

import numpy as np
from numpy.typing import ArrayLike

from geometry.arrays import F64


def variation(norms: ArrayLike) -> F64:
    """Coefficient of variation along the last axis (divisor: number of values); NaN for fewer than two, or all 0."""
    given = np.asarray(norms, np.float64)
    mean = given.mean(axis=-1)
    varied = (mean > 0) & (given.shape[-1] > 1)
    ratio: F64 = np.divide(given.std(axis=-1), mean, out=np.full(mean.shape, np.nan), where=varied)
    return ratio


def estimate_variation(norms: ArrayLike) -> tuple[F64, F64]:
    """Coefficient of variation over positions of the expected norm: its limit for many sequences.

    The variance of a mean over S sequences also includes a part 1/S of that within a sequence. This part is excluded by
    averaging only products of two different sequences, which is unbiased.

    Parameters
    ----------
    norms
        Of one KV head, (S, position).

    Returns
    -------
    whole, left_out
        Of all sequences, (), and without each, (S,); 0 where the variance comes out below 0, NaN for one sequence or
        one position.
    """
    given = np.asarray(norms, np.float64)
    sequences, positions = given.shape
    if sequences < 2 or positions < 2:
        return np.array(np.nan), np.full(sequences, np.nan)
    levels = given.mean(axis=1)
    apart = given - levels[:, None]
    products = apart @ apart.T / positions
    np.fill_diagonal(products, 0)
    sums = np.append(products.sum(), products.sum() - 2 * products.sum(axis=1))
    counts = np.append(sequences, np.full(sequences, sequences - 1))
    middle = np.append(levels.mean(), (levels.sum() - levels) / (sequences - 1))
    pairs = counts * (counts - 1)
    known = (pairs > 0) & (middle > 0)
    variance = np.divide(sums, pairs, out=np.full(sums.shape, np.nan), where=known)
    ratio = np.sqrt(np.maximum(variance, 0)) / np.where(known, middle, np.nan)
    return ratio[0], ratio[1:]
