"""A study in which nothing is wrong, and what the checks of the warehouse find."""

import duckdb

import sql
from tests.made_up import MadeUp

STUDY = MadeUp(queries=(5, 11, 23), first_keys=(0, 0, 10))
"""A study of three queries; in its last layer the last one does not see the sink."""


def violations(connection: duckdb.DuckDBPyConnection, check: str, study: str = STUDY.study) -> list[tuple[object, ...]]:
    """The rows in which a check finds a study to be wrong."""
    return connection.execute(sql.read_statement("checks", check).text, {"study": study}).fetchall()
