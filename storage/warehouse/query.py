"""Ad hoc SQL over the warehouse: read-only, with errors of one line."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

import duckdb
import pyarrow as pa
from duckdb import StatementType

from storage.errors import QuotingError, UserError
from storage.warehouse.connection import describe_damage

READING = {StatementType.SELECT, StatementType.EXPLAIN, StatementType.PRAGMA, StatementType.CALL, StatementType.MULTI}
"""Types of statements that read; one that is explained, or pivots (MULTI), can write only what its connection can."""

UNLOCKED = READING | {StatementType.COPY}
"""Statements that read, or write a result to a file of the user's own."""

_CATALOGUE = re.compile("comment|duckdb_|information_schema|pg_", re.IGNORECASE)
"""What a statement names that reads the comments of tables and columns."""

_RELATION = re.compile(r"\b(FROM|TABLE|PIVOT|UNPIVOT|SUMMARIZE)\b", re.IGNORECASE)
"""What stands before a table in a statement that reads one."""

_INDENT = re.compile(r"^\t", re.MULTILINE)
"""What DuckDB writes before each candidate for an unknown argument; a terminal would see it escaped."""

NO_SPILL = (
    "; a read-only connection cannot spill to disk: select less at a time, or allow it with "
    "attention-geometry sql --unlocked"
)
"""What to do about a query that needs too much memory."""


def reads_comments(text: str) -> bool:
    """Whether statements may read comments, so that a connection to run them needs these."""
    return _CATALOGUE.search(text) is not None


def reads_tables(text: str) -> bool:
    """Whether statements may read tables, so that their answer depends on what has landed."""
    return _RELATION.search(text) is not None


def query(connection: duckdb.DuckDBPyConnection, text: str, *, unlocked: bool = False) -> pa.RecordBatchReader:
    """Run one or more reading statements and return the result of the last, as a stream.

    The stream ends when the connection executes anything else; it never holds more than a few batches in memory. The
    connection itself prevents writing; the check of statements here gives a clearer message. ``unlocked`` allows ``COPY
    … TO`` on an unlocked connection.

    ``UserError``, here or while the stream is read, if ``text`` holds an error, no statement, or one that writes; if a
    file of the warehouse is damaged or memory is exhausted. ``KeyboardInterrupt`` if the user interrupts it; the
    connection can still be used.
    """
    with translate_interrupts(), _explain_errors(connection, unlocked=unlocked):
        statements = duckdb.extract_statements(text)
        for statement in statements:
            _check_statement(statement, unlocked=unlocked)
        reader = _wait(connection, lambda: _run(connection, statements))
        if reader is None:
            raise UserError("There is no result to show; try: attention-geometry sql 'SELECT * FROM studies'")
    return pa.RecordBatchReader.from_batches(reader.schema, _iterate_batches(connection, reader, unlocked=unlocked))


Result = TypeVar("Result")


def _wait(connection: duckdb.DuckDBPyConnection, call: Callable[[], Result]) -> Result:
    """Run ``call`` in another thread and return its result, so that Ctrl-C stops the connection's statement at once.

    DuckDB itself does not check for signals while it fills or reads an Arrow stream.
    """
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(call)
        try:
            return running.result()
        except BaseException:  # wait for the thread, whatever the exception
            while not running.done():
                connection.interrupt()  # repeatedly, because a statement that is just starting ignores it
                wait([running], timeout=0.1)
            raise


@contextmanager
def translate_interrupts() -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` if DuckDB, interrupted by the user, raises its own error."""
    try:
        yield
    except RuntimeError as error:
        if "interrupted" in str(error):
            raise KeyboardInterrupt from error
        raise


def _check_statement(statement: duckdb.Statement, *, unlocked: bool) -> None:
    """Refuse a statement that does not read."""
    if statement.type in (UNLOCKED if unlocked else READING):
        return
    does = statement.type.name
    what = f"sql only reads, {does} is not allowed"
    if does == StatementType.COPY.name:
        msg = f"{what}; to write a result to a file: attention-geometry sql --unlocked, or --format csv > FILE"
    else:
        msg = f"{what}; `attention-geometry run` writes the tables"
    raise UserError(msg)


def _run(connection: duckdb.DuckDBPyConnection, statements: list[duckdb.Statement]) -> pa.RecordBatchReader | None:
    """Run all statements; return the result of the last as a stream, or None if it has none."""
    reader: pa.RecordBatchReader | None = None
    for statement in statements:
        for _ in reader or ():
            pass
        try:
            relation: duckdb.DuckDBPyRelation | None = connection.sql(statement.query)
        except duckdb.ProgrammingError:
            connection.execute(statement.query)  # fails in the same way, and reports the position in the text
            raise
        reader = None if relation is None else relation.to_arrow_reader()
    return reader


def _iterate_batches(
    connection: duckdb.DuckDBPyConnection, reader: pa.RecordBatchReader, *, unlocked: bool
) -> Iterator[pa.RecordBatch]:
    """The batches of a result."""
    with translate_interrupts(), _explain_errors(connection, unlocked=unlocked):
        while (batch := _wait(connection, lambda: next(reader, None))) is not None:
            yield batch


@contextmanager
def _explain_errors(connection: duckdb.DuckDBPyConnection, *, unlocked: bool) -> Iterator[None]:
    """Raise the failure of a query as a UserError with DuckDB's message, or with the name of the damaged file.

    Arrow raises DuckDB's errors as its own.
    """
    try:
        yield
    except (duckdb.Error, OSError, pa.ArrowException) as error:
        message = " ".join(str(error).split())
        if message.startswith("Out of Memory Error"):
            advice = "" if unlocked else NO_SPILL
            raise UserError(str(error).splitlines()[0] + advice) from error
        with connection.cursor() as cursor:
            shown = _INDENT.sub("    ", str(error).strip())
            raise QuotingError(describe_damage(cursor, message) or shown) from error
