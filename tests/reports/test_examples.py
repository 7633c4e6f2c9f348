"""The SQL that a report suggests: it runs, and says what the report says."""

import pytest

from reports.page import EXAMPLES
from tests.made_up import warehouse
from tests.reports.conftest import THREE


@pytest.mark.one_case
@pytest.mark.parametrize("question", EXAMPLES)
def test_an_example_is_about_the_query_that_the_report_shows_or_about_each(question: str) -> None:
    query = EXAMPLES[question].replace("$query", "23").replace("$study", "'three'")
    with warehouse(THREE) as connection:
        found = connection.sql(query).fetchall()
        tables = connection.sql("FROM duckdb_columns() SEMI JOIN duckdb_tables() USING (table_name)")
        for (table,) in tables.filter("column_name = 'query'").select("table_name").fetchall():
            connection.execute(f"DELETE FROM {table} WHERE query <> 23")
        if question == "Precision and Recall by context size":
            assert {row[0] for row in found} == set(THREE.queries)
        else:
            assert connection.sql(query).fetchall() == found
