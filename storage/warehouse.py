"""The warehouse: one DuckDB file per study, built aside, checked, and published by an atomic rename.

Holds landing (``land``) and the read-only way in (``connect``). What does not belong here: the SQL itself (``sql``) and
what the rows are (``storage.rows``).

Why one file per study. DuckDB lets one process write a file or many read it, never both. A file that is only ever
published whole and then only read makes readers and writers independent: a reader keeps the version it opened, two
studies land at the same time, and a failed landing leaves the previous file as it was. ``connect`` attaches every
published file read-only to an empty in-memory database whose views unite them.
"""

import logging
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import sql
from storage.aside import beside, sweep
from storage.errors import UserError
from storage.locks import exclusive

logger = logging.getLogger(__name__)

SUFFIX = ".duckdb"
LOCK_WAIT = 60.0
"""Seconds a landing waits for another landing of the same study."""

Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True)
class Landing:
    """What a landing did."""

    path: Path
    rows: dict[str, int]
    """Rows of each table."""
    violations: dict[str, list[tuple[Any, ...]]]
    """For each check of ``sql/checks``, and for ``row_count``, the first rows that break it; empty when all is well."""
    bytes: int
    seconds: float

    @property
    def published(self) -> bool:
        """Whether the study was published; it is not if any check found a violation."""
        return not any(self.violations.values())


def database(folder: Path, study: str) -> Path:
    """Where the published database of a study lies."""
    return folder / f"{study}{SUFFIX}"


def published(folder: Path) -> dict[str, Path]:
    """The published studies of a warehouse and their files, by name."""
    return {path.name.removesuffix(SUFFIX): path for path in sorted(folder.glob(f"*{SUFFIX}"))}


def land(folder: Path, study: str, tables: Mapping[str, Batches], expected: Mapping[str, int] | None = None) -> Landing:
    """Replace everything the warehouse holds of a study, in one transaction, or change nothing.

    Parameters
    ----------
    folder
        The warehouse.
    study
        Name of the study; it becomes the column ``study`` of every row.
    tables
        For each table of ``sql/schema``, but those that ``sql/derived`` fills, its rows without the column ``study``,
        as a stream of record batches.
    expected
        How many rows some of the tables must get; other numbers are a violation of the check ``row_count``.

    Raises
    ------
    UserError
        If another process is landing the same study, or the disk is full.
    """
    started = time.monotonic()
    aside = beside(folder / study)
    with exclusive(folder / f"{study}.lock", f"the tables of study '{study}'", wait=LOCK_WAIT):
        sweep(folder / study)
        try:
            rows, violations = _build(aside, study, tables)
            violations["row_count"] = [
                (table, rows[table], count) for table, count in (expected or {}).items() if rows[table] != count
            ]
            size = aside.stat().st_size
            if not any(violations.values()):
                aside.replace(database(folder, study))
        except (OSError, duckdb.IOException, duckdb.FatalException) as error:
            why = " ".join(str(error).split())
            msg = f"The tables of study '{study}' could not be written to {folder} ({why}); free space and run again"
            raise UserError(msg) from error
        finally:
            sweep(folder / study)
    return Landing(database(folder, study), rows, violations, size, time.monotonic() - started)


def _build(
    path: Path, study: str, tables: Mapping[str, Batches]
) -> tuple[dict[str, int], dict[str, list[tuple[Any, ...]]]]:
    """Write a study's database to ``path``; return its row counts and what breaks its checks."""
    with duckdb.connect(path) as connection:
        connection.begin()
        create_tables(connection)
        create_relations(connection)
        rows = {name: _insert(connection, name, study, batches) for name, batches in tables.items()}
        rows |= derive(connection, study)
        connection.commit()
        violations = {
            name: connection.execute(sql.statement("checks", name).text, {"study": study}).fetchmany(5)
            for name in sql.names("checks")
        }
        connection.execute("CHECKPOINT")
    return rows, violations


def _insert(connection: duckdb.DuckDBPyConnection, table: str, study: str, batches: Batches) -> int:
    """Insert all batches into a table of ``sql/schema``; return the number of rows."""
    stream = iter(batches)
    first = next(stream, None)
    if first is None:
        return 0
    reader = pa.RecordBatchReader.from_batches(first.schema, _chain(first, stream))
    connection.register("incoming", reader)
    inserted = connection.execute(
        f"INSERT INTO {table} BY NAME SELECT $study AS study, * FROM incoming",  # noqa: S608 (a name of sql/schema)
        {"study": study},
    ).fetchone()
    connection.unregister("incoming")
    return int(inserted[0]) if inserted else 0


def _chain(first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    yield first
    yield from rest


def create_tables(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the tables of ``sql/schema``, empty, with their comments."""
    for name in sql.names("schema"):
        table = sql.statement("schema", name)
        connection.execute(table.text)
        _comment(connection, "TABLE", table)


def create_relations(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the macros of ``sql/macros`` and the views of ``sql/views``, with their comments.

    The connection must have the tables of ``sql/schema``, or views of these names: DuckDB looks them up at once.
    """
    for relation in sql.in_order("macros", "views"):
        connection.execute(relation.text)
        _comment(connection, _kind(relation), relation)


def derive(connection: duckdb.DuckDBPyConnection, study: str) -> dict[str, int]:
    """Fill the tables of ``sql/derived`` for a study whose other tables are filled; return their row counts."""
    counts = {}
    for derived in sql.in_order("derived"):
        inserted = connection.execute(
            f"INSERT INTO {derived.name} BY NAME\n{derived.text}",
            {"study": study},
        ).fetchone()
        counts[derived.name] = int(inserted[0]) if inserted else 0
    return counts


def _kind(relation: sql.Statement) -> str:
    """What COMMENT calls a macro or a view."""
    if relation.kind == "views":
        return "VIEW"
    return "MACRO TABLE" if "AS TABLE" in relation.text else "MACRO"


def _comment(connection: duckdb.DuckDBPyConnection, what: str, described: sql.Statement) -> None:
    """Give a relation and its columns the comments of its file."""
    comments = [f"COMMENT ON {what} {described.name} IS {_literal(described.meaning)}"]
    comments += [
        f"COMMENT ON COLUMN {described.name}.{column} IS {_literal(comment)}"
        for column, comment in described.columns.items()
    ]
    connection.execute(";".join(comments))


def _literal(text: str) -> str:
    """A SQL string literal; COMMENT takes no parameters."""
    return "'" + text.replace("'", "''") + "'"


def _identifier(name: str) -> str:
    """A quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def connect(folder: Path) -> duckdb.DuckDBPyConnection:
    """Open the warehouse for reading: every published study, united, as tables and views with comments.

    The connection sees the studies as they are published now, each whole. It can write nothing and reach neither other
    files nor the network. It holds no lock that a landing would wait for. A study that an earlier version landed has
    NULL in the columns and no rows in the tables that its file lacks; one warning names all such studies.

    Raises
    ------
    UserError
        If a published file cannot be read.
    """
    connection = duckdb.connect()
    studies = published(folder)
    try:
        for study, path in studies.items():
            _attach(connection, study, path)
    except UserError:
        connection.close()
        raise
    _unite(connection, studies)
    create_relations(connection)
    for setting in (
        "enable_external_access = false",
        "autoinstall_known_extensions = false",
        "lock_configuration = true",
    ):
        connection.execute(f"SET {setting}")
    return connection


@cache
def paper_claims() -> tuple[dict[str, Any], ...]:
    """The rows of the view ``paper_claims``, which are the same for every study."""
    with duckdb.connect() as connection:
        connection.execute(sql.statement("views", "paper_claims").text)
        rows: list[dict[str, Any]] = connection.sql("FROM paper_claims").to_arrow_table().to_pylist()
    return tuple(rows)


def _unite(connection: duckdb.DuckDBPyConnection, studies: Mapping[str, Path]) -> None:
    """Create a view of every table of ``sql/schema`` over the attached studies, whatever of it their files have."""
    stored = _columns(connection)
    for table, columns in _layout().items():
        nothing = ", ".join(f"NULL::{kind} AS {name}" for name, kind in columns.items())
        parts = [f"FROM {_identifier(_alias(study))}.{table}" for study in studies if table in stored[_alias(study)]]
        connection.execute(
            f"CREATE VIEW {table} AS " + " UNION ALL BY NAME ".join([f"(SELECT {nothing} LIMIT 0)", *parts])
        )
        _comment(connection, "VIEW", sql.statement("schema", table))
    _warn_of_older({path: list(_lacking(stored[_alias(study)])) for study, path in studies.items()})


def _warn_of_older(lacking: Mapping[Path, list[str]]) -> None:
    """Name the studies whose files lack something, given what each file lacks."""
    older = {path.name.removesuffix(SUFFIX): path for path, missing in lacking.items() if missing}
    for path in older.values():
        logger.debug("%s lacks %s", path, ", ".join(lacking[path]))
    if not older:
        return
    was, lacks, it, name = ("was", "lacks", "it", *older) if len(older) == 1 else ("were", "lack", "them", "NAME")
    _warn_once(
        f"{', '.join(older)} {was} landed by an earlier version and {lacks} tables or columns of this version; "
        f"rebuild {it}: attention-geometry run {name}, with --fresh if it says so"
    )


def _lacking(stored: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Tables and columns of ``sql/schema`` that a database with these tables and columns does not have."""
    for table, columns in _layout().items():
        if table not in stored:
            yield table
        else:
            yield from (f"{table}.{column}" for column in columns if column not in stored[table])


@cache
def _layout() -> dict[str, dict[str, str]]:
    """Type of each column of each table of ``sql/schema``, in order."""
    with duckdb.connect() as connection:
        create_tables(connection)
        return _columns(connection)["memory"]


def _columns(connection: duckdb.DuckDBPyConnection) -> dict[str, dict[str, dict[str, str]]]:
    """Type of each column of each table of each database of a connection, in order."""
    found: dict[str, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for alias, table, column, kind in connection.execute(
        "SELECT database_name, table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal "
        "ORDER BY table_name, column_index"
    ).fetchall():
        found[alias][table][column] = kind
    return found


@cache
def _warn_once(message: str) -> None:
    """Log a warning, but not a second time in this process."""
    logger.warning(message)


def _attach(connection: duckdb.DuckDBPyConnection, study: str, path: Path) -> None:
    """Attach a published database read-only."""
    try:
        connection.execute(f"ATTACH {_literal(os.fspath(path))} AS {_identifier(_alias(study))} (READ_ONLY)")
    except duckdb.Error as error:
        msg = (
            f"{path} cannot be read ({str(error).splitlines()[0]}); rebuild it: attention-geometry run {study} --fresh"
        )
        raise UserError(msg) from error


def _alias(study: str) -> str:
    """Name of a study's database where it is attached."""
    return f"study {study}"
