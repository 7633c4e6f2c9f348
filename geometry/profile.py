"""The all-N profile of a head's selection: the public function, its checks and its result.

Holds ``selection_profile`` and ``SelectionProfile``. What does not belong here: compiled loops (``geometry.kernels``),
Dask (``geometry.lazy``) and files.
"""

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geometry.kernels import ERROR_BEND, TINY, count_tile, error_slope

TILE_BYTES = 2**19
"""Size of one tile of inner products: small enough to stay in a core's cache while it is read."""

ROW_SUM_SLACK = 1e-3
"""Rows may exceed 1 by this much: weights of half precision are accepted."""

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class SelectionProfile:
    """What the selection of the N largest weights looks like for every N; element i of the last axis is N = i + 1.

    All arrays have the shape (…, n − 1): leading axes as given, n the number of keys. NaN where a quantity does not
    exist: sink quantities without a sink, cosines with a vector of norm 0. Distances and norms have the unit of the
    value states.
    """

    k_in: NDArray[np.int32]
    """K_in, selected keys no farther from s_N than r_min (eq. 20)."""
    k_out: NDArray[np.int32]
    """K_out, keys left out that are no farther from s_N than r_max (eq. 20)."""
    r_min: F64
    """Distance from s_N to the nearest key left out (eq. 19)."""
    r_max: F64
    """Distance from s_N to the farthest selected key (eq. 19)."""
    norm_s: F64
    """‖s_N‖ (eq. 1)."""
    norm_s_without_sink: F64
    """‖s_N − y_0·[0∈I_N]‖ (Figure 7)."""
    norm_s_without_last: F64
    """‖s_N − y_L·[L∈I_N]‖ (Figure 7)."""
    cos_sink: F64
    """cos(s_N, v_0) (Figure 7)."""
    cos_last: F64
    """cos(s_N, v_L) (Figure 7)."""

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> Self:
        """A profile of the given shape that holds −1 for counts and NaN for all else: nothing is known yet."""
        floats = {field.name: np.full(shape, np.nan) for field in fields(cls)[2:]}
        return cls(np.full(shape, -1, np.int32), np.full(shape, -1, np.int32), **floats)

    def __getitem__(self, index: Any) -> "SelectionProfile":
        """The profile at ``index`` of every array, as views."""
        return SelectionProfile(*(getattr(self, name)[index] for name in PROFILE))


PROFILE: tuple[str, ...] = tuple(field.name for field in fields(SelectionProfile))
"""Names of the arrays of a profile, in order."""


def selection_profile(weights: ArrayLike, values: ArrayLike, *, sink: bool = True) -> SelectionProfile:
    """Precision's and Recall's counts, the radii and the geometry of s_N for every N (Definitions 1-3, §4.2).

    Parameters
    ----------
    weights
        Attention weights α of one query over the keys it may attend to, in order of position, (…, n); each row is a
        softmax. Rows of learned sinks sum to less than 1. Keys that the mask hides must be left out, not set to 0.
    values
        Value states v of the same keys, (…, n, d). Leading axes broadcast against those of ``weights``, so query heads
        of one KV group share theirs: weights (kv_head, group, n), values (kv_head, 1, n, d).
    sink
        Whether the first key is position 0 of the sequence. If a window hides position 0 there is no sink and every
        sink quantity is NaN.

    Returns
    -------
    SelectionProfile
        Arrays of shape (…, n − 1). Counts are exact: they equal a float64 evaluation of the definitions, up to
        differences that float64 itself cannot tell. Ties between weights go to the lower position.

    Raises
    ------
    ValueError
        If shapes disagree, n < 2, weights are negative, not finite or sum to more than 1, or values are not finite
        floating-point numbers.

    Notes
    -----
    One float32 matrix product (n × d × n) per head and O(n²) after it; memory O(n · d) plus one tile per thread.

    References
    ----------
    *Geometric Analysis of Token Selection in Multi-Head Attention*, arXiv 2602.01893, eq. 1-5 and 18-20.
    """
    alpha, states = _checked(weights, values)
    lead = np.broadcast_shapes(alpha.shape[:-1], states.shape[:-2])
    n, d = states.shape[-2:]
    alpha = np.broadcast_to(alpha, (*lead, n))
    states = np.broadcast_to(states, (*lead, n, d))
    profile = SelectionProfile.empty((*lead, n - 1))
    for head in np.ndindex(lead):
        _profile_head(alpha[head], states[head], profile[head], sink=sink)
    return profile


def scratch_bytes(n: int, head_dim: int) -> int:
    """Upper bound of the memory ``selection_profile`` takes beside inputs and outputs, in bytes, however many heads.

    Six float64 arrays (n, d) at most live at once (value states, y, s and temporaries), one tile of inner products, and
    vectors of n.
    """
    return 48 * n * head_dim + max(TILE_BYTES, 4 * n) + 256 * n + 2**16


def _checked(weights: ArrayLike, values: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """The inputs as arrays, or a ValueError that names what is wrong with which."""
    alpha, states = np.asarray(weights), np.asarray(values)
    for name, array in (("weights", alpha), ("values", states)):
        if not np.issubdtype(array.dtype, np.floating):
            msg = f"{name} must be floating-point numbers, got {array.dtype}"
            raise ValueError(msg)
    if alpha.ndim < 1 or alpha.shape[-1] < 2:
        msg = f"weights must have the shape (…, n) with n ≥ 2 keys, got {alpha.shape}"
        raise ValueError(msg)
    if states.ndim < 2 or states.shape[-2] != alpha.shape[-1] or states.shape[-1] < 1:
        msg = f"values must have the shape (…, {alpha.shape[-1]}, d) to match weights {alpha.shape}, got {states.shape}"
        raise ValueError(msg)
    if not np.isfinite(states).all():
        msg = f"values of shape {states.shape} must be finite; the forward pass overflowed, use bfloat16 or float32"
        raise ValueError(msg)
    if not (alpha >= 0).all() or not (alpha.sum(-1, dtype=np.float64) <= 1 + ROW_SUM_SLACK).all():
        msg = f"weights of shape {alpha.shape} must be rows of a softmax: not negative, no NaN, each sum at most 1"
        raise ValueError(msg)
    return alpha, states


def _profile_head(weights: NDArray[Any], values: NDArray[Any], out: SelectionProfile, *, sink: bool) -> None:
    """Fill ``out`` (n − 1,) for one head: weights (n,), values (n, d)."""
    order = np.argsort(-weights, kind="stable")
    exponent = int(np.frexp(float(np.abs(values).max()))[1])
    # components are at most 1 from here on: nothing overflows, and scaling by a power of two is exact
    states = np.ldexp(values[order].astype(np.float64), -exponent)
    alpha = weights[order].astype(np.float64)
    y = states * alpha[:, None]
    s = np.cumsum(y, axis=0)
    out.norm_s[:] = _norms(s[:-1])
    _count(alpha, states, y, s, out)
    _directions(order, s[:-1], y, states, out, sink=sink)
    for length in (out.r_min, out.r_max, out.norm_s, out.norm_s_without_sink, out.norm_s_without_last):
        np.ldexp(length, exponent, out=length)


def _count(alpha: F64, states: F64, y: F64, s: F64, out: SelectionProfile) -> None:
    """Counts and radii of one head, tile by tile; keys are in order of falling weight, ``out.norm_s`` is known."""
    n, d = states.shape
    norm2 = np.einsum("ld,ld->l", y, y)
    factors = (
        (2 * alpha).astype(np.float32),
        norm2.astype(np.float32),
        (error_slope(d) * np.sqrt(norm2)).astype(np.float32),
        (ERROR_BEND * norm2).astype(np.float32) + TINY,
    )
    size, states32 = out.norm_s.astype(np.float32), states.astype(np.float32)
    rows = max(1, TILE_BYTES // (4 * n))
    for first in range(0, n - 1, rows):
        tile = slice(first, min(first + rows, n - 1))
        products = s[tile].astype(np.float32) @ states32.T
        results = out.k_in[tile], out.k_out[tile], out.r_min[tile], out.r_max[tile]
        count_tile(first, products, s[tile], size[tile], y, norm2, factors, *results)


def _directions(order: NDArray[np.intp], s: F64, y: F64, states: F64, out: SelectionProfile, *, sink: bool) -> None:
    """Norms of s_N without the sink and the last token, and its cosines with both (Section 4.2)."""
    rank = np.argsort(order)  # of each key among the weights
    last = rank[-1]
    out.norm_s_without_last[:] = _norms_without(last, s, y)
    out.cos_last[:] = _cosines(s, out.norm_s, states[last])
    if sink:
        out.norm_s_without_sink[:] = _norms_without(rank[0], s, y)
        out.cos_sink[:] = _cosines(s, out.norm_s, states[rank[0]])


def _norms(vectors: F64) -> F64:
    """Norm of each row, (rows, d) → (rows,), without a temporary of the size of ``vectors``."""
    norms: F64 = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
    return norms


def _norms_without(rank: int, s: F64, y: F64) -> F64:
    """‖s_N − y_key·[key∈I_N]‖ for every row of s, the key being the one of this rank among the weights."""
    return np.concatenate([_norms(s[:rank]), _norms(s[rank:] - y[rank])])


def _cosines(s: F64, norms: F64, direction: F64) -> F64:
    """cos(s_N, direction) for every row of s, NaN where a norm is 0."""
    length = norms * np.linalg.norm(direction)
    cosines: F64 = np.divide(s @ direction, length, out=np.full(len(s), np.nan), where=length > 0)
    return cosines
