"""Results of SQL on the terminal and in files' formats, and the interactive prompt.

Holds the printing of Arrow data. What does not belong here: running queries (``storage.query``).
"""

import json
import sys
from collections.abc import Iterable
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

from storage.errors import UserError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    from rich.table import Table

FORMATS = ("table", "csv", "json", "parquet")
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
    """Write a result to standard output, batch by batch."""
    {"table": _write_table, "csv": _write_csv, "json": _write_json, "parquet": _write_parquet}[form](reader)


def rich_table(rows: "pa.Table", title: str | None = None) -> "Table":
    """A result as a table for the terminal; text is shown as it is, never as markup or control codes."""
    from rich import box
    from rich.control import strip_control_codes
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, box=box.SIMPLE_HEAD)
    for field in rows.schema:
        table.add_column(Text(strip_control_codes(field.name)), justify="left" if _is_text(field.type) else "right")
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        table.add_row(*(Text(strip_control_codes(_shown(value))) for value in row))
    return table


def prompt(connection: "duckdb.DuckDBPyConnection", form: str) -> None:
    """Ask for statements, each ended by a semicolon, and print their results until the input ends."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.lexers import PygmentsLexer
    from pygments.lexers.sql import SqlLexer

    from storage.query import query

    words = connection.execute("SELECT DISTINCT unnest([table_name, column_name]) FROM duckdb_columns()").fetchall()
    session: PromptSession[str] = PromptSession(
        lexer=PygmentsLexer(SqlLexer), completer=WordCompleter([word for (word,) in words], ignore_case=True)
    )
    sys.stderr.write("Reading only; end a statement with ';' and leave with Ctrl-D. Start with: FROM studies;\n")
    for text in _statements(session):
        try:
            with closing(connection.cursor()) as cursor:
                write(query(cursor, text), form)
        except UserError as error:
            sys.stderr.write(f"{error}\n")


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
    from rich.console import Console

    batches, rows = [], 0
    for batch in reader:
        batches.append(batch)
        rows += batch.num_rows
        if rows > TABLE_ROWS:
            sys.stderr.write(f"Only the first {TABLE_ROWS} rows are shown; --format csv gives all of them\n")
            break
    Console().print(rich_table(pa.Table.from_batches(batches, reader.schema).slice(0, TABLE_ROWS)))


def _write_csv(reader: "pa.RecordBatchReader") -> None:
    from pyarrow import csv

    with csv.CSVWriter(sys.stdout.buffer, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)


def _write_json(reader: "pa.RecordBatchReader") -> None:
    rows = (json.dumps(row, default=str, ensure_ascii=False) for batch in reader for row in batch.to_pylist())
    sys.stdout.write("[" + "".join(islice(rows, 1)))
    for row in rows:
        sys.stdout.write(f",\n{row}")
    sys.stdout.write("]\n")


def _write_parquet(reader: "pa.RecordBatchReader") -> None:
    from pyarrow import parquet

    with parquet.ParquetWriter(sys.stdout.buffer, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
