"""Landing: build the DuckDB file of a study or a family under a temporary name, check it, publish it by a rename."""

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Self

import duckdb
import pyarrow as pa
from tqdm import tqdm

import sql
from storage.errors import UserError
from storage.files.locks import hold_lock
from storage.files.staging import make_staging_path, remove_leftovers, synchronise
from storage.warehouse.connection import READABLE_FROM, bound_memory, locate_database, write_entry
from storage.warehouse.declared import list_conditions
from storage.warehouse.relations import create_relations, create_tables, derive, describe_table, quote_literal

logger = logging.getLogger(__name__)

LOCK_WAIT = 60.0
"""Seconds a landing waits for another landing of the same study."""

MEMORY = 4 * 2**30
"""Most bytes that DuckDB may hold while it builds a database; beyond that, it spills to a folder next to it.

If less is free, the limit is lower (``bound_memory``).
"""

ROW_GROUP = 122_880
"""Rows that DuckDB stores together; batches of this size are written as they are, others are first combined."""

SHOWN = 5
"""Number of rows to report that break a check."""

DECLARED = {
    "keys_once": "Each row of a table has another key than all others.",
    "values_in_domain": "Every value lies in the domain of its column, and intervals enclose their estimates.",
}
"""The checks that follow from the declarations of tables."""

ALIAS = "aside"
"""Name of the database while it is being built."""

SPACE_ERRORS = (
    OSError,
    duckdb.IOException,
    duckdb.FatalException,
    duckdb.OutOfMemoryException,
    duckdb.TransactionException,
)
"""What is raised if a database cannot be written for lack of disk space or memory.

A transaction that runs out of either while it commits raises the last one; no other process writes to the database, so
that another transaction cannot be the cause.
"""

Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True)
class DerivedTables:
    """Tables whose rows are computed from the other tables of the database, once these are filled."""

    tables: tuple[str, ...]
    rows: Callable[[duckdb.DuckDBPyConnection], Iterator[tuple[str, pa.RecordBatch]]]
    """From a connection to the database to the name of a table with each batch of its rows, without ``study``."""


@dataclass(frozen=True)
class Landing:
    """Result of a landing."""

    path: Path
    rows: dict[str, int]
    """Rows of each table."""
    violations: dict[str, list[tuple[Any, ...]]]
    """For each check of ``sql/checks`` and ``DECLARED``, and ``row_count``, the first rows that break it, if any."""
    bytes: int
    seconds: float

    @property
    def published(self) -> bool:
        """Whether the study was published; it is not if any check found a violation."""
        return not any(self.violations.values())


def land(
    folder: Path,
    study: str,
    tables: Mapping[str, Batches],
    expected: Mapping[str, int] | None = None,
    computed: DerivedTables | None = None,
) -> Landing:
    """Replace the database of a study in the warehouse atomically, or change nothing if a check fails.

    Parameters
    ----------
    folder
        The warehouse.
    study
        Name of the study; it becomes the column ``study`` of every row.
    tables
        For each table of ``sql/schema``, except those that ``sql/derived`` fills, its rows without the column
        ``study``, as a stream of record batches.
    expected
        How many rows some of the tables must get; other numbers are a violation of the check ``row_count``.
    computed
        Tables that are computed from the others.

    Raises
    ------
    UserError
        If another process is landing the same study, the disk is full or memory is too small.
    Exception
        Whatever a stream of ``tables`` raises.
    """
    started = time.monotonic()
    with _replace_database(folder, study, "study") as aside:
        rows, violations = _build(aside, study, tables, computed)
        violations["row_count"] = [
            (table, rows[table], count) for table, count in (expected or {}).items() if rows[table] != count
        ]
        size = aside.stat().st_size
        if any(violations.values()):
            aside.unlink()
    return Landing(locate_database(folder, study), rows, violations, size, time.monotonic() - started)


def land_family(folder: Path, family: str, rows: Iterable[tuple[str, pa.RecordBatch]]) -> dict[str, int]:
    """Replace the database of a family in the warehouse atomically, or change nothing if its rows break a declaration.

    ``rows`` are names of tables of ``sql/families``, each with a batch of its rows without the column ``family``. The
    numbers of rows of each table are returned; ``UserError`` as by ``land``, or if a row breaks a declaration.
    """
    counts = dict.fromkeys(sql.list_names("families"), 0)
    with _replace_database(folder, family, "family") as aside, open_draft(aside) as connection:
        create_tables(connection, "families")
        for table, batch in rows:
            connection.register("incoming", batch)
            connection.execute(
                f"INSERT INTO {table} BY NAME SELECT $family AS family, * FROM incoming",  # noqa: S608 (of sql/families)
                {"family": family},
            )
            counts[table] += batch.num_rows
        for name in counts:
            for condition, statement in list_conditions(sql.read_statement("families", name)):
                if broken := connection.execute(statement, {"study": family}).fetchone():
                    raise UserError(f"The tables of the family '{family}' break the check {condition}: {broken}")
            describe_table(connection, name, "families")
    return counts


@contextmanager
def _replace_database(folder: Path, name: str, kind: str) -> Iterator[Path]:
    """Yield a path for a database that is published after the context, if it is there; one process at a time."""
    aside, path = make_staging_path(folder / name), locate_database(folder, name)
    with hold_lock(folder / f"{name}.lock", f"the tables of {kind} '{name}'", wait=LOCK_WAIT):
        remove_leftovers(folder / name)
        try:
            with translate_space_errors(folder, f"{kind} '{name}'"):
                yield aside
                if not aside.exists():
                    return
                synchronise(aside)  # so that a power cut leaves the old one or the new one
                path.with_name(f"{path.name}.wal").unlink(missing_ok=True)  # DuckDB would apply a leftover log
                aside.replace(path)
                synchronise(folder)
        finally:
            remove_leftovers(folder / name)
    try:
        write_entry(folder)
    except (OSError, UserError, duckdb.Error) as error:
        why = " ".join(str(error).split())
        msg = "The script for the duckdb shell in %s is out of date (%s); to rewrite it: attention-geometry sql"
        logger.warning(msg, folder, why)


@contextmanager
def translate_space_errors(folder: Path, what: str) -> Iterator[None]:
    """Raise a ``UserError`` of one line if tables cannot be written for lack of disk space or memory."""
    try:
        yield
    except SPACE_ERRORS as error:
        why = " ".join(str(error).partition("\n\n")[0].split())  # DuckDB's hints are for authors of SQL
        remedy = "free disk space or memory and run again"
        raise UserError(f"The tables of {what} could not be written to {folder} ({why}); {remedy}") from error


@contextmanager
def open_draft(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to a new database at ``path``; after the context, all of it is in the file.

    It needs no write-ahead log, because it is not read after a crash.
    """
    with duckdb.connect(config={"temp_directory": f"{path}.tmp"}) as connection:
        bound_memory(connection, MEMORY)
        attached = f"ATTACH {quote_literal(os.fspath(path))} AS {ALIAS}"
        connection.execute(f"{attached} (STORAGE_VERSION '{READABLE_FROM}', RECOVERY_MODE no_wal_writes)")
        connection.execute(f"USE {ALIAS}")
        yield connection
        connection.execute(f"CHECKPOINT {ALIAS}")


def _build(
    path: Path, study: str, tables: Mapping[str, Batches], computed: DerivedTables | None
) -> tuple[dict[str, int], dict[str, list[tuple[Any, ...]]]]:
    """Write a study's database to ``path``; return its row counts and what breaks its checks."""
    given = [name for name in sql.list_names("schema") if name in tables]
    rows: dict[str, int] = {}
    violations: dict[str, list[tuple[Any, ...]]] = {name: [] for name in DECLARED}
    with open_draft(path) as aside, tqdm(desc="landing", unit="step", disable=None) as bar:
        create_tables(aside)
        for table in given:
            rows[table] = insert(aside, table, study, tables[table])
            bar.update()
        create_relations(aside)
        rows |= derive(aside, study)
        rows |= _compute(aside, computed, study) if computed else {}
        for check in map(partial(sql.read_statement, "checks"), sql.list_names("checks")):
            violations[check.name] = aside.execute(check.text, {"study": study}).fetchmany(SHOWN)
            bar.update()
        for declared in map(partial(sql.read_statement, "schema"), sql.list_names("schema")):
            for name, statement in list_conditions(declared):
                violations[name] += aside.execute(statement, {"study": study}).fetchmany(SHOWN)
            describe_table(aside, declared.name)
    return rows, violations


class _Stream:
    """Iterator of record batches that keeps the exception it raises, because DuckDB passes on only its text."""

    def __init__(self, batches: Batches) -> None:
        self._batches = iter(batches)
        self.raised: Exception | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            return next(self._batches)
        except StopIteration:
            raise
        except Exception as error:
            self.raised = error
            raise


def _group_rows(batches: Batches) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, ``ROW_GROUP`` in each batch but the last."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        while (rows := sum(map(len, held))) >= ROW_GROUP:
            over = rows - ROW_GROUP
            last = held.pop()
            yield from _join_batches([*held, last.slice(0, len(last) - over)])
            held = [last.slice(len(last) - over)] if over else []
    if held:
        yield from _join_batches(held)


def _join_batches(batches: list[pa.RecordBatch]) -> Batches:
    """The rows of all these batches in one."""
    yield from pa.Table.from_batches(batches).combine_chunks().to_batches()


def join_parts(table: sql.Statement, parts: Mapping[str, Batches], spill: Path | None = None) -> Batches:
    """The rows of a table of ``sql/schema`` from its parts, in the order of its key if they are joined.

    Joining takes ``MEMORY`` bytes at most; what needs more is written to the folder ``spill``, if one is given.
    """
    if table.parts is None:
        yield from parts.get(table.name, ())
        return
    streams = {name: _Stream(parts[name]) for name in re.findall(r"(?:^|FROM |JOIN )\(*([a-z_]+)", table.parts)}
    begun = {name: next(stream, None) for name, stream in streams.items()}
    if not any(begun.values()):
        return
    with duckdb.connect(config={"temp_directory": str(spill or "")}) as connection:
        bound_memory(connection, MEMORY)
        connection.execute(
            f"CREATE SCHEMA declared; {table.text.replace('CREATE TABLE ', 'CREATE TABLE declared.', 1)}"
        )
        for name, first in begun.items():
            if first is None:
                connection.execute(f"CREATE VIEW {name} AS SELECT * EXCLUDE (study) FROM declared.{table.name}")  # noqa: S608
            else:
                rows = chain([first], streams[name])
                connection.register(name, pa.RecordBatchReader.from_batches(first.schema, rows))
        order = ", ".join(name for name in table.key if name != "study")
        try:
            yield from connection.sql(f"FROM {table.parts} ORDER BY {order}").to_arrow_reader(ROW_GROUP)
        except duckdb.Error as error:
            raise next((stream.raised for stream in streams.values() if stream.raised), error) from None


def insert(connection: duckdb.DuckDBPyConnection, table: str, study: str, batches: Batches) -> int:
    """Insert all batches into a table of ``sql/schema``; return the number of rows."""
    stream = _Stream(batches)
    groups = _group_rows(stream)
    if (first := next(groups, None)) is None:
        return 0
    connection.register("incoming", pa.RecordBatchReader.from_batches(first.schema, chain([first], groups)))
    statement = f"INSERT INTO {table} BY NAME SELECT $study AS study, * FROM incoming"  # noqa: S608 (of sql/schema)
    try:
        inserted = connection.execute(statement, {"study": study}).fetchone()
    except duckdb.Error as error:
        raise stream.raised or error from None
    return int(inserted[0]) if inserted else 0


def _compute(aside: duckdb.DuckDBPyConnection, computed: DerivedTables, study: str) -> dict[str, int]:
    """Fill the tables that are computed from the others; return their numbers of rows."""
    parts: dict[str, list[pa.RecordBatch]] = {table: [] for table in computed.tables}
    with aside.cursor() as cursor:
        cursor.execute(f"USE {ALIAS}")
        for table, batch in computed.rows(cursor):
            parts[table].append(batch)
    return {table: insert(aside, table, study, batches) for table, batches in parts.items()}
