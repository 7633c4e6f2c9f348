"""Norms, cosines and principal directions of value states against SciPy, pair by pair, and by decompositions."""

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from geometry.assumptions import values as module
from geometry.assumptions.values import (
    DirectionMoments,
    PrincipalDirections,
    estimate_variation,
    summarise_cosines,
    variation,
)
from tests.geometry.comparison import cosine_by_distance, cosines_with

NORMS = np.random.default_rng(0).gamma(9, size=(5, 7))


class TestNorms:
    @staticmethod
    def literally(norms: np.ndarray) -> float:
        """√(mean over pairs of different sequences of the covariance over positions) / mean."""
        pairs = [np.mean((a - a.mean()) * (b - b.mean())) for a, b in permutations(norms, 2)]
        return float(np.sqrt(max(np.mean(pairs), 0)) / norms.mean())

    def test_variation_is_that_of_scipy(self) -> None:
        np.testing.assert_allclose(variation(NORMS), stats.variation(NORMS, axis=1))
        np.testing.assert_array_equal(variation([[0, 0], [2, 2]]), [np.nan, 0])
        assert np.isnan(variation([3.0]))

    def test_the_expected_norm_varies_as_products_of_different_sequences(self) -> None:
        norms = NORMS + np.arange(7)
        whole, left_out = estimate_variation(norms)
        assert whole == pytest.approx(self.literally(norms))
        np.testing.assert_allclose(left_out, [self.literally(np.delete(norms, left, axis=0)) for left in range(5)])
        by_chance = 1 + np.array([[0.1, -0.1, 0], [-0.1, 0.1, 0]])  # a variance below 0 is 0
        assert estimate_variation(by_chance)[0] == 0

    @pytest.mark.parametrize("norms", [NORMS[:1], NORMS[:, :1], np.zeros((4, 3)), NORMS[:2] + np.arange(7)])
    def test_without_sequences_positions_or_norms_there_is_none(self, norms: np.ndarray) -> None:
        """Of two sequences none is known without one."""
        whole, left_out = estimate_variation(norms)
        assert np.isnan(whole) == (norms.shape != (2, 7))
        assert np.isnan(left_out).all()
        assert left_out.shape == (len(norms),)


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


def draw_walk(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Value states that resemble their neighbours."""
    return np.cumsum(np.random.default_rng(seed).standard_normal((n, d)), axis=0)


WALKS: dict[str, np.ndarray] = {
    "float32": draw_walk(40, 6).astype(np.float32),
    "zeros": draw_walk(30, 4, 3) * (np.random.default_rng(4).permutation(30) % 3 > 0)[:, None],
    "one of two": np.array([[1.0, 0], [0, 0], [1, 1], [0, 0], [0, 0]]),
    "huge": 1e300 * draw_walk(9, 4),
    "tiny float32": (1e-44 * draw_walk(9, 4)).astype(np.float32),
    "mixed": draw_walk(20, 4) * np.logspace(-200, 200, 20)[:, None],
    "same": np.ones((12, 5)),
    "two": draw_walk(2, 2),
    "one": draw_walk(1, 2),
    "all zero": np.zeros((6, 2)),
}


class TestCosines:
    """By distance, with the sink and with any other, against the definitions."""

    @pytest.mark.parametrize("kind", WALKS)
    def test_they_are_those_of_pairs(self, kind: str) -> None:
        """Means by distance, those with one, and of those with the sink the mean over all others and its spread."""
        found = cosine_by_distance(WALKS[kind])
        assert (found.dtype, found.shape) == (np.float64, (len(WALKS[kind]),))
        np.testing.assert_allclose(found, by_distance(WALKS[kind]), rtol=0, atol=1e-12)
        assert not (np.abs(found) > 1).any()
        values = WALKS[kind].astype(np.float64)
        for index in (0, -1):
            found = cosines_with(WALKS[kind], index)
            wanted = np.array([cosine(values[index], other) for other in values])
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
            assert not (np.abs(found) > 1).any()
            assert found[index] == 1 or not values[index].any()
        known = (of_sink := cosines_with(WALKS[kind], 0)[1:])[~np.isnan(of_sink)]
        spread = (known.mean(), known.std()) if known.size else (np.nan, np.nan)
        np.testing.assert_allclose(summarise_cosines(cosines_with(WALKS[kind], 0)), spread, atol=1e-14)

    @pytest.mark.parametrize(
        "reading",
        [lambda v: by_distance(v, first=0), lambda v: by_distance(v, undirected=0.0), lambda v: by_distance(v[::-1])],
        ids=["with the sink", "pairs of zeros count", "the last one for the sink"],
    )
    def test_wrong_readings_differ(self, reading: Callable[[np.ndarray], np.ndarray]) -> None:
        values = WALKS["zeros"]
        assert np.nanmax(np.abs(cosine_by_distance(values) - reading(values))) > 1e-3


def draw(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Value states with a mean, of unequal spread along their axes, and of unequal norms."""
    rng = np.random.default_rng(seed)
    states = rng.standard_normal((n, d)) * np.linspace(2, 0.3, d) + 0.4
    return (states @ np.linalg.qr(rng.standard_normal((d, d)))[0]) * rng.lognormal(size=(n, 1))


KINDS: dict[str, np.ndarray] = {
    "six": draw(200, 6),
    "float32": draw(90, 4, 2).astype(np.float32),
    "two": draw(50, 2),
    "one": np.array([[2.0], [3.0], [-1.0], [5.0]]),
    "zeros": draw(60, 5, 1) * (np.arange(60) % 4 > 0)[:, None],
    "few": draw(2, 8, 5),
    "huge": 1e300 * draw(40, 4),
    "tiny": 1e-300 * draw(40, 4),
}


def unit(values: np.ndarray) -> np.ndarray:
    """Unit vectors of what has a direction, one by one."""
    scaled = [v / np.abs(v).max() for v in values.astype(np.float64) if v.any()]
    return np.array([v / np.sqrt(v @ v) for v in scaled])


def decomposed(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shares, (d), and axes, (d, d), of vectors about the origin."""
    _, strength, axes = np.linalg.svd(rows, full_matrices=True)
    squares = np.zeros(rows.shape[1])
    squares[: len(strength)] = strength**2
    return squares / squares.sum(), axes


def of(values: np.ndarray, block: int = 17) -> PrincipalDirections:
    moments = DirectionMoments(values.shape[1])
    for first in range(0, len(values), block):
        moments.add(values[first : first + block])
    found = moments.compute_directions()
    assert found is not None
    return found


class TestDirections:
    """Principal directions against a singular value decomposition of all unit vectors at once."""

    @staticmethod
    def agrees(values: np.ndarray, reading: Callable = decomposed, given: Callable = unit) -> bool:
        """Whether shares and points are those of a decomposition of all at once."""
        found, rows, d = of(values), given(values), values.shape[1]
        shares, axes = reading(rows)
        padded = np.concatenate([shares, np.zeros(max(0, 3 - d))])
        kept = min(3, np.linalg.matrix_rank(rows))
        axes = axes[:kept] * np.where(axes[:kept] @ unit(values).mean(axis=0) < 0, -1, 1)[:, None]
        points, wanted = found.project(values[values.any(axis=1)])[:, :kept], unit(values) @ axes.T
        return bool(
            np.allclose(found.shares, padded, atol=1e-12)
            and np.allclose(found.effective_dimension, 1 / (shares**2).sum(), rtol=1e-9)
            and np.allclose(points, wanted, atol=1e-9)
        )

    @pytest.mark.parametrize("kind", KINDS)
    def test_they_are_those_of_a_singular_value_decomposition(self, kind: str) -> None:
        assert self.agrees(KINDS[kind])
        found, d = of(KINDS[kind]), KINDS[kind].shape[1]
        np.testing.assert_allclose(found.axes @ found.axes.T, np.diag(np.arange(3) < d), atol=1e-12)
        assert (np.diff(found.shares) <= 0).all()
        assert found.shares.min() >= 0

    @pytest.mark.parametrize(
        ("reading", "given"),
        [
            (lambda rows: decomposed(rows - rows.mean(axis=0)), unit),
            (decomposed, lambda values: values / np.abs(values).max()),  # not unit vectors
        ],
    )
    def test_other_readings_are_noticed(self, reading: Callable, given: Callable) -> None:
        assert not self.agrees(KINDS["six"], reading, given)

    def test_axes_of_balanced_directions_have_a_positive_largest_component(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The mean is 0 but for rounding, which must not choose the side."""
        half = draw(40, 4, 3)
        values = np.concatenate([half, -half[::-1]])
        axes = of(values).axes
        assert (axes[np.arange(3), np.abs(axes).argmax(axis=1)] > 0).all()
        np.testing.assert_allclose(of(-values).axes, axes, atol=1e-9)
        monkeypatch.setattr(module, "BALANCED", 0.0)
        assert any(not np.allclose(of(sign * values, block).axes, axes) for sign in (1, -1) for block in (7, 17, 80))

    def test_nothing_with_a_direction_has_none(self) -> None:
        moments = DirectionMoments(3)
        moments.add(np.zeros((4, 3)))
        assert moments.compute_directions() is None
        points = of(KINDS["six"]).project(np.concatenate([np.zeros((1, 6)), KINDS["six"][:3]]))
        np.testing.assert_array_equal(np.isnan(points).all(axis=1), [True, False, False, False])
