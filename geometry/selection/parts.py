"""Contributions of the sink, the last token and all other keys to a head's output.

Holds ``output_parts``, the norms of the parts of Σ y_i (Section 4.2). For selections of the N largest weights see
``geometry.selection.profile``.
"""

import numpy as np
from numpy.typing import NDArray

from geometry.arrays import F64
from geometry.inputs import reject_masked
from geometry.quantities import OutputParts


def output_parts(weights: NDArray[np.floating], values: NDArray[np.floating], *, sink: bool = True) -> OutputParts:
    """Norms of the contributions of the sink, the last token and the rest to the output of each head (Section 4.2).

    Parameters
    ----------
    weights
        Attention weights α of one query over the keys it may attend to, in order of position, (…, n), n ≥ 1. The last
        key is the last token: the query's own position.
    values
        Value states v of the same keys, (…, n, d). Leading axes broadcast against those of ``weights``, so query heads
        of one KV group share theirs: weights (kv_head, group, n), values (kv_head, 1, n, d).
    sink
        Whether the first key is position 0 of the sequence. If the sink is the only key, it is also the last token,
        and both norms are those of this key.

    Raises
    ------
    ValueError
        If shapes disagree, there is no key, or either is a masked array.

    Notes
    -----
    All sums are computed in float64 directly over their keys, never as differences of other sums, so the rest keeps its
    precision however dominant the sink is. Squares of float32 numbers stay in the range of float64.
    """
    weights, values = reject_masked("weights", weights), reject_masked("values", values)
    if 0 in values.shape[-2:] or weights.shape[-1:] != values.shape[-2:-1]:
        msg = f"weights (…, n) and values (…, n, d) must have the same n ≥ 1 keys, got {weights.shape}, {values.shape}"
        raise ValueError(msg)
    rest = slice(1 if sink else 0, -1)
    others, sink_part, last_part = (
        np.einsum("...n,...nd->...d", weights[..., keys], values[..., keys, :], dtype=np.float64)
        for keys in (rest, slice(0, int(sink)), slice(-1, None))
    )
    if sink and weights.shape[-1] == 1:  # the sink is the last token
        sink_part, last_part = others, others
    lengths = np.einsum("...n,...n->...", weights[..., rest], _norms(values[..., rest, :]), dtype=np.float64)
    first = weights[..., 0] * _norms(values[..., 0, :])
    norm_rest, contributions = _norms(others), weights * _norms(values)
    return OutputParts(
        sink_weight=(weights[..., 0] if sink else np.full_like(weights[..., 0], np.nan)) + np.zeros(first.shape),
        norm_y_0=first if sink else np.full_like(first, np.nan),
        norm_y_last=weights[..., -1] * _norms(values[..., -1, :]),
        norm_rest=norm_rest,
        total_rest=np.maximum(lengths, norm_rest),  # at least norm_rest, despite rounding
        norm_output=_norms(np.einsum("...n,...nd->...d", weights, values, dtype=np.float64)),
        norm_output_without_sink=_norms(others + last_part) if sink else np.full_like(norm_rest, np.nan),
        norm_output_without_last=_norms(others + sink_part),
        norm_contributions=_norms(contributions),
    )


def _norms(vectors: NDArray[np.floating]) -> F64:
    """Norms along the last axis, in float64: (…, d) → (…)."""
    norms: F64 = np.sqrt(np.einsum("...d,...d->...", vectors, vectors, dtype=np.float64))
    return norms
