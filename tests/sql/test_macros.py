"""Macros with parameters for common questions, against plain readings of the tables they answer from."""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean
from typing import Any

import duckdb
import pytest

from tests.made_up import SMALL, warehouse
from tests.sql.checking import STUDY
from tests.sql.hand_made import MEANS, break_statement, database

Row = dict[str, Any]

FIRST = replace(STUDY, study="first")
SECOND = replace(SMALL, study="second")
MEASURES = ("precision", "recall", "f_r_max", "f_r_min", "harmonic_mean")
METRICS = ("precision", "recall", "f_r_max", "f_r_min")
HEAD = ("study", "query", "layer", "head")


@pytest.fixture(scope="module")
def two() -> Iterator[duckdb.DuckDBPyConnection]:
    with warehouse(FIRST, SECOND) as connection:
        yield connection


def rows(connection: duckdb.DuckDBPyConnection, relation: str) -> list[Row]:
    found: list[Row] = connection.sql(f"FROM {relation}").to_arrow_table().to_pylist()
    return found


def head_of(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in HEAD)


def test_levels_are_weighted_means_of_what_there_is() -> None:
    with database() as connection:
        points = "(VALUES (1, NULL), (2, 0.25::DOUBLE), (4, 0.75)) AS points (n, y)"
        (found,) = connection.sql(f"SELECT weighted_level(y, 1 / n) FROM {points}").fetchall()
    assert found[0] == pytest.approx((0.25 / 2 + 0.75 / 4) / (1 / 2 + 1 / 4))


def test_the_last_query_is_the_largest(two: duckdb.DuckDBPyConnection) -> None:
    found = two.sql("SELECT last_query('first'), last_query('second'), last_query('none')").fetchall()
    assert found == [(23, 23, None)]


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize(("first", "last"), [(2, None), (1, None), (3, 8)])
def test_best_n_is_the_first_of_the_largest(
    two: duckdb.DuckDBPyConnection, measure: str, first: int, last: int | None
) -> None:
    call = f"best_n('{measure}', first_n := {first}, last_n := {last or 'NULL'})"
    found = {head_of(row): (row["best_n"], row["value"]) for row in rows(two, call)}
    expected: dict[tuple[Any, ...], tuple[int, float]] = {}
    for row in sorted(rows(two, "selection_means"), key=lambda row: row["n"]):
        row["harmonic_mean"] = 2 * row["precision"] * row["recall"] / (row["precision"] + row["recall"])
        if first <= row["n"] <= (last or math.inf) and row[measure] > expected.get(head_of(row), (0, -1.0))[1]:
            expected[head_of(row)] = (row["n"], row[measure])
    assert found == {head: (n, pytest.approx(value)) for head, (n, value) in expected.items()}


def test_of_equal_means_the_smallest_n_is_best() -> None:
    means = [MEANS | {"query": 9, "layer": 0, "head": 0, "n": n} for n in (4, 2, 3, 1)]
    with database(selection_means=means) as connection:
        assert [row["best_n"] for row in rows(connection, "best_n()")] == [2]


@pytest.mark.parametrize("at_n", [1, 2, 8, 12])
def test_heads_are_in_the_regime_of_most_sequences(two: duckdb.DuckDBPyConnection, at_n: int) -> None:
    regimes: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows(two, "regimes_by_sequence"):
        if row["first_n"] <= at_n <= row["last_n"]:
            regimes[head_of(row)].append(row)
    labels = {head_of(row): row["label"] for row in rows(two, "head_taxonomy")}
    found = rows(two, f"heads_by_regime({at_n})")
    means = {head_of(row): row for row in rows(two, "selection_means") if row["n"] == at_n}
    assert sorted(means) == sorted(head_of(row) for row in found)
    for row in found:
        where = head_of(row)
        assert row["label"] == labels[where]
        assert (row["precision"], row["recall"]) == (means[where]["precision"], means[where]["recall"])
        names = sorted(one["regime"] for one in regimes[where])
        assert row["regime"] == (max(names, key=names.count) if names else None)
        of_it = [one for one in regimes[where] if one["regime"] == row["regime"]]
        assert row["share"] == (len(of_it) / len(names) if names else None)
        slopes = [one["slope"] for one in of_it if one["slope"] is not None]
        assert row["slope"] == (pytest.approx(fmean(slopes)) if slopes else None)
    assert at_n == 1 or len({row["regime"] for row in found}) > 1


@pytest.mark.parametrize(
    ("call", "sides"),
    [
        ("compare_studies('first', 'second')", (("first", 23), ("second", 23))),
        ("compare_studies('second', 'first', query_b := 5)", (("second", 23), ("first", 5))),
        ("compare_studies('first', 'first', query_a := 11)", (("first", 11), ("first", 23))),
    ],
)
def test_studies_are_compared_at_the_n_that_both_reach(
    two: duckdb.DuckDBPyConnection, call: str, sides: tuple[tuple[str, int], tuple[str, int]]
) -> None:
    means = {(row["study"], row["query"], row["n"]): row for row in rows(two, "selection_means_model")}
    expected = {}
    for n in range(1, 24):
        a, b = (means.get((*side, n)) for side in sides)
        for metric in METRICS if a and b else ():
            assert a
            assert b
            apart = a[f"{metric}_high"] < b[f"{metric}_low"] or b[f"{metric}_high"] < a[f"{metric}_low"]
            expected[metric, n] = (a[metric], b[metric], b[metric] - a[metric], apart)
    found = rows(two, call)
    columns = ("mean_a", "mean_b", "difference", "apart")
    assert {(row["metric"], row["n"]): tuple(row[name] for name in columns) for row in found} == expected
    assert {(row["query_a"], row["query_b"]) for row in found} == {(sides[0][1], sides[1][1])}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("best_n('accuracy')", "measure must be 'precision', 'recall', 'f_r_max', 'f_r_min' or 'harmonic_mean'"),
        ("best_n(NULL)", "measure must be"),
        ("heads_by_regime(0)", "at_n must be 1 or more"),
        ("heads_by_regime(NULL)", "at_n must be 1 or more"),
        ("compare_studies('first', 'frist')", "there is no study frist"),
        ("compare_studies('x', 'second')", "there is no study x"),
        ("best_temperature(0)", "at_n must be 1 or more"),
        ("best_temperature(measure := 'loss')", "'auc' or 'recall'"),
        ("lower_bounds(0.5, 'Unit')", "scale must be 'unit' or 'raw', not 'Unit'"),
        ("lower_bounds(0.5, NULL)", "scale must be 'unit' or 'raw', not NULL"),
        *((f"lower_bounds({kappa}, 'raw')", "kappa must be a finite") for kappa in (0, "NULL", "'nan'::DOUBLE")),
    ],
)
def test_arguments_are_checked(two: duckdb.DuckDBPyConnection, call: str, said: str) -> None:
    with pytest.raises(duckdb.Error, match=said):
        rows(two, call)


@pytest.mark.parametrize(
    ("old", "new"), [("arg_max(n, (value, -n))", "arg_max(n, (value, n))"), ("n >= first_n", "n > first_n")]
)
def test_a_broken_best_n_is_noticed(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    break_statement(monkeypatch, "best_n", old, new)
    with pytest.raises(AssertionError):
        test_of_equal_means_the_smallest_n_is_best()


def test_bounds_at_any_kappa_are_means_of_each_head(two: duckdb.DuckDBPyConnection) -> None:
    """Of every study, query and layer; ``tests.sql.test_bounds`` compares their numbers at one query of one layer."""
    each: dict[tuple[Any, ...], list[float | None]] = defaultdict(list)
    for row in rows(two, "lower_bounds(0.2, 'unit')"):
        each[(*head_of(row), row["n"])].append(row["margin"])
    found = rows(two, "bounds_at(0.2)")
    assert len(found) == len(each) == len(rows(two, "selection_means"))
    for row in found:
        known = [margin for margin in each[(*head_of(row), row["n"])] if margin is not None]
        assert row["margin"] == (pytest.approx(fmean(known)) if known else None)
