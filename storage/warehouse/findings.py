"""Summaries of small tables, one sentence each."""

import re
from collections.abc import Mapping
from functools import cache

import duckdb

import sql
from storage.files.places import Place
from storage.warehouse.relations import quote_literal


def read_finding(asset: str, tables: Mapping[str, Place]) -> str | None:
    """Summarise the tables of an asset in a sentence; None if ``sql/findings`` has no statement for them.

    Parameters
    ----------
    asset
        Name of the asset.
    tables
        The Parquet file of each of its tables that has rows.
    """
    if asset not in sql.list_names("findings"):
        return None
    statement = sql.read_statement("findings", asset)
    inputs = statement.inputs.split(", ")
    if not tables.keys() >= {*inputs}:
        return None
    with _connect().cursor() as connection:
        for table in inputs:
            place = quote_literal(str(tables[table]))  # no statement that creates takes parameters
            connection.execute(f"CREATE TEMP VIEW {table} AS FROM read_parquet({place})")
        (said,) = connection.execute(statement.text).fetchone() or (None,)
    return None if said is None else re.sub(r"(?<!\w)-(?=\d)", "−", said)


@cache
def _connect() -> duckdb.DuckDBPyConnection:
    """The empty database of all summaries, opened once because that takes longer than a summary.

    Each cursor has views of its own. One thread, because to wake others takes longer than to read a small table.
    """
    return duckdb.connect(config={"threads": 1})
