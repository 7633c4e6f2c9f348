"""Runs the queries that lie with their figures, and those for the rows of a table or view, with bound parameters."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import sql
from storage.errors import UserError
from storage.warehouse.connection import describe_damage
from storage.warehouse.relations import quote_literal

Parameter = str | float | None


@dataclass(frozen=True)
class Answer:
    """Result of a named query, with what is needed to run it again."""

    query: str  # Name of a file ``NAME.sql`` of this package, or of a table or view
    parameters: dict[str, Parameter]
    table: pa.Table

    @property
    def sql(self) -> str:
        """The SQL with its parameters filled in, ready to be run."""

        def fill(match: re.Match[str]) -> str:
            value = self.parameters[match[1]]
            return "NULL" if value is None else quote_literal(value) if isinstance(value, str) else str(value)

        return re.sub(r"\$(\w+)", fill, _find_statement(self.query, self.parameters).code)

    def rows(self) -> list[dict[str, Any]]:
        """The table as plain rows; NULL is ``None``."""
        rows: list[dict[str, Any]] = self.table.to_pylist()
        return rows


@cache
def find_queries() -> dict[str, Path]:
    """The files of the named queries, by name."""
    return {path.stem: path for path in sorted(Path(__file__).parent.rglob("*.sql"), key=lambda path: path.stem)}


@cache
def read_query(name: str) -> sql.Statement:
    """Read a named query."""
    return sql.read_query(name, find_queries()[name].read_text(encoding="utf-8"))


def _find_statement(query: str, parameters: Iterable[str]) -> sql.Statement:
    return read_query(query) if query in find_queries() else sql.select_rows(query, tuple(parameters))


def ask(connection: duckdb.DuckDBPyConnection, query: str, /, **parameters: Parameter) -> Answer:
    """Run the query of this name with its named parameters, or ask for the rows of the table or view ``query``."""
    text = _find_statement(query, parameters).text
    try:
        return Answer(query, parameters, connection.sql(text, params=parameters).to_arrow_table())
    except duckdb.Error as error:
        if said := describe_damage(connection, str(error)):
            raise UserError(said) from error
        raise
