"""The kernels decide every comparison once: what one leaves in doubt the other takes up, bit for bit."""

import numpy as np

from geometry.kernels import decide, doubtful_within, extremal_key

MOST = np.float32(1)


def test_a_key_in_doubt_is_decided_exactly_once() -> None:
    """All keys lie at the threshold, and the threshold's bounds at the very edge of a key's error bound."""
    rng = np.random.default_rng(0)
    n, d = 64, 3
    y, s = np.tile(rng.standard_normal(d), (n, 1)), rng.standard_normal(d)
    norm2 = np.full(n, (y[0] ** 2).sum())
    for _ in range(3000):
        energy, slope, bend = (rng.random(n, dtype=np.float32) * np.float32(scale) for scale in (1e-6, 1e-5, 1e-7))
        size, k = np.float32(rng.random() * 3), rng.integers(n)
        edge = energy[k] + (slope[k] * size + bend[k])
        lower, upper = edge, np.float32(edge + 1)
        _, sure, doubtful = decide(energy, slope, bend, size, MOST, np.float32(9), lower, upper)
        found = doubtful_within(s, y, norm2, energy, slope, bend, size, lower, upper, y[0], norm2[0])
        assert (found, sure + found) == (doubtful, n)


def test_every_candidate_is_looked_at() -> None:
    """The last candidate is the extremum, and the others lie at the very edge of being candidates."""
    rng = np.random.default_rng(1)
    n, d = 16, 2
    s = np.zeros(d)
    for _ in range(3000):
        y = np.full((n, d), 0.5)
        y[-1] = 1.0
        energy, slope, bend = (rng.random(n, dtype=np.float32) * np.float32(scale) for scale in (1e-6, 1e-5, 1e-7))
        energy[-1] = 1
        size = np.float32(rng.random() * 3)
        edges = np.sort(energy + (slope * size + bend))
        reach = edges[rng.integers(n)]
        candidates, _, _ = decide(energy, slope, bend, size, MOST, reach, np.float32(0), np.float32(0))
        norm2 = (y**2).sum(1)
        assert extremal_key(s, y, norm2, energy, slope, bend, size, MOST, reach, candidates) == n - 1
