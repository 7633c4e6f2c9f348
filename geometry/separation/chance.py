"""AUC of a head's selection, and its measures compared with those of two null models: the public functions.

Holds ``separation``, ``separability`` and the result type of the latter. What does not belong here: how the numbers are
computed (``geometry.separation.comparisons`` and ``geometry.separation.nulls``) and files.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geometry.arrays import F64, I64
from geometry.grids import choose_grid
from geometry.inputs import (
    GROUP,
    broadcast_lead,
    check_heads,
    choose_device,
    convert_array,
    iterate_groups,
)
from geometry.separation.comparisons import (
    MEASURES,
    arrange_keys,
    compare,
    compute_auc,
    count_selections,
    count_tile_rows,
)
from geometry.separation.nulls import NULLS, separability_of_heads

__all__ = ["MEASURES", "NULLS", "Separability", "estimate_scratch_bytes", "separability", "separation"]


@dataclass(frozen=True)
class Separability:
    """The measures of a selection, and their means over the draws of two null models, for every N of a grid.

    Arrays are float64 (…, measure, grid), leading axes as given, measures in the order of ``MEASURES``: P(r_max, N),
    R(r_min, N), F(r_max, N), F(r_min, N), specificity 1 − K_out/(n − N), and AUC(N).
    """

    n: I64
    """N, (grid,)."""
    observed: F64
    """Measures of the selection of the N largest weights."""
    random_selection: F64
    """Mean over draws: N random keys, with their own weights and value states. NaN without draws."""
    shuffled_values: F64
    """Mean over draws: the N largest weights, value states permuted at random among the keys except the sink
    and the last token. NaN without draws."""


def separation(
    weights: ArrayLike, values: ArrayLike, n: Sequence[int] | I64 | None = None, *, device: str | None = None
) -> F64:
    """AUC(N): the probability that a random selected key is nearer to s_N than a random key left out.

    AUC(N) = 1 − W/(N (n − N)) for n keys, where W is the number of pairs (i ∈ I_N, j ∉ I_N) with D_j < D_i and half of
    those with D_j = D_i, D_l = ‖s_N − y_l‖²; the double sum of eq. 22 counts ties fully. AUC is 1/2 if selection and
    distance are unrelated. A random selection has a larger AUC, because the selected keys are terms of s_N: compare
    with the AUC that ``separability`` gives for ``random_selection``.

    Parameters
    ----------
    weights
        Attention weights α of one query over the keys it may attend to, in order of position, (…, n), as for
        ``selection_profile``: a NumPy array or a PyTorch tensor.
    values
        Value states v of the same keys, (…, n, d). Leading axes broadcast against those of ``weights``.
    n
        N, ascending whole numbers from 1 to n − 1, (grid,); by default ``log_grid`` of the number of keys.
    device
        ``cuda`` or ``cuda:1`` to compute there, ``cpu`` to compute here; by default, where ``values`` are.

    Returns
    -------
    ndarray
        float64 (…, grid). Exact: 2 W is a whole number that equals a float64 evaluation of the definition, up to
        differences that float64 cannot resolve; keys of equal y are ties.

    Raises
    ------
    ValueError
        If ``n`` is not ascending within 1 to n − 1, or for the reasons given in ``selection_profile``.
    RuntimeError
        If ``device`` is a GPU that PyTorch cannot use.

    Notes
    -----
    O(grid · (n d + n log n)) per head and ``estimate_scratch_bytes`` of memory, on one thread. A GPU multiplies and
    sorts a tile at a time, in about as much of its own memory; what is O(grid · n) is computed on the CPU. Heads that
    share value states are computed together. Heads in which many keys of different y are equally far, up to float64
    rounding, take up to O(grid · n² d).
    """
    alpha, states, place = _check_input(weights, values, device)
    keys = alpha.shape[-1]
    sizes = choose_grid(n, keys)
    lead = broadcast_lead(alpha, states)
    auc = np.empty((math.prod(lead), len(sizes)))
    for heads, rows, of_keys in iterate_groups(alpha, states):
        auc[heads] = compute_auc(compare(arrange_keys(rows, of_keys, place), sizes), sizes, keys)
    return auc.reshape(*lead, len(sizes))


def separability(
    weights: ArrayLike,
    values: ArrayLike,
    n: Sequence[int] | I64 | None = None,
    *,
    draws: int,
    seed: ArrayLike,
    sink: bool = True,
    device: str | None = None,
) -> Separability:
    """Precision, Recall, F, specificity and AUC on a grid of N, and their means under two null models.

    Parameters
    ----------
    weights, values, n, device
        As for ``separation``.
    draws
        Draws of each null, at least 0.
    seed
        Distinguishes the draws of different heads: a whole number ≥ 0, to which the index of the head along the leading
        axes is appended; or the words themselves, such as (seed, sequence, query, layer, head), whole numbers ≥ 0
        (…, words) whose leading axes broadcast against those of the heads. Draws depend only on the words, the null and
        the number of the draw, and are the same on every device.
    sink
        Whether the first key is position 0 of the sequence, whose value state is not shuffled. If a window hides
        position 0, only the value state of the last token is not shuffled.

    Returns
    -------
    Separability
        NumPy arrays (…, measure, grid), on every device.

    Raises
    ------
    ValueError
        If ``draws`` is negative, ``seed`` is not as described, or for the reasons given in ``separation``.
    RuntimeError
        If ``device`` is a GPU that PyTorch cannot use.

    Notes
    -----
    A draw costs about as much as ``separation``. Selections of one random draw are nested over N. Memory as for
    ``separation``.
    """
    if draws < 0:
        raise ValueError(f"draws must be at least 0, got {draws}")
    alpha, states, place = _check_input(weights, values, device)
    sizes, lead = choose_grid(n, alpha.shape[-1]), broadcast_lead(alpha, states)
    words = _build_words(seed, lead)
    words = words.reshape(-1, words.shape[-1])
    measures = np.empty((1 + len(NULLS), len(words), len(MEASURES), len(sizes)))
    for heads, rows, of_keys in iterate_groups(alpha, states):
        measures[:, heads] = separability_of_heads(
            rows, of_keys, words[heads], sizes, draws=draws, sink=sink, place=place
        )
    return Separability(sizes, *measures.reshape(1 + len(NULLS), *lead, len(MEASURES), len(sizes)))


def estimate_scratch_bytes(n: int, head_dim: int, grid: int) -> int:
    """Upper bound of the memory of ``separation`` and ``separability`` without inputs and results, in bytes.

    It does not depend on the number of heads and draws, of which ``GROUP`` or one tile are computed together. Value
    states as given and in float64; inner products of a tile, which are kept for the next; s_N; vectors of n for each
    selection.
    """
    selections = max(count_selections(n, grid), GROUP)
    rows = max(count_tile_rows(n), selections)
    return (
        8 * n * (2 * head_dim + rows) + 24 * selections * (grid + 1) * head_dim + 96 * selections * (n + grid) + 2**16
    )


def _check_input(weights: Any, values: Any, device: str | None) -> tuple[NDArray[Any], NDArray[Any], str]:
    """Convert and check the input, and choose where to compute."""
    place = choose_device(weights, values, device)
    alpha, states = convert_array(weights), convert_array(values)
    check_heads(alpha, states)
    return alpha, states, place


def _build_words(seed: Any, lead: tuple[int, ...]) -> I64:
    """The words that identify each head, (*lead, words); a ValueError if the seed is not valid."""
    words = np.asarray(seed)
    if not np.issubdtype(words.dtype, np.integer) or (words < 0).any() or words.shape[-1:] == (0,):
        raise ValueError(f"seed must be whole numbers ≥ 0, got {seed!r}")
    if words.ndim == 0:
        index = np.indices(lead).reshape(len(lead), *lead)
        return np.stack([np.broadcast_to(words, lead), *index], axis=-1).astype(np.int64)
    try:
        return np.broadcast_to(words, (*lead, words.shape[-1])).astype(np.int64)
    except ValueError:
        raise ValueError(
            f"seed must have the shape (…, words) with leading axes that broadcast to {lead}, got {words.shape}"
        ) from None
