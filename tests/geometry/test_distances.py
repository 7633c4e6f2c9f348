"""The distance of random selections against all subsets in rational arithmetic."""

from fractions import Fraction
from itertools import combinations
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geometry import output_parts, random_subset_distance, selection_profile
from tests.geometry import oracle
from tests.geometry.draws import HEADS, Head

Vectors = list[list[int]]


def squares(y: Vectors, size: int) -> list[int]:
    """‖Σ_{i∉S} y_i − Σ_{i∈S} y_i‖² for every set S of that size, in whole numbers."""
    found = []
    for chosen in combinations(range(len(y)), size):
        sign = [-1 if key in chosen else 1 for key in range(len(y))]
        total = [sum(sign[key] * y[key][k] for key in range(len(y))) for k in range(len(y[0]))]
        found.append(sum(component**2 for component in total))
    return found


def mean_square(y: Vectors, size: int) -> Fraction:
    """The mean of ``squares``."""
    found = squares(y, size)
    return Fraction(sum(found), len(found))


def sums(y: Vectors) -> tuple[Fraction, Fraction]:
    """‖s_n‖² and Σ‖y_i‖²."""
    whole = [sum(row[k] for row in y) for k in range(len(y[0]))]
    return Fraction(sum(x * x for x in whole)), Fraction(sum(x * x for row in y for x in row))


def closed(y: Vectors, size: int) -> Fraction:
    """The closed form as the docstring has it, in rational arithmetic."""
    n, (whole, parts) = Fraction(len(y)), sums(y)
    return 4 * size * (n - size) / (n * (n - 1)) * (parts - whole / n) + (1 - 2 * size / n) ** 2 * whole


def distance(y: Vectors, size: int) -> float:
    whole, parts = sums(y)
    return float(random_subset_distance(sqrt(whole), sqrt(parts), size=size, n_keys=len(y)))


def draw(n: int, d: int, seed: int) -> Vectors:
    rows: Vectors = np.random.default_rng(seed).integers(-6, 9, (n, d)).tolist()
    return rows


vectors = st.integers(2, 10).flatmap(
    lambda n: st.lists(st.lists(st.integers(-4, 4), min_size=2, max_size=2), min_size=n, max_size=n)
)


@pytest.mark.parametrize("n", range(2, 11))
def test_the_closed_form_is_the_mean_over_all_subsets(n: int) -> None:
    y = draw(n, 3, n)
    for size in range(1, n):
        exact = mean_square(y, size)
        assert closed(y, size) == exact
        assert distance(y, size) == pytest.approx(sqrt(exact), rel=1e-14)


@settings(max_examples=60)
@given(vectors)
def test_also_where_keys_are_equal_opposite_or_zero(y: Vectors) -> None:
    for size in range(1, len(y)):
        exact = mean_square(y, size)
        assert closed(y, size) == exact
        rounded = sqrt(2.0**-49 * sum(map(float, sums(y))))  # the root of 16 roundings of what is subtracted
        assert distance(y, size) == pytest.approx(sqrt(exact), rel=1e-7, abs=rounded)


def test_a_mean_of_distances_would_be_noticed() -> None:
    """It is the root of the mean square."""
    y = draw(9, 3, 1)
    assert np.mean(np.sqrt(squares(y, 4))) < 0.99 * distance(y, 4)


def test_it_does_not_depend_on_which_side_is_called_selected() -> None:
    sizes = np.arange(1, 20)
    found = random_subset_distance(3.0, 5.0, size=sizes, n_keys=20)
    np.testing.assert_allclose(found, found[::-1], rtol=1e-14)


def test_there_is_none_without_selected_keys_or_without_others() -> None:
    found = random_subset_distance(np.ones((2, 1)), 1.0, size=np.arange(6), n_keys=[[5], [1]])
    np.testing.assert_array_equal(np.isnan(found), [[True, False, False, False, False, True], [True] * 6])
    assert np.isfinite(random_subset_distance(1e38, 1e38, size=3, n_keys=7))


def test_arguments_broadcast() -> None:
    found = random_subset_distance(np.ones((3, 1, 1)), np.ones((2, 1)), size=np.arange(1, 5), n_keys=5)
    assert (found.shape, found.dtype) == ((3, 2, 4), np.float64)


@pytest.mark.parametrize("kind", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("sink", [True, False])
def test_all_subsets_of_a_small_head(kind: Head, sink: bool) -> None:
    weights, values = kind(8, 3, 5)
    y, parts = weights.astype(float)[:, None] * values, output_parts(weights, values, sink=sink)
    found = random_subset_distance(parts.norm_output, parts.norm_contributions, size=np.arange(1, 8), n_keys=8)
    for size in range(1, 8):
        signs = [[-1 if key in chosen else 1 for key in range(8)] for chosen in combinations(range(8), size)]
        exact = np.sqrt(np.mean(((np.array(signs) @ y) ** 2).sum(axis=1)))
        assert found[size - 1] == pytest.approx(exact, rel=1e-7, abs=1e-7 * float(parts.norm_contributions))


@pytest.mark.parametrize("kind", HEADS.values(), ids=HEADS)
def test_the_distance_is_that_of_both_sums(kind: Head) -> None:
    """Not merely ‖s_n‖ − 2‖s_N‖ or the distance from the mean, on any kind of head."""
    weights, values = kind(24, 4, 2)
    y = weights.astype(float)[:, None] * values
    profile = selection_profile(weights, values)
    for size in range(1, 24):
        inside, outside = oracle.split(weights, size)
        exact = np.linalg.norm(y[outside].sum(axis=0) - y[inside].sum(axis=0))
        assert profile.distance_rest[size - 1] == pytest.approx(exact, rel=1e-12, abs=1e-15 * np.abs(y).sum())
