"""Heads to test with: random ones, ones drawn from the paper's assumptions, and awkward ones."""

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

Head = Callable[[int, int, int], tuple[np.ndarray, np.ndarray]]
"""Draws weights (n,) and values (n, d) of one head from n, d and a seed."""


def softmax(logits: np.ndarray) -> np.ndarray:
    """Rounded to float32."""
    return softmax_rows(logits).astype(np.float32)


def softmax_rows(logits: np.ndarray) -> np.ndarray:
    """Row by row, in float64."""
    rows = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return rows / rows.sum(axis=-1, keepdims=True)


def random_head(n: int, d: int, seed: int, spread: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Softmax weights of normal logits with a heavy first key, and normal values with a common part."""
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal(n) * spread
    logits[0] += 2 * spread
    values = rng.standard_normal((n, d)) + 0.7 * rng.standard_normal(d)
    values[0] *= 0.1
    return softmax(logits), values.astype(np.float32)


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
    position, growth = np.arange(n), 0.05 * min(1, 1024 / n)  # long contexts end with the weights of shorter ones
    weights = 1 + 0.5 * np.cos(0.3 * position) * (position > n // 4)
    weights = np.where(position > 3 * n // 4, np.exp(growth * (position - 3 * n // 4)), weights)
    weights[0] = 0
    weights *= (1 - sink) / weights.sum()
    weights[0] = sink
    return weights.astype(np.float32), unit.astype(np.float32)


def confined_head(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Equal weights and nearly equal values: distances differ in their last digits only."""
    rng = np.random.default_rng(seed)
    values = np.ones((n, d)) + 1e-6 * rng.standard_normal((n, d))
    return np.full(n, 1 / n, np.float32), values.astype(np.float32)


def repeated_head(n: int, d: int, seed: int, distinct: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """A few tokens over and over, each time with the same weight and value state: most keys are true ties."""
    rng = np.random.default_rng(seed)
    token = rng.integers(distinct, size=n)
    logits, values = rng.standard_normal(distinct)[token], rng.standard_normal((distinct, d))[token]
    logits[0] += 1
    return softmax(logits), values.astype(np.float32)


def underflowed_head(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Half of the weights are exactly 0, at random positions."""
    weights, values = random_head(n, d, seed)
    hidden = np.random.default_rng(seed + 1).permutation(np.arange(1, n))[: n // 2]
    weights[hidden] = 0
    return weights, values


def zeroed_head(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A third of the value states is exactly 0, at random positions."""
    weights, values = random_head(n, d, seed)
    values[np.random.default_rng(seed + 1).permutation(n)[: n // 3]] = 0
    return weights, values


def saturated_head(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights from almost 1 down to e^−100, which float32 holds as subnormal numbers, in no order."""
    rng = np.random.default_rng(seed)
    _, values = random_head(n, d, seed)
    return softmax(-100 * rng.permutation(n) / max(n - 1, 1)), values


def sunk_head(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The sink takes all weight but e^−60: what the others add to s_N is far below its rounding in float32."""
    rng = np.random.default_rng(seed)
    logits = 3 * rng.standard_normal(n)
    logits[0] = logits.max() + 60
    return softmax(logits), random_head(n, d, seed)[1]


def balanced_head(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Equal weights and unit vectors, each followed by its opposite: for every even N s_N is 0 and all D are equal but
    for the rounding of the vectors.
    """
    unit = np.random.default_rng(seed).standard_normal(((n + 1) // 2, d))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    return np.full(n, 1 / n, np.float32), np.stack([unit, -unit], axis=1).reshape(-1, d)[:n].astype(np.float32)


def aligned_head(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Value states about a common direction and weights that fall by a tenth each: the heavier a key, the nearer to s.

    So no pair has a negative ξ, and where p is largest depends on how ξ runs past ξ*.
    """
    rng = np.random.default_rng(seed)
    values = 1 + 0.05 * rng.standard_normal((n, d))
    values[0] *= 0.1
    return softmax(0.1 * rng.permutation(n)), (values / np.sqrt(d)).astype(np.float32)


def twin_head(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """As an aligned head, but every other key has the weight of the key before it, and its value state but for a trace
    of one component: for odd N a selected key and one left out can hardly be told apart in float32.
    """
    weights, values = (array.repeat(2, axis=0)[:n] for array in aligned_head((n + 1) // 2, d, seed))
    changed = np.arange(1, n, 2), np.random.default_rng(seed).integers(d, size=n // 2)
    values[changed] *= np.float32(1 + 2.0**-18)
    return (weights / weights.sum(dtype=np.float64)).astype(np.float32), values


def near_head(n: int, d: int, seed: int, kind: type = np.float64) -> tuple[np.ndarray, np.ndarray]:
    """Equal weights, and value states that differ in the last bit of one component."""
    rng = np.random.default_rng(seed)
    values = np.tile(rng.standard_normal(d).astype(kind), (n, 1))
    for key in range(1, n):
        component = rng.integers(d)
        values[key, component] = np.nextafter(values[key, component], kind(9), dtype=kind)
    return np.full(n, 1 / 16, kind), values


def correlated_noise(n: int, time: float, rng: np.random.Generator) -> np.ndarray:
    """Normal noise (n,) of variance 1 with the autocorrelation e^(−l/time) at lag l; independent for ``time`` 0."""
    noise, r = rng.standard_normal(n), np.exp(-1 / time) if time else 0.0
    for i in range(1, n):
        noise[i] = r * noise[i - 1] + np.sqrt(1 - r * r) * noise[i]
    return noise


def extreme_head(rng: np.random.Generator, kind: type) -> tuple[np.ndarray, np.ndarray]:
    """Weights down to 2⁻¹⁴⁰ and value states whose norms lie up to 2¹⁷⁰ apart, or neither; of some tiles or less."""
    n, d = int(rng.integers(3, 24)), int(rng.choice([1, 2, 5, 16]))
    least = -150 if rng.random() < 0.5 else -20
    values = rng.standard_normal((n, d)) * np.exp2(rng.uniform(least, 19, (n, 1)))
    weights = np.exp2(rng.uniform(-140 if rng.random() < 0.5 else -5, 0, n))
    return (weights / weights.sum()).astype(kind), values.clip(-(2.0**19), 2.0**19).astype(kind)


def grouped(kind: Head, kv_heads: int, group: int, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Heads that share value states: weights (kv_heads, group, n) and values (kv_heads, 1, n, d)."""
    drawn = [[kind(n, d, 97 * kv_head + head) for head in range(group)] for kv_head in range(kv_heads)]
    weights = np.array([[weights for weights, _ in heads] for heads in drawn])
    return weights, np.array([[heads[0][1]] for heads in drawn])


def small_heads() -> st.SearchStrategy[tuple[np.ndarray, np.ndarray]]:
    """Weights in 64ths, many of them equal or 0, and small whole values, many repeated: every sum is exact."""

    def build(n: int) -> st.SearchStrategy[tuple[np.ndarray, np.ndarray]]:
        weight = st.sampled_from([0, 0, 1, 1, 2, 3, 64 // n])
        vector = st.lists(st.integers(-3, 3), min_size=2, max_size=2)
        return st.tuples(
            st.lists(weight, min_size=n, max_size=n).map(lambda ks: np.array(ks, np.float32) / 64),
            st.lists(vector, min_size=n, max_size=n).map(lambda rows: np.array(rows, np.float32)),
        ).filter(lambda head: 0 < head[0].sum() <= 1)

    return st.integers(2, 12).flatmap(build)


HEADS: dict[str, Head] = {
    "random": random_head,
    "assumed": assumed_head,
    "confined": confined_head,
    "repeated": repeated_head,
    "underflowed": underflowed_head,
    "zeroed": zeroed_head,
    "saturated": saturated_head,
    "sunk": sunk_head,
    "balanced": balanced_head,
    "aligned": aligned_head,
    "twins": twin_head,
}
"""Every kind of head, by name."""


def draw_layer(
    kind: str, *, n: int, window: int, kv_heads: int = 1, group: int = 2, start: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights (H, R, K), value states and first keys of heads of a kind whose queries see ``window`` keys at most."""
    first = np.maximum(0, np.arange(start, n) + 1 - window)
    weights = np.zeros((kv_heads * group, n - start, n), np.float32)
    for (head, row), begin in np.ndenumerate(np.broadcast_to(first, weights.shape[:2])):
        seen = slice(begin, start + row + 1)
        weights[head, row, seen] = HEADS[kind](seen.stop - begin, 8, 1000 * head + row)[0]
    return weights, np.stack([HEADS[kind](n, 8, head)[1] for head in range(kv_heads)]), first
