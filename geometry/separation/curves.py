"""The curve of one selection over all radii: Precision, Recall, the share of false positives, and AUC.

Holds ``separation_curve``, for single heads. For grids of N and many heads see ``geometry.separation.chance``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cmp_to_key
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from geometry.arrays import F64
from geometry.inputs import check_heads, convert_array, convert_dtype
from geometry.selection.keys import compare_distances, distance
from geometry.separation.chance import separation
from geometry.separation.comparisons import arrange_keys, select
from geometry.separation.kernels import enclose_row, error_factors, find_group


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
    alpha, states = convert_array(weights), convert_array(values)
    check_heads(alpha, states)
    if alpha.ndim != 1 or states.ndim != 2:
        raise ValueError(
            f"separation_curve takes one head, weights (n,) and values (n, d), got {alpha.shape} and {states.shape}"
        )
    auc = separation(alpha, states, [n])
    keys = arrange_keys(convert_dtype(alpha)[None], convert_dtype(states))
    y, s = keys.weigh(0), select(keys, np.array([n])).s[0, 0]
    ends = list(_iterate_by_distance(y, keys.a[0], s))
    order, last = np.array([key for key, _ in ends]), np.array([is_last for _, is_last in ends])
    selected, left_out = (np.cumsum(part)[last] for part in (order < n, order >= n))
    ones = np.ones(len(alpha))
    radius = np.array([distance(s, ones, y, key) for key in order[last]])
    return SeparationCurve(
        radius=np.maximum.accumulate(np.ldexp(radius, keys.exponent)),
        precision=selected / (selected + left_out),
        recall=selected / n,
        false_positive_share=left_out / (len(alpha) - n),
        auc=float(auc[0]),
    )


def _iterate_by_distance(y: F64, a: F64, s: F64) -> Iterator[tuple[int, bool]]:
    """Iterate over the keys by distance of their y, of norm a, from s, (d,): each, and whether the next is farther."""
    (low, high), (slope, bend) = np.empty((2, a.size)), error_factors(s.size)
    enclose_row(y @ s, a, slope * float(np.linalg.norm(s)), bend, low, high)
    order, ones, start = np.argsort(low), np.ones(len(y)), 0
    rank = np.zeros_like(order)

    def farther(key: int, other: int) -> int:
        return int(np.sign(compare_distances(s, ones, y, key, other)))

    while start < len(order):
        stop, _ = find_group(start, order, low, high, rank, 0)
        group = sorted(map(int, order[start:stop]), key=cmp_to_key(farther))
        for key, following in pairwise(group):
            yield key, farther(following, key) > 0
        yield group[-1], True
        start = stop
