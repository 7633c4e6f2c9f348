"""Results of SQL on the terminal and in files' formats, and the interactive prompt.

Holds the printing of Arrow data.
"""

import json
import math
import sys
from collections.abc import Iterable
from contextlib import closing
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any

from storage.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console
    from rich.table import Table

    from storage.warehouse.connection import Reader

FORMATS = ("table", "csv", "json", "parquet")
WIDE = 10_000
"""Characters in a line of a table that goes to a file or a pipe."""

TABLE_ROWS = 1000
"""A table shows so many rows at most and says so; the other formats have no limit."""


def check_format(form: str) -> None:
    """Refuse an unknown format, or bytes on a terminal.

    Raises
    ------
    UserError
        In either case.
    """
    if form not in FORMATS:
        msg = f"--format {form} is unknown; there are: {', '.join(FORMATS)}"
        raise UserError(msg)
    if form == "parquet" and sys.stdout.isatty():
        msg = 'Parquet is no text; send it to a file: attention-geometry sql "…" --format parquet > FILE'
        raise UserError(msg)


def write(reader: "pa.RecordBatchReader", form: str) -> None:
    """Write a result to standard output, batch by batch.

    Raises
    ------
    UserError
        If the query fails after its first rows, or a column has a type that the format has no place for.
    """
    import pyarrow as pa

    try:
        {"table": _write_table, "csv": _write_csv, "json": _write_json, "parquet": _write_parquet}[form](reader)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        msg = f"The result cannot be written as {form}: {error}; cast the column to VARCHAR, or choose --format json"
        raise UserError(msg) from error


def console() -> "Console":
    """Standard output for tables: text is never markup, and what is no terminal has room for every column."""
    from rich.console import Console

    return Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else WIDE)


def harmless(text: str) -> str:
    """Text whose control codes show as escapes, so that no terminal acts on them; line breaks stay."""
    return "".join(
        character if character.isprintable() or character == "\n" else character.encode("unicode_escape").decode()
        for character in text
    )


def rich_table(rows: "pa.Table", title: str | None = None) -> "Table":
    """A result as a table for the terminal; text is shown as it is, never as markup, and control codes as escapes."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, box=box.SIMPLE_HEAD)
    for field in rows.schema:
        table.add_column(Text(harmless(field.name)), justify="left" if _is_text(field.type) else "right")
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        table.add_row(*(Text(harmless(_shown(value))) for value in row))
    return table


def prompt(reader: "Reader", form: str, *, unlocked: bool = False) -> None:
    """Ask for statements, each ended by a semicolon, and print their results until the input ends.

    Before each statement, what has landed meanwhile is opened and named on standard error.
    """
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.lexers import PygmentsLexer
    from pygments.lexers.sql import SqlLexer

    from storage.warehouse.query import interruptible

    names = "SELECT DISTINCT unnest([table_name, column_name]) FROM duckdb_columns()"
    words = [word for (word,) in reader.connection.execute(names).fetchall()]
    session: PromptSession[str] = PromptSession(
        lexer=PygmentsLexer(SqlLexer), completer=WordCompleter(words, ignore_case=True)
    )
    sys.stderr.write("Reading only; end a statement with ';' and leave with Ctrl-D. Start with: FROM studies;\n")
    for text in _statements(session):
        try:
            with interruptible():
                answer(reader, text, form, unlocked=unlocked)
        except KeyboardInterrupt:
            sys.stderr.write("stopped\n")


def answer(reader: "Reader", text: str, form: str, *, unlocked: bool = False) -> None:
    """Print the results of what was typed, over the studies that are published now; a mistake is a line."""
    from rich.console import Console

    from storage.warehouse.query import query

    try:
        news = reader.refresh()
    except UserError as error:
        news = harmless(str(error))
    if news:
        Console(stderr=True, markup=False, highlight=False, soft_wrap=True).print(news, style="dim")
    try:
        with closing(reader.connection.cursor()) as cursor:
            write(query(cursor, text, unlocked=unlocked), form)
    except UserError as error:
        sys.stderr.write(f"{harmless(str(error))}\n")


def _statements(session: Any) -> Iterable[str]:
    """What is typed, statement by statement."""
    text = ""
    while True:
        try:
            text += session.prompt("sql> " if not text else "...> ") + "\n"
        except KeyboardInterrupt:
            text = ""
        except EOFError:
            return
        if text.rstrip().endswith(";"):
            yield text
            text = ""
        elif not text.strip():
            text = ""


def _is_text(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_nested(kind))


def _shown(value: object) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _write_table(reader: "pa.RecordBatchReader") -> None:
    import pyarrow as pa

    batches, rows = [], 0
    for batch in reader:
        batches.append(batch)
        rows += batch.num_rows
        if rows > TABLE_ROWS:
            sys.stderr.write(f"Only the first {TABLE_ROWS} rows are shown; --format csv gives all of them\n")
            break
    console().print(rich_table(pa.Table.from_batches(batches, reader.schema).slice(0, TABLE_ROWS)))


def _write_csv(reader: "pa.RecordBatchReader") -> None:
    from pyarrow import csv

    with csv.CSVWriter(sys.stdout.buffer, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)


def _write_json(reader: "pa.RecordBatchReader") -> None:
    if doubles := sorted({name for name in reader.schema.names if reader.schema.names.count(name) > 1}):
        msg = f"Several columns are called '{doubles[0]}'; JSON needs a name for each: SELECT … AS …"
        raise UserError(msg)
    rows = (json.dumps(_json(row), default=_plain, ensure_ascii=False) for batch in reader for row in batch.to_pylist())
    sys.stdout.write("[" + "".join(islice(rows, 1)))
    for row in rows:
        sys.stdout.write(f",\n{row}")
    sys.stdout.write("]\n")


def _json(value: Any) -> Any:
    """A value with null for every number that JSON has no word for."""
    if isinstance(value, dict):
        return {name: _json(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: object) -> object:
    """What JSON has no type for: large and decimal numbers stay numbers, bytes are hexadecimal, all else is text."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value.hex() if isinstance(value, bytes) else str(value)


def _write_parquet(reader: "pa.RecordBatchReader") -> None:
    from pyarrow import parquet

    with parquet.ParquetWriter(sys.stdout.buffer, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
