"""Cosines by distance and with the sink against the definitions, pair by pair."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.geometry.comparison import cosine_by_distance, cosines_with, sink_cosines


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """cos(a, b), NaN if either has norm 0; divided by the largest component first, so that no square overflows."""
    if not a.any() or not b.any():
        return np.nan
    a, b = a / np.abs(a).max(), b / np.abs(b).max()
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def by_distance(values: np.ndarray, *, first: int = 1, undirected: float = np.nan) -> np.ndarray:
    """Mean over all pairs from ``first`` on; ``undirected`` stands for a pair that has no cosine."""
    values = values.astype(np.float64)
    n = len(values)
    pairs: list[list[float]] = [[] for _ in range(n)]
    for i in range(first, n):
        for j in range(i, n):
            c = cosine(values[i], values[j])
            pairs[j - i].append(undirected if np.isnan(c) else c)
    known = [[c for c in found if not np.isnan(c)] for found in pairs]
    return np.array([sum(found) / len(found) if found else np.nan for found in known])


def draw(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Value states that resemble their neighbours."""
    return np.cumsum(np.random.default_rng(seed).standard_normal((n, d)), axis=0)


def with_zeros(n: int, d: int) -> np.ndarray:
    values = draw(n, d, 3)
    values[1 + np.random.default_rng(4).permutation(n - 1)[: n // 3]] = 0
    return values


KINDS: dict[str, np.ndarray] = {
    "float32": draw(40, 6).astype(np.float32),
    "float64": draw(37, 3),
    "zeros": with_zeros(30, 4),
    "one of two": np.array([[1.0, 0], [0, 0], [1, 1], [0, 0], [0, 0]]),
    "huge": 1e300 * draw(9, 4),
    "tiny": 1e-300 * draw(9, 4),
    "tiny float32": (1e-44 * draw(9, 4)).astype(np.float32),
    "mixed": draw(20, 4) * np.logspace(-200, 200, 20)[:, None],
    "same": np.ones((12, 5)),
    "three": draw(3, 2),
    "two": draw(2, 2),
    "one": draw(1, 2),
    "all zero": np.zeros((6, 2)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_mean_cosine_by_distance_is_the_mean_over_all_pairs(kind: str) -> None:
    values = KINDS[kind]
    found = cosine_by_distance(values)
    assert found.dtype == np.float64
    assert found.shape == (len(values),)
    assert np.isnan(found[-1])
    np.testing.assert_allclose(found, by_distance(values), rtol=0, atol=1e-12)
    assert not (np.abs(found) > 1).any()


@pytest.mark.parametrize("kind", KINDS)
def test_the_sinks_cosines_are_those_with_all_others(kind: str) -> None:
    values = KINDS[kind].astype(np.float64)
    cosines = np.array([cosine(values[0], other) for other in values[1:]])
    known = cosines[~np.isnan(cosines)]
    mean, spread = sink_cosines(KINDS[kind])
    wanted = (known.mean(), np.sqrt(((known - known.mean()) ** 2).mean())) if known.size else (np.nan, np.nan)
    np.testing.assert_allclose((mean, spread), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("index", [0, -1, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_cosines_with_one_are_those_of_every_pair_with_it(kind: str, index: int) -> None:
    values = KINDS[kind]
    index = min(index, len(values) - 1)
    found, one = cosines_with(values, index), values[index].astype(np.float64)
    wanted = np.array([cosine(one, other.astype(np.float64)) for other in values])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
    assert found.dtype == np.float64
    assert not (np.abs(found) > 1).any()
    assert found[index] == 1 or not one.any()


@pytest.mark.parametrize("kind", ["float32", "zeros"])
def test_the_mean_of_the_cosines_with_the_sink_is_rho_0(kind: str) -> None:
    values = KINDS[kind]
    assert np.nanmean(cosines_with(values, 0)[1:]) == pytest.approx(sink_cosines(values)[0], abs=1e-14)
    assert np.nanmean(cosines_with(values, -1)[:-1]) != pytest.approx(sink_cosines(values)[0], abs=1e-3)


def test_cosines_with_one_of_part_of_the_positions_are_the_same() -> None:
    values = np.stack([draw(33, 5, seed) for seed in range(4)]).reshape(2, 2, 33, 5).astype(np.float32)
    whole = cosines_with(values, 20)
    assert whole.shape == (2, 2, 33)
    np.testing.assert_array_equal(cosines_with(values[:, :, 4:21], -1), whole[:, :, 4:21])
    assert (cosines_with(values[:, :, 4:22], -1) != whole[:, :, 4:22]).any()


@pytest.mark.parametrize(
    "reading",
    [lambda v: by_distance(v, first=0), lambda v: by_distance(v, undirected=0.0), lambda v: by_distance(v[::-1])],
    ids=["with the sink", "pairs of zeros count", "the last one for the sink"],
)
def test_wrong_readings_differ(reading: Callable[[np.ndarray], np.ndarray]) -> None:
    values = KINDS["zeros"]
    difference = np.abs(cosine_by_distance(values) - reading(values))
    assert np.nanmax(difference) > 1e-3


def test_the_sink_changes_no_cosine_by_distance_and_its_length_no_cosine_at_all() -> None:
    values = draw(16, 4)
    longer = values * np.where(np.arange(16) == 0, 1e3, 1.0)[:, None]
    other = values.copy()
    other[0] = -values[0] + 1
    np.testing.assert_array_equal(cosine_by_distance(values), cosine_by_distance(other))
    np.testing.assert_allclose(sink_cosines(values), sink_cosines(longer), rtol=0, atol=1e-14)
    assert sink_cosines(values)[0] != sink_cosines(other)[0]


def test_heads_are_taken_one_by_one() -> None:
    values = np.stack([[draw(11, 3, 5 * layer + head) for head in range(3)] for layer in range(2)]).astype(np.float32)
    cosines, (mean, spread) = cosine_by_distance(values), sink_cosines(values)
    assert cosines.shape == (2, 3, 11)
    assert mean.shape == spread.shape == (2, 3)
    for index in np.ndindex(2, 3):
        np.testing.assert_array_equal(cosines[index], cosine_by_distance(values[index]))
        assert (mean[index], spread[index]) == tuple(float(x) for x in sink_cosines(values[index]))
    assert cosine_by_distance(values[:0]).shape == (0, 3, 11)
