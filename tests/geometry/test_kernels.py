"""The kernels decide every comparison once: what one leaves in doubt the other takes up, bit for bit."""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from geometry.selection import head_kernels, host, kernels
from geometry.selection.bound_kernels import XI_SMALL, XI_STAR, bound_probability
from geometry.selection.kernels import (
    Head,
    compare_distances,
    count_doubtful,
    find_candidates,
    find_extremal_key,
    find_least,
    find_most,
    survey,
)
from tests.geometry import oracle

MOST, LEAST = np.float32(1), np.float32(-1)


def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Intervals of energies."""
    energy = rng.random(n, dtype=np.float32) * np.float32(1e-6)
    error = rng.random(n, dtype=np.float32) * np.float32(1e-6)
    return energy - error, energy + error


def test_a_key_in_doubt_is_decided_exactly_once() -> None:
    """All keys lie at the threshold, and the threshold's bounds at the very edge of a key's interval."""
    rng = np.random.default_rng(0)
    n, d = 64, 3
    alpha, states, s = np.ones(n), np.tile(rng.standard_normal(d), (n, 1)), rng.standard_normal(d)
    for _ in range(3000):
        low, high = draw(rng, n)
        edge = high[rng.integers(n)]
        threshold = edge, np.float32(edge + 1)
        sure, possible = survey(low, high, threshold, 0, n)
        found = count_doubtful(s, alpha, states, np.ones(n, np.float32), low, high, threshold, 0, 0, n)
        assert (found, sure + found) == (possible - sure, n)


def test_every_candidate_is_looked_at() -> None:
    """The last candidate is the extremum, and the others lie at the very edge of being candidates."""
    rng = np.random.default_rng(1)
    n, d = 16, 2
    alpha, states, s = np.ones(n), np.full((n, d), 0.5), np.zeros(d)
    states[-1] = 1
    for _ in range(3000):
        high = draw(rng, n)[1]
        high[-1] = 2
        for sign, ends in ((MOST, high), (LEAST, -high)):
            reach = ends[rng.integers(n)]
            first, final = find_candidates(ends, sign, reach, 0, n)
            assert (first, final) == (np.flatnonzero(high >= sign * reach)[0], n - 1)
            extremal = find_extremal_key(s, alpha, states, high, ends, sign, reach, first, final)
            assert extremal == (n - 1 if sign == MOST else first)


def test_the_range_of_keys_is_kept_to() -> None:
    rng = np.random.default_rng(2)
    low, high = draw(rng, 50)
    threshold = np.float32(2e-7), np.float32(4e-7)
    for start, stop in ((0, 1), (0, 50), (7, 41), (49, 50)):
        part = slice(start, stop)
        assert find_most(low, high, start, stop) == (low[part].max(), high[part].max())
        assert find_least(low, high, start, stop) == (low[part].min(), high[part].min())
        counted = (high[part] <= threshold[0]).sum(), (low[part] <= threshold[1]).sum()
        assert survey(low, high, threshold, start, stop) == counted
        first, final = find_candidates(high, MOST, high[part].max(), start, stop)
        assert first == final == start + high[part].argmax()


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


def enclose_all(head: Head) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.float32]]:
    """N, the interval of E of every key, and the size of the centre, for every N, as ``profile_head`` has them."""
    n, d = head.states.shape
    room = host.make_room(n, d)
    head_kernels.clear(room)
    for first in range(0, n - 1, head_kernels.TILE_ROWS):
        rows = min(head_kernels.TILE_ROWS, n - 1 - first)
        size = head_kernels.multiply_tile(head, first, rows, room)
        for row in range(first, first + rows):
            weight = 0 if row == head.sink else head.a[row]
            size += float(weight)
            head_kernels.add_key(
                head.alpha, head.states, head.sink, head.last, row, room.every, room.rest, room.but_last
            )
            kernels.advance(room.tile, row - first + 1, np.float32(weight))
            along, of_all = (head.along, size + float(head.a[head.sink])) if row >= head.sink else (room.nothing, size)
            reach = head_kernels.find_reach(head, of_all)
            kernels.enclose(room.tile, along, head.a, head.least, reach, head.bend, room.low, room.high)
            yield row + 1, room.low[:n].astype(float), room.high[:n].astype(float), of_all


def error_shares(head: Head) -> list[float]:
    """|middle of the interval of E − E in rational arithmetic| over half its width, for every key of every row.

    An interval without width, that of y = 0, must be 0.
    """
    y = [[Fraction(float(a)) * Fraction(float(x)) for x in v] for a, v in zip(head.alpha, head.states, strict=True)]
    shares = []
    for split, low, high, _ in enclose_all(head):
        exact = oracle.energies([sum(column) for column in zip(*y[:split], strict=True)], y)
        for value, below, above in zip(exact, map(Fraction, low), map(Fraction, high), strict=True):
            lifted = value * Fraction(head.factor) ** 2
            error = abs(lifted - (below + above) / 2)
            shares.append(float(2 * error / (above - below)) if above > below else float(error > 0) * 9)
    return shares


def arrange(weights: np.ndarray, values: np.ndarray, *, sink: bool) -> Head:
    return host.arrange(weights, host.prepare_keys(values), sink=sink)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_error_bound_holds_and_is_no_mere_guess(kind: type) -> None:
    """Against rational arithmetic, over the range of float32 and far beyond; it is not a hundred times too wide."""
    rng, shares = np.random.default_rng(5), []
    for _ in range(150):
        shares += error_shares(arrange(*extreme_head(rng, kind), sink=bool(rng.integers(2))))
    assert max(shares) <= 1
    assert max(shares) > 0.01


@pytest.mark.parametrize(
    "part",
    [
        {"slope": np.float32(0), "trifle": np.float32(0)},
        {"bend": np.float32(0), "trifle": np.float32(0)},
        {"trifle": np.float32(0)},
    ],
    ids=lambda part: "without " + " and ".join(part),
)
def test_an_error_bound_without_one_of_its_parts_would_not_hold(part: dict[str, np.float32]) -> None:
    rng = np.random.default_rng(5)
    heads = (arrange(*extreme_head(rng, np.float64), sink=True)._replace(**part) for _ in range(150))
    assert max(max(error_shares(head)) for head in heads) > 1


def test_an_error_bound_without_a_floor_would_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "FLOOR", 0.0)
    rng = np.random.default_rng(5)
    heads = (arrange(*extreme_head(rng, np.float64), sink=True) for _ in range(150))
    assert max(max(error_shares(head)) for head in heads) > 1


def test_the_size_of_a_centre_counts_the_sink_and_every_key_of_a_tile() -> None:
    """All weight on a sink of long values: without its norm the bound would not hold."""
    rng = np.random.default_rng(6)
    weights, values = np.full(200, 0.001 / 199, np.float32), rng.standard_normal((200, 8)).astype(np.float32)
    weights[0] = 0.999
    values[0] *= 1000
    y = (weights[:, None].astype(float) * values)[np.argsort(-weights, kind="stable")]
    for sink in (True, False):
        head = arrange(weights, values, sink=sink)
        for size, _, _, reach in enclose_all(head):
            s = y[:size].sum(axis=0)
            norms = [np.linalg.norm(s), *([np.linalg.norm(s - y[0])] if sink else [])]
            assert max(norms) * head.factor <= reach * (1 + 1e-6)


def test_p_is_that_of_the_definition() -> None:
    xi = np.concatenate([np.linspace(0, 12, 20001), [XI_STAR, 100.0, 1e30]]).astype(np.float32)
    found = np.array([bound_probability(x) for x in xi])
    np.testing.assert_allclose(found, oracle.p(xi.astype(float)), rtol=0, atol=1e-7)
    assert abs(xi[found.argmax()] - XI_STAR) < 1e-2


def test_p_of_a_small_xi_keeps_its_digits() -> None:
    """As far as p is a normal number; with 1 in place of ξ² it does not."""
    xi = np.float32(2.0) ** np.arange(-124, 1, dtype=np.float32)
    found, exact = np.array([bound_probability(x) for x in xi]), oracle.p(xi.astype(float))
    np.testing.assert_allclose(found, exact, rtol=1e-6)
    assert (np.abs(oracle.p(1.0) * xi / exact - 1) > 1e-6)[:-1].all()
    assert np.float32(XI_SMALL) ** 2 / 2 >= np.finfo(np.float32).tiny
