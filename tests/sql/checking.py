"""A study in which nothing is wrong, and what the checks of the warehouse find."""

import duckdb

import sql
from tests.made_up import MadeUp

STUDY = MadeUp(
    queries=(5, 11, 23), first_keys=(0, 0, 10), heads=6, kappas=(0.5, 2), effects=True, drawn=True, every_query=True
)
"""A study with rows in every table but those of other tools; in its last layer the last query sees no sink."""


def violations(connection: duckdb.DuckDBPyConnection, check: str, study: str = STUDY.study) -> list[tuple[object, ...]]:
    """The rows in which a check finds a study to be wrong."""
    return connection.execute(sql.read_statement("checks", check).text, {"study": study}).fetchall()
