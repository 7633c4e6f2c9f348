"""AUC, measures, nulls and curves over all radii against the definitions, with wrong readings that must show."""

from dataclasses import fields
from fractions import Fraction

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sql
from geometry import selection_counts
from geometry.grids import log_grid
from geometry.inputs import GROUP
from geometry.separation.chance import (
    MEASURES,
    NULLS,
    Separability,
    separability,
    separation,
    separation_curve,
)
from tests.geometry import oracle, separation_oracle
from tests.geometry.draws import HEADS, grouped, near_head, random_head, small_heads
from tests.geometry.separation_oracle import Reading, with_replacement

WORDS = (7, 0, 511, 3, 2**40)
MEANS = {"rtol": 0, "atol": 1e-12}  # Rounding of a mean over draws


def every(weights: np.ndarray) -> np.ndarray:
    """All N."""
    return np.arange(1, len(weights))


def assert_right(found: Separability, weights: np.ndarray, values: np.ndarray, draws: int, *, sink: bool) -> None:
    head = weights, values, found.n
    np.testing.assert_array_equal(found.observed, separation_oracle.observed(*head))
    random = separation_oracle.random_selection(*head, WORDS, draws)
    np.testing.assert_allclose(found.random_selection, random, **MEANS)
    shuffled = separation_oracle.shuffled_values(*head, WORDS, draws, sink=sink)
    np.testing.assert_allclose(found.shuffled_values, shuffled, **MEANS)


class TestAgainstTheDefinitions:
    """In rational arithmetic, which decides every comparison."""

    @pytest.mark.one_case
    @pytest.mark.parametrize("kind", HEADS)
    @pytest.mark.parametrize(("n", "d", "sink"), [(3, 1, False), (14, 6, True)])
    def test_measures_and_nulls(self, kind: str, n: int, d: int, sink: bool) -> None:
        weights, values = HEADS[kind](n, d, n + d)
        found = separability(weights, values, every(weights), draws=2, seed=WORDS, sink=sink)
        assert_right(found, weights, values, 2, sink=sink)

    @given(small_heads(), st.booleans())
    def test_ties_count_as_in_exact_arithmetic(self, head: tuple[np.ndarray, np.ndarray], sink: bool) -> None:
        """Weights of 0, repeated value states, and keys that are equally far in different directions."""
        weights, values = head
        found = separability(weights, values, every(weights), draws=1, seed=WORDS, sink=sink)
        assert_right(found, weights, values, 1, sink=sink)

    @pytest.mark.parametrize("kind", HEADS)
    def test_auc_of_longer_heads(self, kind: str) -> None:
        for n, d in ((200, 16), (65, 128)):
            head, sizes = HEADS[kind](n, d, n), [1, 11, 60, n - 1]
            np.testing.assert_array_equal(separation(*head, sizes), separation_oracle.observed(*head, sizes)[-1])

    def test_energies_are_not_told_apart_by_the_digits_that_the_number_of_a_key_takes(self) -> None:
        """The last key has the energy of the first up to rounding, about where those digits begin anew."""
        rng = np.random.default_rng(2)
        for _ in range(9):
            y = rng.standard_normal((1024, 4))
            energy = np.array(y[0] @ y[0] - 2 * (y[0] + y[1]) @ y[0])
            edge = (energy.view(np.int64) >> 10 << 10).view(np.float64)  # ten digits of 1,024 keys
            y *= np.sqrt(edge / energy)
            y[-1] = y[0] * (1 + rng.uniform(-2.5e-16, 2.5e-16, 4))
            head = np.full(1024, 1 / 1024), 1024 * y
            found = separability(*head, [2], draws=0, seed=0).observed
            np.testing.assert_array_equal(found, separation_oracle.observed(*head, [2]))

    @pytest.mark.parametrize("exponent", [-900, 900])
    def test_the_scale_of_values_does_not_matter(self, exponent: int) -> None:
        weights, values = random_head(64, 8, seed=8)
        scaled = np.ldexp(values.astype(np.float64), exponent)
        asked = {"draws": 1, "seed": 1}
        for field in fields(Separability):
            given, expected = (getattr(separability(weights, v, **asked), field.name) for v in (scaled, values))
            np.testing.assert_array_equal(given, expected, err_msg=field.name)


class TestGrid:
    def test_every_n_is_computed_by_itself(self) -> None:
        weights, values = random_head(90, 8, 1)
        whole = separability(weights, values, every(weights), draws=2, seed=3)
        for sizes in (log_grid(90), [1, 89], [40]):
            part = separability(weights, values, sizes, draws=2, seed=3)
            for name in ("observed", *NULLS):
                np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[:, np.array(sizes) - 1])

    def test_log_grid_is_that_of_sql(self) -> None:
        lengths = [*range(2, 200), 257, 511, 512, 513, 1000, 1024, 2048, 4096, 8192, 32768, 131072, 10**6 + 1]
        with duckdb.connect() as connection:
            connection.execute(sql.read_statement("macros", "log_grid").code)
            for n_keys, points in [*((n_keys, 48) for n_keys in lengths), (1024, 2), (1024, 161)]:
                query = f"SELECT point FROM log_grid({n_keys - 1}, points := {points}) ORDER BY ALL"
                expected = [point for (point,) in connection.execute(query).fetchall()]
                assert log_grid(n_keys, points).tolist() == expected, n_keys

    def test_log_grid_by_hand(self) -> None:
        assert log_grid(2).tolist() == [1]
        assert log_grid(17, 3).tolist() == [1, 4, 16]
        assert len(log_grid(1024)) == 41


@pytest.mark.parametrize("heads", [3, GROUP + 1])
def test_one_number_as_a_seed_draws_for_every_head_by_its_index(heads: int) -> None:
    weights, values = grouped(random_head, 2, heads, 30, 4)
    found = separability(weights, values, draws=1, seed=5)
    for index in np.ndindex(2, heads):
        alone = separability(weights[index], values[index[0], 0], draws=1, seed=(5, *index))
        for name in ("observed", *NULLS):
            np.testing.assert_array_equal(getattr(found, name)[index], getattr(alone, name))
    words = np.stack([np.full((2, heads), 5), *np.indices((2, heads))], axis=-1)
    again = separability(weights, values, draws=1, seed=words)
    np.testing.assert_array_equal(again.shuffled_values, found.shuffled_values)


def test_without_draws_there_are_no_nulls() -> None:
    found = separability(*random_head(9, 2, 0), draws=0, seed=0)
    assert np.isnan([found.random_selection, found.shuffled_values]).all()
    assert np.isfinite(found.observed).all()


class TestControls:
    """Wrong readings, and float32, give other numbers: what the tests above would miss if they could not fail."""

    @pytest.mark.parametrize(
        ("reading", "wrong"),
        [
            (Reading(tie=Fraction(0)), {"auc"}),
            (Reading(tie=Fraction(1)), {"auc"}),
            (Reading(closed=False), {"precision", "recall", "f_r_max", "f_r_min", "specificity"}),
        ],
    )
    def test_other_ties_are_noticed(self, reading: Reading, wrong: set[str]) -> None:
        weights, values = np.full(6, 1 / 8), np.ones((6, 2))
        expected = separation_oracle.observed(weights, values, every(weights), reading)
        found = separability(weights, values, every(weights), draws=0, seed=0).observed
        assert {MEASURES[index] for index in np.flatnonzero((found != expected).any(axis=-1))} == wrong

    @pytest.mark.parametrize(
        ("null", "reading"),
        [
            ("random_selection", Reading(order=with_replacement)),
            ("shuffled_values", Reading(moves_sink=True)),
            ("shuffled_values", Reading(moves_last=True)),
        ],
    )
    def test_other_draws_are_noticed(self, null: str, reading: Reading) -> None:
        head, sizes = random_head(14, 3, 0), [1, 3, 6]
        expected = getattr(separation_oracle, null)(*head, sizes, WORDS, 4, reading=reading)
        found = getattr(separability(*head, sizes, draws=4, seed=WORDS), null)
        assert (np.abs(found - expected).max(axis=-1) > 1e-3).all()

    def test_without_the_error_bound_equal_keys_are_not_ties(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A matrix product need not round the inner products of equal keys alike, and does not those of near ones."""
        heads, sizes = [near_head(12, 6, seed) for seed in range(5)], range(1, 12)
        expected = [separation_oracle.observed(*head, sizes)[-1] for head in heads]
        np.testing.assert_array_equal([separation(*head, sizes) for head in heads], expected)
        monkeypatch.setattr("geometry.separation.comparisons.error_factors", lambda _d: (-1.0, 0.0))
        assert np.mean(np.array([separation(*head, sizes) for head in heads]) != expected) > 0.1


def points(weights: np.ndarray, values: np.ndarray, size: int) -> list[tuple[Fraction, Fraction, Fraction]]:
    """(P, R, false positives) within every distance at which there are keys, in rational arithmetic."""
    y, (inside, outside) = oracle.rational(weights, values), oracle.split(weights, size)
    energy = oracle.energies(oracle.add([y[i] for i in inside]), y)
    found = []
    for reach in sorted(set(energy)):
        chosen, others = (sum(energy[key] <= reach for key in part) for part in (inside, outside))
        found.append((Fraction(chosen, chosen + others), Fraction(chosen, size), Fraction(others, len(outside))))
    return found


def area(recall: np.ndarray, false_positives: np.ndarray) -> float:
    return float(np.trapezoid(np.r_[0, recall], np.r_[0, false_positives]))


def assert_curve(weights: np.ndarray, values: np.ndarray, size: int) -> None:
    curve, expected = separation_curve(weights, values, size), points(weights, values, size)
    found = np.stack([curve.precision, curve.recall, curve.false_positive_share], axis=1)
    np.testing.assert_array_equal(found, np.array([[float(x) for x in point] for point in expected]))
    assert curve.auc == separation(weights, values, [size])[0]
    assert area(curve.recall, curve.false_positive_share) == pytest.approx(curve.auc, abs=1e-12)


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("size", [1, 9])
def test_a_curve_equals_the_definitions(kind: str, size: int) -> None:
    assert_curve(*HEADS[kind](30, 6, 4), size)


@given(small_heads(), st.data())
def test_ties_of_a_curve_make_one_point_as_in_exact_arithmetic(
    head: tuple[np.ndarray, np.ndarray], data: st.DataObject
) -> None:
    assert_curve(*head, data.draw(st.integers(1, len(head[0]) - 1)))


@pytest.mark.parametrize("kind", ["random", "repeated", "saturated"])
def test_radii_are_distances(kind: str) -> None:
    """In the unit of the value states, here of a power of 2 far from 1."""
    weights, values = HEADS[kind](50, 8, 3)
    values = np.ldexp(values.astype(float), 60)
    order = np.argsort(-weights.astype(float), kind="stable")
    y = weights.astype(float)[order, None] * values[order]
    counts = selection_counts(weights, values)
    for size in (1, 20, 49):
        curve = separation_curve(weights, values, size)
        distances = np.linalg.norm(y[:size].sum(axis=0) - y, axis=1)
        assert (np.diff(curve.radius) >= 0).all()
        first_left_out, all_selected = curve.false_positive_share.nonzero()[0][0], np.flatnonzero(curve.recall == 1)[0]
        found = curve.radius[[0, -1, first_left_out, all_selected]]
        wanted = [distances.min(), distances.max(), counts.r_min[size - 1], counts.r_max[size - 1]]
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9 * distances.max())
        assert curve.precision[all_selected] == counts.precision[size - 1]
        assert curve.recall[first_left_out] == counts.recall[size - 1]
