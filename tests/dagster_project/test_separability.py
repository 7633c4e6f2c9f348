"""The asset ``separability``: its rows beside exact arithmetic, curves beside literal ones, memory; wrong readings."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dagster_project.analysis.chance import CURVE_POINTS, select_points
from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from tests.dagster_project import making
from tests.dagster_project.drawn_study import FIRST, NAME, QUERIES, STUDY, measured, read_keys, rows, several
from tests.dagster_project.intervals import DIFFERENCE, columns, near, of_mean
from tests.geometry import separation_oracle
from tests.geometry.separation_oracle import MEASURES

SEQUENCES, DRAWS = 5, 2
NULLS = ("random_selection", "shuffled_values")
GRID = [1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 39]  # Powers of √2 below 40 keys, rounded, and 39
HEADS = [(0, 0, 3), (1, 1, 1)]
"""Index of a query, layer and head: of the one the sink's value state is 0, of the other a window hides the sink."""

Row = dict[str, Any]


def with_nulls(**settings: Any) -> Study:
    """The study with other settings for nulls."""
    return Study.model_validate(STUDY.model_dump() | {"analysis": {"nulls": settings or None}})


def literally(home: Home, place: tuple[int, int, int]) -> dict[str, np.ndarray]:
    """The measures of the selections and of each null in exact arithmetic, (sequence, measure, N)."""
    query, layer, head = place
    sizes = [n for n in GRID if n < QUERIES[query] + 1 - FIRST[query, layer]]
    found: dict[str, list[np.ndarray]] = {name: [] for name in ("observed", *NULLS)}
    for sequence in range(SEQUENCES):
        weights, values = read_keys(home, sequence, *place)
        words, sink = (0, sequence, QUERIES[query], layer, head), bool(FIRST[query, layer] == 0)
        found["observed"].append(separation_oracle.observed(weights, values, sizes))
        found[NULLS[0]].append(separation_oracle.random_selection(weights, values, sizes, words, DRAWS))
        found[NULLS[1]].append(separation_oracle.shuffled_values(weights, values, sizes, words, DRAWS, sink=sink))
    return {name: np.array(arrays) for name, arrays in found.items()}


def of_head(found: list[Row], place: tuple[int, int, int]) -> dict[tuple[str, str, int], Row]:
    query, layer, head = place
    chosen_rows = [row for row in found if (row["query"], row["layer"], row["head"]) == (QUERIES[query], layer, head)]
    return {(row["null_model"], row["measure"], row["n"]): row for row in chosen_rows}


@pytest.fixture(scope="module")
def exact(drawn: Home) -> dict[tuple[int, int, int], dict[str, np.ndarray]]:
    """Of the heads that are looked at."""
    return {place: literally(drawn, place) for place in HEADS}


@pytest.mark.one_case
@pytest.mark.parametrize("place", HEADS)
def test_rows_of_a_head_are_those_of_exact_arithmetic(
    drawn: Home, exact: dict[tuple[int, int, int], dict[str, np.ndarray]], place: tuple[int, int, int]
) -> None:
    found = of_head(rows(drawn, "separability"), place)
    sizes = [n for n in GRID if n < QUERIES[place[0]] + 1 - FIRST[place[0], place[1]]]
    assert set(found) == {(null, measure, n) for null in NULLS for measure in MEASURES for n in sizes}
    for (null, measure, n), row in found.items():
        at = (slice(None), MEASURES.index(measure), sizes.index(n))
        value, null_value = exact[place]["observed"][at], exact[place][null][at]
        assert (row["sequences"], row["draws"]) == (SEQUENCES, DRAWS)
        wanted = {"value": value.mean(), "null_value": null_value.mean()}
        assert near(row, wanted | columns("difference", of_mean(value - null_value, DIFFERENCE)), abs_=1e-6)


@pytest.mark.slow
def test_intervals_of_the_model_are_over_sequences_of_means_over_its_heads(drawn: Home) -> None:
    query, n = 0, 4
    found = [literally(drawn, (query, layer, head)) for layer in range(2) for head in range(4)]
    keys = ("null_model", "measure", "n")
    of_query = [row for row in rows(drawn, "separability_model") if row["query"] == QUERIES[query]]
    model = {tuple(row[key] for key in keys): row for row in of_query}
    of_sequences = rows(drawn, "separability_by_sequence")
    for null, measure in product(NULLS, MEASURES):
        at = (..., MEASURES.index(measure), GRID.index(n))
        observed, random = (np.array([head[name] for head in found])[at] for name in ("observed", null))
        row = model[null, measure, n]
        assert near(row, columns("difference", of_mean((observed - random).mean(axis=0), DIFFERENCE)), abs_=1e-6)
        wanted = dict(enumerate(zip(observed.mean(axis=0), random.mean(axis=0), strict=True)))
        place = (QUERIES[query], null, measure, n)
        by_sequence = {
            one["sequence"]: (one["value"], one["null_value"])
            for one in of_sequences
            if tuple(one[key] for key in ("query", *keys)) == place
        }
        assert by_sequence == {sequence: pytest.approx(values, abs=1e-6) for sequence, values in wanted.items()}
        if measure == "auc":  # mutation control: heads are no sample
            _, low, high = of_mean((observed - random).ravel())
            assert high - low != pytest.approx(row["difference_high"] - row["difference_low"], rel=0.05)


def test_auc_of_heads_by_sequence_is_the_mean_over_ln_n_of_their_curves(
    drawn: Home, exact: dict[tuple[int, int, int], dict[str, np.ndarray]]
) -> None:
    found = rows(drawn, "head_auc")
    places = [(row["sequence"], row["query"], row["layer"], row["head"]) for row in found]
    assert len(places) == len(set(places)) == SEQUENCES * len(QUERIES) * 2 * 4
    by_place = dict(zip(places, found, strict=True))
    for place in HEADS:
        query, layer, head = place
        curves = exact[place]["observed"][:, MEASURES.index("auc")]
        n = np.array(GRID[: curves.shape[-1]], float)
        edges = np.log([1.5, *np.sqrt(n[1:-1] * n[2:]), n[-1] + 0.5])
        wanted = [curve[1:] @ np.diff(edges) / (edges[-1] - edges[0]) for curve in curves]
        of_head = [by_place[sequence, QUERIES[query], layer, head]["auc"] for sequence in range(SEQUENCES)]
        np.testing.assert_allclose(of_head, wanted, atol=1e-6)
        assert np.abs(curves.mean(axis=1) - of_head).max() > 1e-3  # control: a mean over N


def test_a_study_without_nulls_has_no_rows_and_its_setting_decides_the_tables(tmp_path: Path) -> None:
    home = measured(tmp_path, several(1))
    making.summarise(home, NAME, with_nulls(), ["separability"])
    for table in ("separability", "separability_model", "separability_by_sequence", "head_auc", "separation_curves"):
        assert rows(home, table) == []
    making.summarise(home, NAME, STUDY, ["separability"])
    found = rows(home, "separability")
    assert {row["sequences"] for row in found} == {1}
    assert all((row["difference_low"], row["difference_high"]) == (None, None) for row in found)
    before = making.find_part(home, NAME, "separability")
    written = before.stat().st_mtime_ns
    making.summarise(home, NAME, STUDY, ["separability"])
    assert before.stat().st_mtime_ns == written
    making.summarise(home, NAME, with_nulls(draws=0), ["separability"])
    assert rows(home, "separability") == []


def test_curves_are_those_of_all_radii(drawn: Home) -> None:
    """Keys by distance in float64, one after the other; every kept point is one of them."""
    auc = {
        (row["layer"], row["head"]): row["value"]
        for row in rows(drawn, "separability")
        if (row["query"], row["measure"], row["null_model"], row["n"]) == (QUERIES[-1], "auc", NULLS[0], 4)
    }
    order, found = sorted(auc, key=lambda place: (auc[place], place)), rows(drawn, "separation_curves")
    ranks = {row["auc_rank"]: (row["layer"], row["head"]) for row in found}
    assert ranks == {"lowest": order[0], "median": order[3], "highest": order[-1]}
    curves: dict[tuple[str, int], list[Row]] = {}
    for row in found:
        curves.setdefault((row["auc_rank"], row["n"]), []).append(row)
    assert set(curves) == {(rank, n) for rank in ranks for n in (4, 16)}
    for (rank, n), points in curves.items():
        weights, values = read_keys(drawn, 0, 2, *ranks[rank])
        y = (weights[:, None] * values)[np.argsort(-weights, kind="stable")]
        far = np.linalg.norm(y[:n].sum(axis=0) - y, axis=1)
        radii = np.sort(far)
        assert [row["point"] for row in points] == list(range(len(y)))  # fewer than are kept at most
        for row, radius in zip(points, radii, strict=True):
            inside = far <= radius * (1 + 1e-12)
            assert row["radius"] == pytest.approx(radius, rel=1e-6)
            assert row["precision"] == pytest.approx(inside[:n].sum() / inside.sum())
            assert row["recall"] == pytest.approx(inside[:n].sum() / n)
            assert row["false_positive_share"] == pytest.approx(inside[n:].sum() / (len(y) - n))
            assert (row["n_keys"], row["sequence"], row["query"]) == (len(y), 0, QUERIES[-1])
            assert row["auc"] == pytest.approx((far[n:, None] > far[:n]).mean())


@pytest.mark.parametrize(("points", "rises"), [(30, 4), (150, 40), (1000, 40), (5000, 400)])
def test_kept_points_show_the_curve(points: int, rises: int) -> None:
    rng = np.random.default_rng(points)
    selected = np.zeros(points, bool)
    selected[rng.choice(points, rises, replace=False)] = True
    recall, share = (np.cumsum(part) / part.sum() for part in (selected, ~selected))
    found = select_points(recall)
    assert (found[0], found[-1]) == (0, points - 1)
    assert (np.diff(found) > 0).all()
    assert len(found) <= max(CURVE_POINTS, 2)
    assert len(found) >= min(points, CURVE_POINTS) / 2

    def area(at: np.ndarray) -> float:
        return float(np.trapezoid(np.r_[0, recall[at]], np.r_[0, share[at]]))

    assert area(found) == pytest.approx(area(np.arange(points)), abs=1e-12 if rises < CURVE_POINTS / 2 else 0.02)
    if points > CURVE_POINTS > 2 * rises:  # evenly spaced points alone would not
        spaced = np.linspace(0, points - 1, len(found)).astype(int)
        assert area(spaced) != pytest.approx(area(found), abs=1e-4)
