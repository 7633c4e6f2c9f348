"""The scale-free bound: against its note read literally, against simulated truth, and wrong bounds that must show."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from geometry import selection_counts
from geometry.bounds import scale_free
from geometry.bounds.scale_free import ScaleFreeBounds, scale_free_lower_bounds
from tests.geometry.scale_free_note import literal, rate

SHAPES = {
    "flat": np.ones,
    "zipf": lambda n: 1 / np.arange(1.0, n + 1),
    "steep": lambda n: np.exp(-np.arange(n) / 3),
    "spike": lambda n: np.r_[30.0, np.ones(n - 1)],
    "block": lambda n: np.r_[np.ones(6), np.full(n - 6, 1e-3)],
    "zeros": lambda n: np.r_[np.ones(n // 2), np.zeros(n - n // 2)],
}
"""Weights in order of rank; the norms below make their order differ from that of a."""

DRAWS = 400

ERROR = 1e-11  # Of the rate from the logarithm of a tail: an order more than the stated relative error of the tail


def head(shape: str, n: int, *, sink: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Weights (n,) at shuffled positions, and norms (n,), that of the sink a tenth of the others'."""
    rng = np.random.default_rng(n)
    weights = rng.permutation(SHAPES[shape](n))
    norms = rng.uniform(0.8, 1.2, n)
    if sink:
        weights[0] = weights.sum()
        norms[0] = 0.1
    return weights / weights.sum(), norms


@cache
def literal_bounds(shape: str, n: int, d: int) -> np.ndarray:
    """Both bounds for N = 2, …, n − 1, (2, n − 2)."""
    return np.array([literal(*head(shape, n), size, d) for size in range(2, n)]).T


def bounds(shape: str, n: int, d: int) -> np.ndarray:
    found = scale_free_lower_bounds(*head(shape, n), d)
    return np.array([found.precision_lower, found.recall_lower])


@pytest.mark.one_case
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("d", [16, 2])
def test_equal_the_note(shape: str, d: int) -> None:
    np.testing.assert_allclose(bounds(shape, 14, d)[:, 1:], literal_bounds(shape, 14, d), atol=2e-3)


def test_the_rate_is_the_maximum_and_lies_between_its_bounds() -> None:
    for gamma in (0.0, 1e-3, 0.1, 0.5, 1.0, 3.0, 30.0):
        found = -math.log(scale_free.tail(gamma**2, 1.0))
        assert found == pytest.approx(rate(gamma), abs=1e-6)
        assert math.log1p(gamma**2) / 2 <= found + ERROR
        assert found <= gamma**2 / 2 + ERROR


def test_exponentials_and_logarithms_keep_their_stated_errors() -> None:
    for h in (0.0, *np.geomspace(1e-18, 2.0**32, 5_001).tolist()):
        assert scale_free.log_one_plus(h) == pytest.approx(math.log1p(h), rel=0, abs=1e-13)
    for x in np.linspace(0, scale_free.CERTAIN, 5_001).tolist():
        assert scale_free.exp_minus(x) == pytest.approx(math.exp(-x), rel=1e-12, abs=0)
    assert scale_free.exp_minus(np.inf) == scale_free.exp_minus(scale_free.CERTAIN)


# The truth.


def directions(n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    unit = rng.standard_normal((n, d))
    return unit / np.linalg.norm(unit, axis=1, keepdims=True)


@cache
def truth(shape: str, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Means over draws of Precision and Recall, and standard errors, (2, n − 1) each."""
    weights, norms = head(shape, n)
    rng, size, found = np.random.default_rng(d), np.arange(1, n), []
    for _ in range(DRAWS):
        counts = selection_counts(weights, directions(n, d, rng) * norms[:, None])
        found.append([size / (size + counts.k_out), counts.k_in / size])
    return np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / math.sqrt(DRAWS)


def broken(shape: str, n: int, d: int) -> bool:
    """Whether a bound lies above the truth."""
    mean, error = truth(shape, n, d)
    return bool((bounds(shape, n, d) > mean + 4 * error + 1e-9).any())


@pytest.mark.one_case
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("n", "d"), [(40, 32), (12, 2)])
def test_holds(shape: str, n: int, d: int) -> None:
    assert not broken(shape, n, d)


def test_says_something() -> None:
    """Bounds that hold because they are trivial would pass everything else."""
    size = np.arange(1, 40)
    precision, recall = bounds("block", 40, 128)
    assert (precision > size / 40 + 0.5)[:3].all()
    assert (recall > 0.3)[:7].all()
    flat = scale_free_lower_bounds(*head("flat", 40, sink=False), 128)
    assert flat.precision_lower[:3].min() > 0.9
    assert flat.recall_lower[:3].min() > 0.9


CONTROLS: dict[str, tuple[str, Callable[..., Any], bool]] = {
    "a rate twice as large": ("tail", lambda square, dim: math.exp(-dim * min(square, 1e3)), False),
    "one sum deviates instead of two": (
        "pair_square",
        lambda own, total, least, _most: (own + least) / (2 * (total - own + 1e-12)),
        False,
    ),
    "the best pair instead of the worst": ("pair_square", lambda own, total, _least, most: (own + most) / total, True),
    "U_i deviates by a quarter": ("own_square", lambda own, total, tau: 4 * max(own - tau, 0) / total, True),
    "no key passes a level": ("add_groups", lambda *_: 0.0, False),
    "no union over keys left out": ("bound_outdone", lambda tails, place, *_: tails[place], True),
    "no union over selected keys": (
        "level_precision",
        lambda _square, size, _total, _tau, expected, _dim: size / (size + expected),
        True,
    ),
    "no pair passes": ("pair_precision", lambda *_: 1.0, True),
}
"""Wrong bounds that are too good: a function, what stands in its place, and whether so much that draws tell."""


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The kernels as plain Python, so that any of them can be replaced."""
    for name, kernel in vars(scale_free).copy().items():
        if hasattr(kernel, "py_func"):
            monkeypatch.setattr(scale_free, name, kernel.py_func)
    monkeypatch.setattr(scale_free, "smaller", min)
    monkeypatch.setattr(scale_free, "widen_vectors", lambda: None)
    return monkeypatch


@pytest.mark.slow
@pytest.mark.parametrize("control", CONTROLS)
def test_a_bound_that_is_too_good_shows(control: str, plain: pytest.MonkeyPatch) -> None:
    """Beside the note's equations, and if it is far too good, beside the truth."""
    function, wrong, far = CONTROLS[control]
    plain.setattr(scale_free, function, wrong)
    found = [
        np.abs(bounds(shape, 14, d)[:, 1:] - literal_bounds(shape, 14, d)).max() for shape in SHAPES for d in (16, 128)
    ]
    assert max(found) > 0.02
    assert any(broken(shape, n, d) for shape in SHAPES for n, d in ((12, 2), (40, 8), (40, 32))) == far


# What it promises beside.


def test_the_unit_of_the_values_does_not_matter() -> None:
    weights, norms = head("zipf", 40)
    expected = scale_free_lower_bounds(weights, norms, 64)
    for factor in (1e-200, 3e-5, 7.0, 1e200):
        found = scale_free_lower_bounds(weights, factor * norms, 64)
        np.testing.assert_allclose(found.precision_lower, expected.precision_lower, rtol=1e-9)
        np.testing.assert_allclose(found.recall_lower, expected.recall_lower, rtol=1e-9)


def test_heads_are_taken_one_by_one_and_ties_go_to_the_lower_position() -> None:
    weights = np.array([[0.4, 0.2, 0.2, 0.2], [0.1, 0.2, 0.3, 0.4]], np.float32)
    norms = np.array([1.0, 2.0, 1.0, 5.0])
    both = scale_free_lower_bounds(weights, norms, 32)
    for index, order in enumerate(([0, 1, 2, 3], [3, 2, 1, 0])):
        nudged = weights[index].astype(float)
        nudged[order] += 1e-9 * np.arange(4)[::-1]
        alone = scale_free_lower_bounds(nudged, norms, 32)
        np.testing.assert_allclose(both.precision_lower[index], alone.precision_lower, rtol=1e-5)
        np.testing.assert_allclose(both.recall_lower[index], alone.recall_lower, rtol=1e-5)


def trivial(found: ScaleFreeBounds, first_precision: float) -> bool:
    n = found.recall_lower.size + 1
    expected = np.arange(1, n) / n
    expected[0] = first_precision
    return bool((found.precision_lower == expected).all() and (found.recall_lower == np.eye(n - 1)[0]).all())


def test_awkward_heads() -> None:
    one = np.eye(6)[2]
    assert trivial(scale_free_lower_bounds(one, np.zeros(6), 8), 1 / 6)
    assert trivial(scale_free_lower_bounds(np.full(6, 1 / 6), np.r_[0, 0, 0, 0, 0, 1.0], 8), 1 / 6)
    everything = scale_free_lower_bounds(one, np.ones(6), 8)  # the others have a = 0 and lie at D = ‖s‖² > 0
    np.testing.assert_allclose(everything.recall_lower[:2], [1, 0.5], atol=1e-9)
    assert everything.precision_lower[0] == 1
    unknown = scale_free_lower_bounds(np.array([one, one]), np.array([np.ones(6), [np.nan, *np.ones(5)]]), 8)
    assert np.isnan(unknown.recall_lower).all(axis=1).tolist() == [False, True]
    assert np.isnan(unknown.precision_lower).all(axis=1).tolist() == [False, True]
    assert scale_free_lower_bounds([0.5, 0.5], [1.0, 1.0], 1).precision_lower == 0.5  # in one dimension y may coincide
