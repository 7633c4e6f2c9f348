"""Made-up heads of the shape of a small language model, with a sink put in.

Holds ``draw_layer``, ``draw_head`` and ``draw_queries``. The numbers are random, but what the work of kernels depends
on is as in a trained model: query heads in groups that share value states, a sink of large weight and small norm,
weights that rise towards the query and fall by orders of magnitude, and value states with a common part.
"""

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]

SPREAD, SATURATED = 2.0, 20.0
"""Standard deviation of the logits of a head, and of one most weights of which underflow or nearly do."""


def draw_layer(
    rng: np.random.Generator, *, heads: int, kv_heads: int, n: int, head_dim: int, spread: float = SPREAD
) -> tuple[F32, F32]:
    """Weights of the last query (head, n) and value states (kv_head, n, head_dim) of one layer."""
    position = np.arange(n)
    logits = spread * rng.standard_normal((heads, n)) + 3 * np.exp((position - n) / rng.uniform(4, 64, (heads, 1)))
    logits[:, 0] = np.log(np.exp(logits[:, 1:]).sum(axis=1)) + rng.uniform(-1, 3, heads)  # 0.27 to 0.95 of all weight
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    values = rng.standard_normal((kv_heads, n, head_dim)) + 0.7 * rng.standard_normal((kv_heads, 1, head_dim))
    values *= rng.lognormal(0.0, 0.3, (kv_heads, n, 1))
    values[:, 0] *= 0.1
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32), values.astype(np.float32)


def draw_head(n: int, head_dim: int, spread: float = SPREAD) -> tuple[F32, F32]:
    """Weights (n,) and value states (n, head_dim) of one head, the same at every call."""
    rng = np.random.default_rng(0)
    weights, values = draw_layer(rng, heads=1, kv_heads=1, n=n, head_dim=head_dim, spread=spread)
    return weights[0], values[0]


def draw_queries(n: int, heads: int, head_dim: int) -> tuple[F32, F32]:
    """Weights of all queries but the first, (head, n − 1, n), and their value states (1, n, head_dim), always the same.

    The logits of every query are those of the last one in another order.
    """
    rng = np.random.default_rng(0)
    last, values = draw_layer(rng, heads=heads, kv_heads=1, n=n, head_dim=head_dim)
    weights = np.tril(rng.permuted(np.repeat(last[:, None], n - 1, axis=1), axis=2), k=1)
    return weights / weights.sum(axis=2, keepdims=True), values
