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
        Of some KV heads, (S, …, position).

    Returns
    -------
    whole, left_out
        Of all sequences, (…), and without each, (S, …); 0 where the variance comes out below 0, NaN for one sequence or
        one position.
    """
    given = np.asarray(norms, np.float64)
    sequences, *heads, positions = given.shape
    if sequences < 2 or positions < 2:
        return np.full(heads, np.nan), np.full((sequences, *heads), np.nan)
    levels = given.mean(axis=-1)
    apart = np.moveaxis(given - levels[..., None], 0, -2)
    products = apart @ apart.swapaxes(-1, -2) / positions * (1 - np.eye(sequences))
    of_each, every = np.moveaxis(products.sum(axis=-1), -1, 0), products.sum(axis=(-2, -1))
    sums = np.concatenate([every[None], every - 2 * of_each])
    middle = np.concatenate([levels.mean(axis=0)[None], (levels.sum(axis=0) - levels) / (sequences - 1)])
    counts = np.append(sequences, np.full(sequences, sequences - 1)).reshape(-1, *[1] * len(heads))
    pairs = counts * (counts - 1)
    known = (pairs > 0) & (middle > 0)
    variance = np.divide(sums, pairs, out=np.full(sums.shape, np.nan), where=known)
    ratio = np.sqrt(np.maximum(variance, 0)) / np.where(known, middle, np.nan)
    return ratio[0], ratio[1:]
