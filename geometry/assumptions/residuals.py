"""The effective sample size of a series of correlated residuals.

It is used for the choice between fitted curves in ``geometry.assumptions.decay`` and ``geometry.assumptions.phases``.
"""

import numpy as np
from numpy.typing import NDArray

from geometry.arrays import F64
from geometry.assumptions.similarity import autocorrelation


def effective_points(residual: F64, known: NDArray[np.bool_] | None = None) -> float:
    """Effective sample size m/τ of m residuals in order, τ their integrated autocorrelation time.

    Parameters
    ----------
    residual
        Residuals of a fit at equal steps, (n,), of mean about 0.
    known
        Which of them are known, (n,); all by default. The others may be any finite number.

    Returns
    -------
    float
        Between 1 and m; m if all residuals are 0.

    Notes
    -----
    τ = 1 + 2 Σ_l r_l with r_l the autocorrelation at lag l, an average over the pairs that are known, times 1 − l/n.
    The sum ends before the first pair r_2k + r_2k+1 that is not positive: beyond it the terms are mostly noise. The
    variance of the residuals' mean is that of m/τ independent ones. O(n log n).

    References
    ----------
    C. J. Geyer, *Practical Markov Chain Monte Carlo*, Statistical Science 7, 1992: initial positive sequence.
    """
    n = residual.size
    there = np.ones(n) if known is None else known.astype(np.float64)
    count = float(there.sum())
    products, pairs = autocorrelation((residual * there)[None]), np.rint(autocorrelation(there[None]))
    if not products[:1].sum() > 0:
        return count
    average = np.divide(products, pairs, out=np.zeros(n), where=pairs > 0)
    correlation = average / average[0] * (1.0 - np.arange(n) / n)
    sums = correlation[: n - n % 2].reshape(-1, 2).sum(axis=1)
    positive = sums[: np.argmax(sums <= 0) if (sums <= 0).any() else sums.size]
    return count / min(max(2.0 * float(positive.sum()) - 1.0, 1.0), count)
