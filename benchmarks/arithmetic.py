"""The counts of Precision and Recall in plain floating-point arithmetic, a diagnostic to compare with the exact counts.

‖s_N‖² is common to all distances from s_N and can be a million times larger than the differences that decide the
counts, so keys at equal distances may be computed as unequal, and keys at different distances as equal. ``python -m
benchmarks.arithmetic`` shows how often this happens on a drawn head with a sink. The exact counts are those of
``geometry.selection.profile``.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.heads import draw_head
from geometry import selection_counts
from geometry.arrays import I64, Floats


def measure_by_differences(s: Floats, y: Floats) -> Floats:
    """‖s − y‖² in the dtype of s (d,) and y (n, d), (n,)."""
    difference = s - y
    squares: Floats = np.einsum("nd,nd->n", difference, difference)
    return squares


def measure_by_products(s: Floats, y: Floats) -> Floats:
    """‖s − y‖ by ``torch.cdist`` with its matrix product, √(‖s‖² + ‖y‖² − 2⟨s, y⟩), (n,)."""
    import torch

    centre, keys = torch.from_numpy(s[None]), torch.from_numpy(y)
    distances: Floats = torch.cdist(centre, keys, compute_mode="use_mm_for_euclid_dist")[0].numpy()
    return distances


ARITHMETICS: dict[str, tuple[type[np.floating[Any]], Callable[[Floats, Floats], Floats]]] = {
    "float32_loop": (np.float32, measure_by_differences),
    "float32_cdist": (np.float32, measure_by_products),
    "float64_literal": (np.float64, measure_by_differences),
}
"""The type of all numbers, and what orders keys as their distances do."""


def count_keys(weights: Floats, values: Floats, arithmetic: str) -> I64:
    """K_in and K_out of one head for N = 1 to n − 1, (2, n − 1), from weights (n,) and value states (n, d)."""
    dtype, measure = ARITHMETICS[arithmetic]
    order = np.argsort(-weights, kind="stable")
    y: Floats = weights[order, None].astype(dtype) * values[order].astype(dtype)
    counts = []
    for size, s in enumerate(np.cumsum(y, axis=0, dtype=dtype)[:-1], start=1):
        far = measure(s, y)
        selected, left_out = far[:size], far[size:]
        counts.append(((selected <= left_out.min()).sum(), (left_out <= selected.max()).sum()))
    return np.array(counts).T


def describe_head(n: int, head_dim: int) -> Iterator[str]:
    """The share of N with wrong counts, and how far mean Recall is off, of a drawn head; a line per arithmetic."""
    head = draw_head(n, head_dim)
    exact = selection_counts(*head).k_in
    for name in ARITHMETICS:
        wrong = count_keys(*head, name)[0] - exact
        off = (wrong / np.arange(1, n)).mean()
        yield f"{name}: K_in wrong at {(wrong != 0).mean():.0%} of all N, Recall off by {off:+.2f}"


if __name__ == "__main__":
    print(*describe_head(512, 64), sep="\n")
