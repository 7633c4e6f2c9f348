"""The tour: worked examples that run on any study, and do so whole."""

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

import sql
from storage.files.root import warehouse_of
from storage.warehouse.connection import READABLE_FROM, connect, write_entry
from storage.warehouse.documentation import list_examples, render_example
from storage.warehouse.query import query
from storage.warehouse.relations import create_relations, create_tables, derive, describe_table
from tests.made_up import SMALL, MadeUp, insert, tables, warehouse
from tests.sql.checking import STUDY
from tests.storage.shell import in_shell

NUMBERS = range(1, len(sql.list_names("tour")) + 1)
FIRST = replace(STUDY, study="o'clock $study")  # A name that a careless statement would break on
SECOND = replace(SMALL, study="second")
OTHER_TEXTS = "UPDATE tokens SET token = upper(token) WHERE study = 'second'"


@pytest.fixture(scope="module")
def two() -> Iterator[duckdb.DuckDBPyConnection]:
    with warehouse(FIRST, SECOND) as connection:
        connection.execute(OTHER_TEXTS)
        describe_table(connection, "attention_rows")
        yield connection


@pytest.fixture(scope="module")
def alone() -> Iterator[duckdb.DuckDBPyConnection]:
    with warehouse(SECOND) as connection:
        connection.execute(OTHER_TEXTS)
        describe_table(connection, "attention_rows")
        yield connection


@pytest.mark.slow
@pytest.mark.comments
def test_the_plain_shell_gives_as_many_rows(tmp_path: Path) -> None:
    """All of them in one process of an older DuckDB, and the macros that no question of the tour calls."""
    folder = warehouse_of(tmp_path)
    folder.mkdir()
    with duckdb.connect(folder / "second.duckdb", config={"storage_compatibility_version": READABLE_FROM}) as stored:
        create_tables(stored)
        for table, rows in tables(SECOND).items():
            insert(stored, table, rows)
        create_relations(stored)
        derive(stored, SECOND.study)
    write_entry(folder)
    texts = [render_example(example, SECOND.study).strip().removesuffix(";") for example in list_examples()]
    texts += ["FROM elbows_of(selection_means)", "FROM lower_bounds(0.2, 'raw')"]
    counts = [f"SELECT count(*) FROM ({text})" for text in texts]
    with closing(connect(folder)) as connection:
        wanted = [connection.execute(count).fetchall()[0][0] for count in counts]
    assert in_shell(folder, *counts).split() == [str(count) for count in wanted]


def asked(connection: duckdb.DuckDBPyConnection, example: sql.Statement, study: MadeUp) -> list[list[object]]:
    """The answer, floats up to the order in which they were added."""
    rows = query(connection, render_example(example, study.study)).read_all().to_pylist()
    return [[round(value, 6) if isinstance(value, float) else value for value in row.values()] for row in rows]


@pytest.mark.parametrize("number", NUMBERS)
def test_every_statement_has_rows_of_the_study_asked_about_alone(
    two: duckdb.DuckDBPyConnection, alone: duckdb.DuckDBPyConnection, number: int
) -> None:
    example = list_examples()[number - 1]
    first, second = asked(two, example, FIRST), asked(two, example, SECOND)
    if {"onsets", "family_members", "family_overlaps"} & set(re.findall(r"\w+", example.inputs)):
        assert (first, second) == ([], []), "there is no family; tests/dagster_project/test_family_tables.py has one"
        return
    assert first
    assert second
    assert (first != second) == ("$study" in example.code)
    if "$study" in example.code and "compare_studies" not in example.code:  # which looks at another, if there is one
        assert second == asked(alone, example, SECOND)
