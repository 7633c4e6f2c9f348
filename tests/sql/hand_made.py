"""Databases of a few hand-made rows, as they are or with a statement of ``sql`` broken on purpose.

Holds what the tests of this folder share. What does not belong here: whole studies (``tests.made_up``).
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import sql
from storage.warehouse.relations import fill, find_tables_read
from tests.made_up import open_empty

STUDY = "hand-made"

Row = dict[str, Any]

MEANS = {
    f"{metric}{end}": 0.5
    for metric in ("precision", "recall", "f_r_max", "f_r_min", "specificity", "precision_excess")
    for end in ("", "_low", "_high")
} | {"sequences": 2}
"""The columns of a row of means that a test may not care about."""


def database(**tables: Sequence[Row]) -> duckdb.DuckDBPyConnection:
    """A study with these rows, the derived tables that follow from them, macros and views."""
    connection = open_empty()
    for table, rows in tables.items():
        insert(connection, table, rows)
    filled = {table for table, rows in tables.items() if rows}
    for derived in sql.sort_statements("derived"):
        if find_tables_read(derived) & filled and fill(connection, derived, STUDY):
            filled.add(derived.name)
    return connection


def insert(connection: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Row]) -> None:
    """Insert rows of the study into a table; required columns that a test does not care about get some value."""
    if rows:
        values = {"VARCHAR": "other", "BOOLEAN": False}
        required = {
            column.name: values.get(column.type, 1)
            for column in sql.read_statement("schema", table).typed
            if column.required
        }
        given = [required | {"study": STUDY} | row for row in rows]
        connection.register("incoming", pa.Table.from_pylist(given))
        connection.execute(f"INSERT INTO {table} BY NAME FROM incoming")
        connection.unregister("incoming")


def rows_of(connection: duckdb.DuckDBPyConnection, relation: str) -> list[Row]:
    """Rows of a relation, in order, without the study's name."""
    found = connection.sql(f"SELECT * EXCLUDE study FROM {relation} ORDER BY ALL").to_arrow_table()
    rows: list[Row] = found.to_pylist()
    return rows


def break_statement(monkeypatch: pytest.MonkeyPatch, name: str, old: str, new: str) -> None:
    """Replace a piece of a macro, view or derived table, which must be there."""
    whole = sql.read_statement

    def broken(kind: sql.StatementKind, wanted: str) -> sql.Statement:
        found = whole(kind, wanted)
        if wanted != name or kind == "schema":
            return found
        if old not in found.text:  # no AssertionError, which a test may expect of the comparison
            raise LookupError(f"{name} has no {old}")
        return replace(found, text=found.text.replace(old, new))

    monkeypatch.setattr(sql, "read_statement", broken)


def find_elbow(curve: list[tuple[float, float]]) -> Row:
    """The elbow of a curve of Precision and Recall from N = 1, by a plain search."""
    separability = {n: 2 * p * r / (p + r) for n, (p, r) in enumerate(curve, 1) if n > 1}
    if not separability:
        unknown = ("lowest_n", "lowest_harmonic_mean", "elbow_n", "harmonic_mean")
        return dict.fromkeys(unknown) | {"status": "trivial"}
    lowest_n = min(separability, key=lambda n: (separability[n], n))
    lowest = {"lowest_n": lowest_n, "lowest_harmonic_mean": separability[lowest_n]}
    if lowest_n == 2:
        return lowest | {"elbow_n": None, "harmonic_mean": None, "status": "no_decline"}
    slope = (separability[lowest_n] - separability[2]) / math.log(lowest_n / 2)
    heights = {n: separability[n] - (separability[2] + slope * math.log(n / 2)) for n in range(2, lowest_n + 1)}
    heights[2] = heights[lowest_n] = 0.0
    elbow_n = max(heights, key=lambda n: (heights[n], -n))
    if heights[elbow_n] < 0.1 * (separability[2] - separability[lowest_n]):
        return lowest | {"elbow_n": None, "harmonic_mean": None, "status": "no_bend"}
    return lowest | {"elbow_n": elbow_n, "harmonic_mean": separability[elbow_n], "status": "ok"}
