"""Landing: one DuckDB file per study, built aside, checked, and published by an atomic rename.

Holds ``land``.
"""

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
from tqdm import tqdm

import sql
from storage.errors import UserError
from storage.files.locks import exclusive
from storage.files.staging import beside, sweep
from storage.warehouse.connection import READABLE_FROM, bound_memory, database, write_entry
from storage.warehouse.relations import create_relations, create_tables, describe_table, fill, literal, tables_read
from storage.warehouse.scheduler import in_lanes

logger = logging.getLogger(__name__)

LOCK_WAIT = 60.0
"""Seconds a landing waits for another landing of the same study."""

LANES = 2
"""Threads that fill tables and run checks at a time, as many as there are tables of the size of the study."""

MEMORY = 4 * 2**30
"""Most bytes that DuckDB may hold while it builds a database; beyond, it spills to a folder beside it.

Where less is free it may hold a part of that (``bound_memory``).
"""

ROW_GROUP = 122_880
"""Rows that DuckDB stores together; batches of as many are written as they come, others are copied together first."""

SHOWN = 5
"""How many rows that break a check are kept."""

LARGE = ("selection_counts", "upper_bounds")
"""The tables of the size of the study."""

RELATIONS = "macros and views"
"""Name of the job that creates them, which no table has."""

ALIAS = "aside"
"""Name of the database while it is being built."""

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
        If another process is landing the same study, the disk is full or memory is too small.
    Exception
        What a stream of ``tables`` raised.
    """
    started = time.monotonic()
    aside = beside(folder / study)
    with exclusive(folder / f"{study}.lock", f"the tables of study '{study}'", wait=LOCK_WAIT):
        sweep(folder / study)
        try:
            with space_needed(folder, study):
                rows, violations = _build(aside, study, tables)
                violations["row_count"] = [
                    (table, rows[table], count) for table, count in (expected or {}).items() if rows[table] != count
                ]
                size = aside.stat().st_size
                if not any(violations.values()):
                    _publish(aside, database(folder, study))
        finally:
            sweep(folder / study)
    landed = Landing(database(folder, study), rows, violations, size, time.monotonic() - started)
    if landed.published:
        _renew_script(folder)
    return landed


@contextmanager
def space_needed(folder: Path, study: str) -> Iterator[None]:
    """Say in one line that a study's tables could not be written: no space on the disk, or too little memory.

    A transaction that runs out of either while it commits is DuckDB's ``TransactionException``; nobody else writes to
    the database, so that no other transaction can be why.

    Raises
    ------
    UserError
        If the body runs out of disk or memory.
    """
    try:
        yield
    except (
        OSError,
        duckdb.IOException,
        duckdb.FatalException,
        duckdb.OutOfMemoryException,
        duckdb.TransactionException,
    ) as error:
        why = " ".join(str(error).partition("\n\n")[0].split())  # DuckDB's hints are for who writes SQL
        msg = f"The tables of study '{study}' could not be written to {folder} ({why}); free space and run again"
        raise UserError(msg) from error


def _renew_script(folder: Path) -> None:
    """Write the script of the plain shell anew; if that fails the study has landed all the same."""
    try:
        write_entry(folder)
    except (OSError, UserError, duckdb.Error) as error:
        why = " ".join(str(error).split())
        logger.warning("The script for the duckdb shell in %s is out of date (%s); attention-geometry sql", folder, why)


def _publish(aside: Path, path: Path) -> None:
    """Rename a database to ``path`` once it is on the disk, so that a power cut leaves the old one or the new one."""
    _to_disk(aside)
    path.with_name(f"{path.name}.wal").unlink(missing_ok=True)  # ours has none, and DuckDB would apply another's
    aside.replace(path)
    _to_disk(path.parent)


def _to_disk(path: Path) -> None:
    """Wait until the bytes of a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _build(
    path: Path, study: str, tables: Mapping[str, Batches]
) -> tuple[dict[str, int], dict[str, list[tuple[Any, ...]]]]:
    """Write a study's database to ``path``; return its row counts and what breaks its checks."""
    with _Aside.opened(path) as aside:
        with aside.cursor() as cursor:
            create_tables(cursor)
        jobs, after = _jobs(aside, study, tables)
        with tqdm(desc="landing", total=len(jobs), unit="step", disable=None) as bar:
            done = in_lanes(jobs, after, lanes=LANES, stop=aside.stop, ended=bar.update)
    rows = {name: done[name] for name in (*tables, *sql.names("derived"))}
    return rows, {name: done[_check(name)] for name in sql.names("checks")}


def _jobs(
    aside: "_Aside", study: str, tables: Mapping[str, Batches]
) -> tuple[dict[str, Callable[[], Any]], dict[str, frozenset[str]]]:
    """What is to be done, and after what: a table is filled, and a check runs, once all that it reads is there.

    The tables that others follow from come first, then those that follow, then the checks; of the first, those
    that take longest. What follows and the checks also need the macros and views.
    """
    given = sorted(set(sql.names("schema")) - set(sql.names("derived")), key=lambda name: (name not in LARGE, name))
    derived, checks = ([sql.statement(kind, name) for name in sql.names(kind)] for kind in ("derived", "checks"))
    jobs: dict[str, Callable[[], Any]] = {
        name: partial(_insert, aside, name, study, tables.get(name, ())) for name in given
    }
    jobs[RELATIONS] = partial(_relate, aside)
    jobs |= {table.name: partial(_derive, aside, table, study) for table in derived}
    jobs |= {_check(check.name): partial(_violations, aside, check, study) for check in checks}
    after = {table.name: tables_read(table) | {RELATIONS} for table in derived}
    return jobs, after | {_check(check.name): tables_read(check) | {RELATIONS} for check in checks}


def _check(name: str) -> str:
    """Name of the job of a check, which no table has."""
    return f"check {name}"


class _Aside:
    """A database that is being built beside its place, with a cursor of its own for each of several threads.

    It needs no log of writes: after a crash nobody reads it.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._cursors: set[duckdb.DuckDBPyConnection] = set()
        self._stopped = False

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator[Self]:
        """A new database at ``path``, which is whole on the disk once the body has run."""
        with duckdb.connect(config={"temp_directory": f"{path}.tmp"}) as connection:
            bound_memory(connection, MEMORY)
            attached = f"ATTACH {literal(os.fspath(path))} AS {ALIAS}"
            connection.execute(f"{attached} (STORAGE_VERSION '{READABLE_FROM}', RECOVERY_MODE no_wal_writes)")
            yield cls(connection)
            connection.execute(f"CHECKPOINT {ALIAS}")

    @contextmanager
    def cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection to the database for one thread; none once it is stopped."""
        with self._connection.cursor() as cursor:
            cursor.execute(f"USE {ALIAS}")
            self._cursors.add(cursor)
            try:
                if self._stopped:
                    msg = "The database is no longer being built"
                    raise duckdb.InterruptException(msg)
                yield cursor
            finally:
                self._cursors.discard(cursor)

    def stop(self) -> None:
        """Make the statements that run, and those of cursors to come, end with an error."""
        self._stopped = True
        for cursor in tuple(self._cursors):
            with suppress(duckdb.Error):  # it may have been closed since
                cursor.interrupt()


class _Stream:
    """Record batches that keep what they raise, of which DuckDB passes on a text alone."""

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


def _row_groups(batches: Batches) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, ``ROW_GROUP`` in each batch but the last."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        while (rows := sum(map(len, held))) >= ROW_GROUP:
            over = rows - ROW_GROUP
            last = held.pop()
            yield from _joined([*held, last.slice(0, len(last) - over)])
            held = [last.slice(len(last) - over)] if over else []
    if held:
        yield from _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> Batches:
    """The rows of all these batches in one."""
    yield from pa.Table.from_batches(batches).combine_chunks().to_batches()


def _insert(aside: _Aside, table: str, study: str, batches: Batches) -> int:
    """Insert all batches into a table of ``sql/schema``, and describe it; return the number of rows."""
    stream = _Stream(batches)
    groups = _row_groups(stream)
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


def _relate(aside: _Aside) -> None:
    """Create macros and views."""
    with aside.cursor() as cursor:
        create_relations(cursor)


def _derive(aside: _Aside, table: sql.Statement, study: str) -> int:
    """Fill a table of ``sql/derived``, and describe it; return the number of rows."""
    with aside.cursor() as cursor:
        rows = fill(cursor, table, study)
        describe_table(cursor, table.name)
    return rows


def _violations(aside: _Aside, check: sql.Statement, study: str) -> list[tuple[Any, ...]]:
    """The first rows that break a check."""
    with aside.cursor() as cursor:
        return cursor.execute(check.text, {"study": study}).fetchmany(SHOWN)
