"""The kernels decide every comparison once: what one leaves in doubt the other takes up, bit for bit."""

import numpy as np

from geometry.bounds import XI_STAR, bound_probability
from geometry.kernels import doubtful_within, enclose, extremal_key, farther_by, survey
from tests.geometry import oracle

MOST, LEAST = np.float32(1), np.float32(-1)


def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.float32]:
    """Energies, factors of which only those of the error bound count, and the size of the centre."""
    energy = rng.random(n, dtype=np.float32) * np.float32(1e-6)
    factors = rng.random((4, n), dtype=np.float32) * np.float32([[1], [1], [1e-5], [1e-7]])
    return energy, factors, np.float32(rng.random() * 3)


def test_a_key_in_doubt_is_decided_exactly_once() -> None:
    """All keys lie at the threshold, and the threshold's bounds at the very edge of a key's error bound."""
    rng = np.random.default_rng(0)
    n, d = 64, 3
    alpha, states, s = np.ones(n), np.tile(rng.standard_normal(d), (n, 1)), rng.standard_normal(d)
    for _ in range(3000):
        energy, factors, size = draw(rng, n)
        k = rng.integers(n)
        edge = energy[k] + (factors[2, k] * size + factors[3, k])
        interval = edge, np.float32(edge + 1)
        _, _, sure, possible = survey(energy, factors, size, MOST, np.float32(9), interval, 0, n)
        found = doubtful_within(s, alpha, states, energy, factors, size, interval, 0, 0, n)
        assert (found, sure + found) == (possible - sure, n)


def test_every_candidate_is_looked_at() -> None:
    """The last candidate is the extremum, and the others lie at the very edge of being candidates."""
    rng = np.random.default_rng(1)
    n, d = 16, 2
    alpha, states, s = np.ones(n), np.full((n, d), 0.5), np.zeros(d)
    states[-1] = 1
    for _ in range(3000):
        energy, factors, size = draw(rng, n)
        energy[-1] = 1
        reach = np.sort(energy + (factors[2] * size + factors[3]))[rng.integers(n)]
        candidates, first, _, _ = survey(energy, factors, size, MOST, reach, (reach, reach), 0, n)
        reached = np.flatnonzero(energy + (factors[2] * size + factors[3]) >= reach)
        assert (candidates, first) == (len(reached), reached[0])
        assert extremal_key(s, alpha, states, energy, factors, size, MOST, reach, first, n) == n - 1


def test_the_range_of_keys_is_kept_to() -> None:
    rng = np.random.default_rng(2)
    products, less = rng.standard_normal((2, 50)).astype(np.float32)
    _, factors, size = draw(rng, 50)
    for start, stop in ((0, 1), (0, 50), (7, 41), (49, 50)):
        energy = np.full(50, 7, np.float32)
        low, high = enclose(products, less, factors, size, LEAST, energy, start, stop)
        expected = (factors[1] - factors[0] * products - less)[start:stop]
        error = (factors[2] * size + factors[3])[start:stop]
        np.testing.assert_allclose(energy[start:stop], expected, rtol=1e-6)
        assert (np.delete(energy, np.s_[start:stop]) == 7).all()
        np.testing.assert_allclose([low, high], [(-expected - error).max(), (-expected + error).max()], rtol=1e-6)


def test_differences_keep_the_last_digits_of_neighbours() -> None:
    """Two float64 keys one rounding apart, the centre being one of them: y + o − 2s would be rounded to 0."""
    y = 1 / 3
    states = np.array([[y], [np.nextafter(y, 1)]])
    apart = states[1, 0] - y
    assert farther_by(states[0], np.ones(2), states, 1, 0) == apart**2
    assert farther_by(states[0], np.ones(2), states, 0, 1) == -(apart**2)
    assert farther_by(states[0], np.ones(2), states, 1, 1) == 0


def test_p_is_that_of_the_definition() -> None:
    xi = np.concatenate([np.linspace(0, 12, 20001), [XI_STAR, 100.0, 1e100]])
    found = np.array([bound_probability(x) for x in xi])
    np.testing.assert_allclose(found, oracle.p(xi), rtol=0, atol=1e-12)
    assert found.argmax() == 20001
