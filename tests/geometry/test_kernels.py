"""The kernels decide every comparison once: what one leaves in doubt the other takes up, bit for bit."""

from fractions import Fraction

import numpy as np
import pytest

from geometry.selection import host
from geometry.selection.bound_kernels import XI_STAR, bound_probability
from geometry.selection.kernels import compare_distances, count_doubtful, enclose, find_extremal_key, survey
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
        found = count_doubtful(s, alpha, states, energy, factors, size, interval, 0, 0, n)
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
        assert find_extremal_key(s, alpha, states, energy, factors, size, MOST, reach, first, n) == n - 1


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
    assert compare_distances(states[0], np.ones(2), states, 1, 0) == apart**2
    assert compare_distances(states[0], np.ones(2), states, 0, 1) == -(apart**2)
    assert compare_distances(states[0], np.ones(2), states, 1, 1) == 0


def extreme_head(rng: np.random.Generator, kind: type) -> tuple[np.ndarray, np.ndarray]:
    """Weights down to 2⁻¹⁴⁰ and value states whose norms lie up to 2¹⁷⁰ apart, or neither."""
    n, d = int(rng.integers(3, 8)), int(rng.choice([1, 2, 5, 16]))
    least = -150 if rng.random() < 0.5 else -20
    values = rng.standard_normal((n, d)) * np.exp2(rng.uniform(least, 19, (n, 1)))
    weights = np.exp2(rng.uniform(-140 if rng.random() < 0.5 else -5, 0, n))
    return (weights / weights.sum()).astype(kind), values.clip(-(2.0**19), 2.0**19).astype(kind)


def error_shares(head: host.Head) -> list[float]:
    """|E in float32 − E in rational arithmetic| over its error bound δ, for every key of every row; y = 0 excepted."""
    y = [[Fraction(float(a)) * Fraction(float(x)) for x in v] for a, v in zip(head.alpha, head.states, strict=True)]
    shares, energy = [], np.empty(len(y), np.float32)
    for tile in host.iterate_tiles(head):
        for row, size in enumerate(host.bound_centre_norms(head, tile)):
            split = tile.first + row + 1
            less = head.less if head.sink < split else np.zeros_like(head.less)
            enclose(tile.products[row], less, head.factors, size, MOST, energy, 0, len(y))
            bound = head.factors[2] * size + head.factors[3]
            exact = oracle.energies([sum(column) for column in zip(*y[:split], strict=True)], y)
            errors = (abs(Fraction(float(e)) - x * 2**head.lift) for e, x in zip(energy, exact, strict=True))
            shares += [
                float(error / Fraction(float(b))) if b > 0 else float(error > 0) * 9
                for error, b in zip(errors, bound, strict=True)
            ]
    return shares


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_error_bound_holds_and_is_no_mere_guess(kind: type) -> None:
    """Against rational arithmetic, over the range of float32 and far beyond; it is not a hundred times too wide."""
    rng, shares = np.random.default_rng(5), []
    for _ in range(150):
        shares += error_shares(host.arrange(*extreme_head(rng, kind), sink=bool(rng.integers(2))))
    assert max(shares) <= 1
    assert max(shares) > 0.01


def test_an_error_bound_without_underflow_would_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "bound_underflow", lambda alpha, *_: 0 * alpha)
    rng = np.random.default_rng(5)
    heads = (host.arrange(*extreme_head(rng, np.float64), sink=True) for _ in range(150))
    assert max(max(error_shares(head)) for head in heads) > 1


def test_the_size_of_a_centre_counts_the_sink() -> None:
    """All weight on a sink of long values: without its norm the bound would not hold."""
    rng = np.random.default_rng(6)
    values = rng.standard_normal((6, 8)).astype(np.float32)
    values[0] *= 1000
    head = host.arrange(np.array([0.999, *[0.0002] * 5], np.float32), values, sink=True)
    (tile,) = host.iterate_tiles(head)
    np.testing.assert_allclose(
        host.bound_centre_norms(head, tile), tile.size + np.linalg.norm(0.999 * values[0]), rtol=1e-6
    )
    without = host.arrange(np.array([0.999, *[0.0002] * 5], np.float32), values, sink=False)
    (tile,) = host.iterate_tiles(without)
    np.testing.assert_allclose(host.bound_centre_norms(without, tile), tile.size, rtol=1e-6)


def test_p_is_that_of_the_definition() -> None:
    xi = np.concatenate([np.linspace(0, 12, 20001), [XI_STAR, 100.0, 1e100]])
    found = np.array([bound_probability(x) for x in xi])
    np.testing.assert_allclose(found, oracle.p(xi), rtol=0, atol=1e-12)
    assert found.argmax() == 20001
