"""The counts of Precision and Recall in plain floating-point arithmetic, a diagnostic to compare with the exact counts.

Holds ``plain_arithmetic``. The exact counts are those of ``geometry.selection.profile``. ``python -m
benchmarks.arithmetic`` compares them on a drawn head with a sink.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from benchmarks.heads import draw_head
from geometry.arrays import F64, I32, I64, Floats
from geometry.grids import choose_grid
from geometry.inputs import check_heads, convert_array, iterate_heads
from geometry.selection.profile import selection_counts

ARITHMETICS = ("float32_loop", "float32_cdist", "float64_literal")
"""The arithmetics, in the order of the axis ``arithmetic``.

``float32_loop``: ‖s − y‖² from the differences, all in float32, as in a loop over N. ``float32_cdist``:
``torch.cdist`` in float32 with its matrix product, √(‖s‖² + ‖y‖² − 2⟨s, y⟩). ``float64_literal``: ‖s − y‖² from the
differences, in float64. In each, s is the running sum of y in the same type.
"""

CHUNK_BYTES = 2**26
"""Size of an array of differences, which holds those of several N; those of a single N may take more."""

Distances = Callable[[Floats, Floats], Floats]
"""Function of s (rows, d) and y (n, d): numbers that are ordered as their distances, (rows, n)."""


@dataclass(frozen=True)
class PlainArithmetic:
    """Exact counts of the selection of the N largest weights, and those of ``ARITHMETICS``."""

    n: I64
    """N, (grid,)."""
    exact_k_in: I32
    """K_in, (…, grid)."""
    exact_k_out: I32
    """K_out, (…, grid)."""
    k_in: I32
    """K_in in each arithmetic, (…, arithmetic, grid)."""
    k_out: I32
    """K_out in each arithmetic, (…, arithmetic, grid)."""

    @property
    def recall_differs(self) -> F64:
        """Share of the N whose Recall, and so K_in, is not the exact one, (…, arithmetic)."""
        differs: F64 = (self.k_in != self.exact_k_in[..., None, :]).mean(axis=-1)
        return differs

    @property
    def recall_difference(self) -> F64:
        """Recall minus the exact Recall, (…, arithmetic, grid)."""
        difference: F64 = (self.k_in - self.exact_k_in[..., None, :]) / self.n
        return difference


def plain_arithmetic(weights: ArrayLike, values: ArrayLike, n: Sequence[int] | I64 | None = None) -> PlainArithmetic:
    """K_in and K_out in plain float32 and float64 arithmetic, together with the exact counts.

    ‖s_N‖² is common to all distances from s_N and can be a million times larger than the differences that decide the
    counts, so keys at equal distances may be computed as unequal, and keys at different distances as equal. The result
    shows how often this happens.

    Parameters
    ----------
    weights, values
        As for ``selection_profile``, (…, n) and (…, n, d).
    n
        N, ascending whole numbers from 1 to n − 1, (grid,); by default all of them.

    Returns
    -------
    PlainArithmetic
        Arrays int32; exact counts as ``selection_counts`` gives them.

    Raises
    ------
    ValueError
        If ``n`` is not ascending within 1 to n − 1, or as ``selection_profile``.

    Notes
    -----
    O(grid · n · d) operations for each head and arithmetic. Memory: y, s, and differences of at most ``CHUNK_BYTES``,
    or of one N (8 n d bytes) if those take more.
    """
    alpha, states = convert_array(weights), convert_array(values)
    check_heads(alpha, states)
    keys = alpha.shape[-1]
    sizes = np.arange(1, keys) if n is None else choose_grid(n, keys)
    exact = selection_counts(alpha, states)
    lead = exact.k_in.shape[:-1]
    counts = np.empty((*lead, 2, len(ARITHMETICS), len(sizes)), np.int32)
    for head, row, of_keys in iterate_heads(alpha, states):
        counts[head] = np.stack([_count_keys(row, of_keys, sizes, name) for name in ARITHMETICS], axis=1)
    k_in, k_out = np.moveaxis(counts, -3, 0)
    return PlainArithmetic(sizes, exact.k_in[..., sizes - 1], exact.k_out[..., sizes - 1], k_in, k_out)


def _count_keys(weights: Floats, values: Floats, sizes: I64, arithmetic: str) -> I32:
    """Count K_in and K_out of one head, (2, grid)."""
    order, of = np.argsort(-weights, kind="stable"), _DISTANCES[arithmetic]
    dtype: type[np.floating[Any]] = np.float64 if arithmetic == "float64_literal" else np.float32
    y: Floats = weights[order, None].astype(dtype) * values[order].astype(dtype)
    s = np.cumsum(y, axis=0, dtype=dtype)[sizes - 1]
    counts, rows = np.empty((2, len(sizes)), np.int32), max(1, CHUNK_BYTES // y.nbytes)
    for first in range(0, len(sizes), rows):
        part = slice(first, first + rows)
        far = of(s[part], y)
        selected = np.arange(len(y)) < sizes[part, None]
        nearest = np.where(selected, np.inf, far).min(axis=-1, keepdims=True)
        farthest = np.where(selected, far, -np.inf).max(axis=-1, keepdims=True)
        counts[:, part] = (selected & (far <= nearest)).sum(-1), (~selected & (far <= farthest)).sum(-1)
    return counts


def _measure_by_differences(s: Floats, y: Floats) -> Floats:
    """‖s − y‖² in the dtype of s and y."""
    difference = s[:, None] - y
    squares: Floats = np.einsum("rnd,rnd->rn", difference, difference)
    return squares


def _measure_by_products(s: Floats, y: Floats) -> Floats:
    """‖s − y‖ by ``torch.cdist``."""
    import torch

    centres, keys = (torch.from_numpy(np.ascontiguousarray(array))[None] for array in (s, y))
    distances: Floats = torch.cdist(centres, keys, compute_mode="use_mm_for_euclid_dist")[0].numpy()
    return distances


_DISTANCES: dict[str, Distances] = {
    "float32_loop": _measure_by_differences,
    "float32_cdist": _measure_by_products,
    "float64_literal": _measure_by_differences,
}


def describe_head(n: int = 512, head_dim: int = 64) -> str:
    """The share of N with wrong counts, and how far mean Recall is off, of a drawn head; a line per arithmetic."""
    counts = plain_arithmetic(*draw_head(n, head_dim))
    rows = zip(ARITHMETICS, counts.recall_differs, counts.recall_difference.mean(axis=-1), strict=True)
    return "\n".join(
        f"{name}: K_in wrong at {share:.0%} of all N, Recall off by {off:+.2f}" for name, share, off in rows
    )


if __name__ == "__main__":
    print(describe_head())
