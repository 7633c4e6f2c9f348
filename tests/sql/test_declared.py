"""What follows from the declaration of a table: keys, domains, intervals and numbers of rows are checked."""

from collections.abc import Iterator
from dataclasses import replace
from math import inf, nan

import duckdb
import pytest

import sql
from storage.warehouse import declared
from storage.warehouse.declared import DENSE, list_conditions
from tests.sql.checking import STUDY

TABLES = [sql.read_statement("schema", name) for name in sql.list_names("schema")]
HALF_OPEN = """-- grain:   one row per (study, place)
-- inputs:  none
-- meaning: one column of each kind of domain
CREATE TABLE made (
    study VARCHAR NOT NULL, -- name
    place INTEGER NOT NULL, -- number
    share DOUBLE, -- closed at both ends [0, 1]
    positive DOUBLE, -- open below, infinite above (0, inf]
    level DOUBLE, -- finite [0, inf)
    level_low DOUBLE, -- lower end [0, inf)
    level_high DOUBLE, -- upper end [0, inf)
    single FLOAT, -- of single precision [0, 1]
    free DOUBLE -- any finite number
)
"""
ALLOWED = [
    {},
    {"share": 0.0},
    {"share": 1.0},
    {"share": 1 + 5e-7},
    {"share": -5e-7},
    {"positive": 1e-300},
    {"positive": inf},
    {"level": 0.0, "level_low": 0.0, "level_high": 0.0},
    {"level": 1.0, "level_low": 1.0, "level_high": 2.0},
    {"level": 1e300},
    {"single": 1.0},
    {"free": -1e300},
]
"""Values of a row; all others are NULL."""
REFUSED = [
    {"share": 1 + 2e-6},
    {"share": -2e-6},
    {"share": nan},
    {"positive": 0.0},
    {"positive": -1.0},
    {"positive": nan},
    {"level": inf},
    {"level": -1.0},
    {"level": 1.0, "level_low": 1.5, "level_high": 2.0},
    {"level": 1.0, "level_low": 0.5, "level_high": 0.9},
    {"level": 1.0, "level_low": 0.5},
    {"level": 1.0, "level_high": 2.0},
    {"single": -2e-6},
    {"single": nan},
    {"free": inf},
    {"free": nan},
]


def find(connection: duckdb.DuckDBPyConnection, table: sql.Statement, study: str = STUDY.study) -> list[str]:
    """The conditions of a table that a study breaks."""
    return [
        name
        for name, statement in list_conditions(table)
        if connection.execute(statement, {"study": study}).fetchmany(1)
    ]


def make_table() -> sql.Statement:
    return sql.Statement("schema", "made", HALF_OPEN, "one row per (study, place)", "none", "none", {})


def find_wrongly_judged() -> list[dict[str, float]]:
    """The rows that a declaration allows or refuses by mistake."""
    wrong = []
    with duckdb.connect() as connection:
        connection.execute(HALF_OPEN)
        for row in (*ALLOWED, *REFUSED):
            names = "".join(f", {name}" for name in row)
            marks = ", ?" * len(row)
            connection.execute(f"INSERT INTO made (study, place{names}) VALUES ('s', 1{marks})", [*row.values()])
            if bool(find(connection, make_table(), "s")) != (row in REFUSED):
                wrong.append(row)
            connection.execute("DELETE FROM made")
    return wrong


def test_values_lie_in_their_domains_and_intervals_enclose_them() -> None:
    assert find_wrongly_judged() == []


@pytest.mark.parametrize(
    ("place", "end", "because"),
    [
        (0, "[", {"positive": 0.0}),
        (0, "(", {"share": 0.0}),
        (3, ")", {"share": 1.0}),
        (1, "-inf", {"share": -2e-6}),
        (3, "]", {"level": inf}),
    ],
)
def test_the_comparison_notices_another_domain(
    monkeypatch: pytest.MonkeyPatch, place: int, end: str, because: dict[str, float]
) -> None:
    whole = declared._list_outside

    def list_other(column: sql.Column) -> Iterator[str]:
        left, low, high, right = (
            end if at == place else own for at, own in enumerate(column.domain or ("(", "-inf", "inf", ")"))
        )
        return whole(replace(column, domain=column.domain and (left, low, high, right)))

    monkeypatch.setattr(declared, "_list_outside", list_other)
    assert because in find_wrongly_judged()


def test_the_slack_is_for_rounding_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for slack in (0, 1e-3):
        monkeypatch.setattr(declared, "SLACK", slack)
        assert find_wrongly_judged()


def test_a_good_study_breaks_no_declaration(good: duckdb.DuckDBPyConnection) -> None:
    assert {table.name: broken for table in TABLES if (broken := find(good, table))} == {}


def test_no_row_may_stand_twice(good: duckdb.DuckDBPyConnection) -> None:
    """``sql/checks`` counts the rows of the two tables of the size of a study."""
    missed = []
    for table in TABLES:
        good.begin()
        (added,) = good.execute(f"INSERT INTO {table.name} FROM {table.name} LIMIT 1").fetchall()[0]
        if added and "keys_once" not in find(good, table):
            missed.append(table.name)
        good.rollback()
    assert missed == sorted(DENSE)
