"""Heads to test with: random ones, ones drawn from the paper's assumptions, and awkward ones."""

import numpy as np


def random_head(n: int, d: int, seed: int, spread: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Softmax weights of normal logits with a heavy first key, and normal values with a common part."""
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal(n) * spread
    logits[0] += 2 * spread
    weights = np.exp(logits - logits.max())
    values = rng.standard_normal((n, d)) + 0.7 * rng.standard_normal(d)
    values[0] *= 0.1
    return (weights / weights.sum()).astype(np.float32), values.astype(np.float32)


def assumed_head(n: int, d: int, seed: int, beta: float = 0.05, sink: float = 0.6) -> tuple[np.ndarray, np.ndarray]:
    """Directions with cosine e^(−β|i−j|), a compressed sink, and the four phases of weights (Assumptions 1-3)."""
    rng = np.random.default_rng(seed)
    r = np.exp(-beta)
    unit = rng.standard_normal((n, d))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    for i in range(1, n):
        unit[i] = r * unit[i - 1] + np.sqrt(1 - r * r) * unit[i]
        unit[i] /= np.linalg.norm(unit[i])
    unit[0] *= 0.1
    position = np.arange(n)
    weights = 1 + 0.5 * np.cos(0.3 * position) * (position > n // 4)
    weights = np.where(position > 3 * n // 4, np.exp(0.05 * (position - 3 * n // 4)), weights)
    weights[0] = 0
    weights *= (1 - sink) / weights.sum()
    weights[0] = sink
    return weights.astype(np.float32), unit.astype(np.float32)


def confined_head(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Equal weights and nearly equal values: distances differ in their last digits only."""
    rng = np.random.default_rng(seed)
    values = np.ones((n, d)) + 1e-6 * rng.standard_normal((n, d))
    return np.full(n, 1 / n, np.float32), values.astype(np.float32)
