"""The SQL that a report suggests: it runs, and says what the report says."""

import duckdb
import pytest

from reports.page import EXAMPLES, _list_examples
from tests.made_up import warehouse
from tests.reports.conftest import THREE

STUDY = THREE
ALL_QUERIES = {"Precision and Recall by context size"}
"""Questions about several queries."""


def asked(connection: duckdb.DuckDBPyConnection, question: str) -> list[tuple[object, ...]]:
    query = EXAMPLES[question].replace("$query", "23").replace("$study", "'three'")
    return connection.sql(query).fetchall()


@pytest.mark.one_case
@pytest.mark.parametrize("question", sorted(set(EXAMPLES) - ALL_QUERIES))
def test_an_example_is_about_the_query_that_the_report_shows(question: str) -> None:
    with warehouse(STUDY) as connection:
        found = asked(connection, question)
        tables = connection.execute(
            "SELECT table_name FROM duckdb_columns() SEMI JOIN duckdb_tables() USING (table_name) "
            "WHERE column_name = 'query'"
        ).fetchall()
        for (table,) in tables:
            connection.execute(f"DELETE FROM {table} WHERE query <> 23")
        assert asked(connection, question) == found


def test_examples_across_queries_show_each() -> None:
    with warehouse(STUDY) as connection:
        for question in ALL_QUERIES:
            assert {row[0] for row in asked(connection, question)} == set(STUDY.queries)


def test_commands_hold_study_and_query() -> None:
    commands = [command for _, command in _list_examples("three", 23)]
    assert not any("$" in command for command in commands)
    assert sum("query = 23" in command for command in commands) == sum("$query" in text for text in EXAMPLES.values())
