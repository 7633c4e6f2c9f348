"""The tables, macros, views and derived tables of ``sql`` in a database, with their comments and their version."""

import hashlib
import re
from collections.abc import Iterator
from functools import cache

import duckdb

import sql

_NAME = re.compile(r"[a-z_0-9]+")


def create_tables(connection: duckdb.DuckDBPyConnection, kind: sql.StatementKind = "schema") -> None:
    """Create the tables of ``sql/schema`` or ``sql/families``, empty; ``describe_table`` gives them their comments."""
    connection.execute(";".join(sql.read_statement(kind, name).text for name in sql.list_names(kind)))


def describe_table(connection: duckdb.DuckDBPyConnection, name: str, kind: sql.StatementKind = "schema") -> None:
    """Give a table of ``sql/schema`` or ``sql/families`` and its columns their comments."""
    comment(connection, "TABLE", sql.read_statement(kind, name))


def create_relations(connection: duckdb.DuckDBPyConnection, *, described: bool = True) -> None:
    """Create the macros of ``sql/macros`` and the views of ``sql/views``, if ``described`` with their comments.

    The connection must have the tables of ``sql/schema``, or views of these names: DuckDB looks them up immediately.
    """
    for relation in sql.sort_statements("macros", "views"):
        connection.execute(relation.text)
        if described:
            comment(connection, classify_relation(relation), relation)


def derive(connection: duckdb.DuckDBPyConnection, study: str) -> dict[str, int]:
    """Fill the tables of ``sql/derived`` for a study whose other tables are filled; return their row counts."""
    return {derived.name: fill(connection, derived, study) for derived in sql.sort_statements("derived")}


def fill(connection: duckdb.DuckDBPyConnection, derived: sql.Statement, study: str) -> int:
    """Fill one table of ``sql/derived`` for a study; the tables that it reads must be filled. Return its row count."""
    inserted = connection.execute(f"INSERT INTO {derived.name} BY NAME\n{derived.text}", {"study": study}).fetchone()
    return int(inserted[0]) if inserted else 0


def find_tables_read(statement: sql.Statement) -> frozenset[str]:
    """The tables of ``sql/schema`` whose rows a statement reads, directly or through macros and views."""
    read = {name for one in _follow_inputs([statement], "macros", "views") for name in _NAME.findall(one.inputs)}
    return frozenset(read.intersection(sql.list_names("schema"))) - {statement.name}


def _follow_inputs(waiting: list[sql.Statement], *kinds: sql.StatementKind) -> Iterator[sql.Statement]:
    """Statements, and those of some kinds that they read, directly or through others, each once."""
    read = {name: sql.read_statement(kind, name) for kind in kinds for name in sql.list_names(kind)}
    while waiting:
        yield (statement := waiting.pop())
        waiting += [read.pop(name) for name in _NAME.findall(statement.inputs) if name in read]


def classify_relation(relation: sql.Statement) -> str:
    """Kind of a macro or view in a COMMENT statement."""
    if relation.kind == "views":
        return "VIEW"
    return "MACRO TABLE" if "AS TABLE" in relation.text else "MACRO"


def comment(connection: duckdb.DuckDBPyConnection, what: str, described: sql.Statement) -> None:
    """Give a relation and its columns the comments of its SQL file."""
    connection.execute(";".join(build_comments(what, described)))


def build_comments(what: str, described: sql.Statement) -> Iterator[str]:
    """The COMMENT statements of a relation and its columns; ``what`` is its kind in such a statement."""
    yield f"COMMENT ON {what} {described.name} IS {quote_literal(described.meaning)}"
    for column, text in described.columns.items():
        yield f"COMMENT ON COLUMN {described.name}.{quote_identifier(column)} IS {quote_literal(text)}"


def quote_literal(text: str) -> str:
    """A SQL string literal, where a statement takes no parameters."""
    return "'" + text.replace("'", "''") + "'"


def quote_identifier(name: str) -> str:
    """A quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


ROWS_VERSION = 7
"""Version of the rows that ``storage.warehouse.rows`` makes; increased when they change, so that studies land again."""


@cache
def compute_landing_version() -> str:
    """Version of the rows and a digest of the SQL that determines a database: tables, derived tables and checks.

    Views, and macros that no derived table or check reads, are created when the warehouse is opened, and do not count.
    """
    kinds: tuple[sql.StatementKind, ...] = ("schema", "derived", "checks")
    given = [sql.read_statement(kind, name) for kind in kinds for name in sql.list_names(kind)]
    text = "".join(statement.text for statement in _follow_inputs(given, "macros", "views"))
    return f"{ROWS_VERSION}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
