"""Landing: build the DuckDB file of a study under a temporary name, check it, and publish it by an atomic rename."""

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Self

import duckdb
import pyarrow as pa

import sql
from storage.errors import UserError
from storage.files.locks import hold_lock
from storage.files.staging import make_staging_path, remove_leftovers, synchronise
from storage.warehouse.connection import READABLE_FROM, bound_memory, locate_database, write_entry
from storage.warehouse.declared import list_conditions
from storage.warehouse.jobs import compute_jobs
from storage.warehouse.relations import (
    create_relations,
    create_tables,
    describe_table,
    fill,
    find_tables_read,
    quote_literal,
)

logger = logging.getLogger(__name__)

LOCK_WAIT = 60.0
"""Seconds a landing waits for another landing of the same study."""

LANES = 2
"""Threads that fill tables and run checks at a time; as many as there are ``LARGE`` tables."""

MEMORY = 4 * 2**30
"""Most bytes that DuckDB may hold while it builds a database; beyond that, it spills to a folder next to it.

If less is free, the limit is lower (``bound_memory``).
"""

ROW_GROUP = 122_880
"""Rows that DuckDB stores together; batches of this size are written as they are, others are first combined."""

SHOWN = 5
"""Number of rows to report that break a check."""

LARGE = ("selection_counts", "upper_bounds")
"""The tables whose size is that of the study; the others are small."""

RELATIONS = "macros and views"
"""Name of the job that creates the macros and views; no table has this name."""

DECLARED = {
    "keys_once": "Each row of a table has another key than all others.",
    "values_in_domain": "Every value lies in the domain of its column, and intervals enclose their estimates.",
}
"""The checks that follow from the declarations of tables."""

COMPUTED = "computed tables"
"""Name of the job that fills the tables that are computed from all others; no table has this name."""

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
    aside = make_staging_path(folder / study)
    with hold_lock(folder / f"{study}.lock", f"the tables of study '{study}'", wait=LOCK_WAIT):
        remove_leftovers(folder / study)
        try:
            with translate_space_errors(folder, study):
                rows, violations = _build(aside, study, tables, computed)
                violations["row_count"] = [
                    (table, rows[table], count) for table, count in (expected or {}).items() if rows[table] != count
                ]
                size = aside.stat().st_size
                if not any(violations.values()):
                    publish(aside, locate_database(folder, study))
        finally:
            remove_leftovers(folder / study)
    landed = Landing(locate_database(folder, study), rows, violations, size, time.monotonic() - started)
    if landed.published:
        renew_script(folder)
    return landed


@contextmanager
def translate_space_errors(folder: Path, study: str) -> Iterator[None]:
    """Raise a one-line error if the tables of a study cannot be written for lack of disk space or memory.

    Raises
    ------
    UserError
        If the disk or the memory is exhausted inside the context.
    """
    try:
        yield
    except SPACE_ERRORS as error:
        why = " ".join(str(error).partition("\n\n")[0].split())  # DuckDB's hints are for authors of SQL
        remedy = "free disk space or memory and run again"
        raise UserError(f"The tables of study '{study}' could not be written to {folder} ({why}); {remedy}") from error


def renew_script(folder: Path) -> None:
    """Rewrite the script of the plain shell; if that fails, log it, since the study has landed."""
    try:
        write_entry(folder)
    except (OSError, UserError, duckdb.Error) as error:
        why = " ".join(str(error).split())
        msg = "The script for the duckdb shell in %s is out of date (%s); to rewrite it: attention-geometry sql"
        logger.warning(msg, folder, why)


def publish(aside: Path, path: Path) -> None:
    """Rename a database to ``path`` once it is on the disk, so that a power cut leaves the old one or the new one."""
    synchronise(aside)
    path.with_name(f"{path.name}.wal").unlink(missing_ok=True)  # DuckDB would apply a leftover log; this has none
    aside.replace(path)
    synchronise(path.parent)


def _build(
    path: Path, study: str, tables: Mapping[str, Batches], computed: DerivedTables | None
) -> tuple[dict[str, int], dict[str, list[tuple[Any, ...]]]]:
    """Write a study's database to ``path``; return its row counts and what breaks its checks."""
    with DraftDatabase.create(path) as aside:
        with aside.cursor() as cursor:
            create_tables(cursor)
        jobs, after = _build_jobs(aside, study, tables, computed)
        done = compute_jobs(jobs, after, threads=LANES, what="landing", unit="step", stop=aside.stop)
    rows = {name: done[name] for name in (*tables, *sql.list_names("derived"))} | done.get(COMPUTED, {})
    violations = {name: done[_make_job_name(name)] for name in sql.list_names("checks")}
    of_tables = [done[_make_job_name(name)] for name in sql.list_names("schema")]
    return rows, violations | {
        name: [row for violated in of_tables for row in violated.get(name, [])] for name in DECLARED
    }


def _build_jobs(
    aside: "DraftDatabase", study: str, tables: Mapping[str, Batches], computed: DerivedTables | None
) -> tuple[dict[str, Callable[[], Any]], dict[str, frozenset[str]]]:
    """Jobs by name, and the jobs that each waits for: a table is filled, or a check run, after the tables it reads.

    Given tables come first, the largest before the others, then derived tables, those computed from all of these, then
    checks. Derived tables and checks also wait for the macros and views.
    """
    last = set(computed.tables) if computed else set()
    given = sorted(
        set(sql.list_names("schema")) - set(sql.list_names("derived")) - last,
        key=lambda name: (name not in LARGE, name),
    )
    derived, checks = (
        [sql.read_statement(kind, name) for name in sql.list_names(kind)] for kind in ("derived", "checks")
    )
    jobs: dict[str, Callable[[], Any]] = {
        name: partial(_insert, aside, name, study, tables.get(name, ())) for name in given
    }
    jobs[RELATIONS] = partial(_create_relations, aside)
    jobs |= {table.name: partial(_derive, aside, table, study) for table in derived}
    after = {table.name: find_tables_read(table) | {RELATIONS} for table in derived}
    if computed:
        after[COMPUTED] = frozenset(jobs)
        jobs[COMPUTED] = partial(_compute, aside, computed, study)
    jobs |= {_make_job_name(check.name): partial(_find_violations, aside, check, study) for check in checks}
    tables_declared = [sql.read_statement("schema", name) for name in sql.list_names("schema")]
    jobs |= {_make_job_name(table.name): partial(_find_undeclared, aside, table, study) for table in tables_declared}
    reading = {check.name: find_tables_read(check) for check in checks}
    reading |= {table.name: frozenset({table.name}) for table in tables_declared}
    for name, read in reading.items():
        after[_make_job_name(name)] = (read - last) | {RELATIONS} | ({COMPUTED} if read & last else set())
    return jobs, after


def _find_undeclared(aside: "DraftDatabase", table: sql.Statement, study: str) -> dict[str, list[tuple[Any, ...]]]:
    """The first rows of a table that its declaration excludes, by the name of the check."""
    with aside.cursor() as cursor:
        return {
            name: cursor.execute(statement, {"study": study}).fetchmany(SHOWN)
            for name, statement in list_conditions(table)
        }


def _make_job_name(name: str) -> str:
    """Name of the job of a check, or of the checks of a table's declaration; no table has such a name."""
    return f"check {name}"


class DraftDatabase:
    """A database that is being built under a temporary name, with a separate cursor for each of several threads.

    It needs no write-ahead log, because it is not read after a crash.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._cursors: set[duckdb.DuckDBPyConnection] = set()
        self._stopped = False

    @classmethod
    @contextmanager
    def create(cls, path: Path) -> Iterator[Self]:
        """Create a database at ``path``; after the context, all of it is in the file."""
        with duckdb.connect(config={"temp_directory": f"{path}.tmp"}) as connection:
            bound_memory(connection, MEMORY)
            attached = f"ATTACH {quote_literal(os.fspath(path))} AS {ALIAS}"
            connection.execute(f"{attached} (STORAGE_VERSION '{READABLE_FROM}', RECOVERY_MODE no_wal_writes)")
            yield cls(connection)
            connection.execute(f"CHECKPOINT {ALIAS}")

    @contextmanager
    def cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection to the database for one thread; raises ``duckdb.InterruptException`` once it is stopped."""
        with self._connection.cursor() as cursor:
            cursor.execute(f"USE {ALIAS}")
            self._cursors.add(cursor)
            try:
                if self._stopped:
                    raise duckdb.InterruptException("The database is no longer being built")
                yield cursor
            finally:
                self._cursors.discard(cursor)

    def stop(self) -> None:
        """Interrupt the running statements, and refuse further cursors."""
        self._stopped = True
        for cursor in tuple(self._cursors):
            with suppress(duckdb.Error):  # it may have been closed meanwhile
                cursor.interrupt()


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


def _insert(aside: DraftDatabase, table: str, study: str, batches: Batches) -> int:
    """Insert all batches into a table of ``sql/schema``, and describe it; return the number of rows."""
    stream = _Stream(batches)
    groups = _group_rows(stream)
    first = next(groups, None)
    inserted = None
    with aside.cursor() as cursor:
        if first is not None:
            cursor.register("incoming", pa.RecordBatchReader.from_batches(first.schema, chain([first], groups)))
            try:
                inserted = cursor.execute(
                    f"INSERT INTO {table} BY NAME SELECT $study AS study, * FROM incoming",  # noqa: S608 (of sql/schema)
                    {"study": study},
                ).fetchone()
            except duckdb.Error as error:
                raise stream.raised or error from None
        describe_table(cursor, table)
    return int(inserted[0]) if inserted else 0


def _compute(aside: DraftDatabase, computed: DerivedTables, study: str) -> dict[str, int]:
    """Fill the tables that are computed from the others; return their numbers of rows."""
    with aside.cursor() as cursor:
        parts: dict[str, list[pa.RecordBatch]] = {table: [] for table in computed.tables}
        for table, batch in computed.rows(cursor):
            parts[table].append(batch)
    return {table: _insert(aside, table, study, batches) for table, batches in parts.items()}


def _create_relations(aside: DraftDatabase) -> None:
    """Create macros and views."""
    with aside.cursor() as cursor:
        create_relations(cursor)


def _derive(aside: DraftDatabase, table: sql.Statement, study: str) -> int:
    """Fill a table of ``sql/derived``, and describe it; return the number of rows."""
    with aside.cursor() as cursor:
        rows = fill(cursor, table, study)
        describe_table(cursor, table.name)
    return rows


def _find_violations(aside: DraftDatabase, check: sql.Statement, study: str) -> list[tuple[Any, ...]]:
    """The first rows that break a check."""
    with aside.cursor() as cursor:
        return cursor.execute(check.text, {"study": study}).fetchmany(SHOWN)
