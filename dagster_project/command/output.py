"""Printing of SQL results, as tables on the terminal and in file formats, and the interactive prompt."""

import io
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from decimal import Decimal
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any

from storage.errors import UserError, escape_unprintable

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console
    from rich.table import Table

    from storage.warehouse.connection import Reader

FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""How texts begin that spreadsheets read as formulas."""

WIDE, PROSE = 10_000, 120
"""Width in characters of a table of data, and of one of sentences, in a file or a pipe, unless COLUMNS is set."""

LONGEST = (60, 30, 16)
"""Most characters of a value that a table shows: the first with which all columns fit, else the last."""

SCREEN = 40
"""Most values that are written one in a line if not all columns of a table fit."""

GAP = 3
"""Characters that a table puts around a column."""

LEAVING = {"exit", "quit", ".exit", ".quit"}
"""Words that close the prompt, like Ctrl-D."""

TABLE_ROWS = 1000
"""Most rows that a table shows, with a note if there are more; the file formats have no limit."""

HELP, TURN = "help", r"\x"
COMMANDS = {
    HELP: HELP,
    TURN: TURN,
    ".tables": """
SELECT view_name AS name, comment FROM duckdb_views() WHERE NOT internal AND database_name = current_database()
UNION ALL
SELECT table_name, comment FROM duckdb_tables() WHERE database_name = current_database()
ORDER BY name;
""",
}
"""Commands of the prompt, and the SQL of those that stand for a statement."""

_MARKUP = re.compile(r"[\\`*_{}\[\]<>|~&]")
"""Characters that Markdown or HTML reads as markup."""

MANUAL = r"""\
.tables      list all tables and views with their meaning
\x           toggle between tables and one line per value
help         show this list
exit, quit   close the prompt (also Ctrl-D)
Anything else is SQL and ends with a semicolon: FROM studies;
"""


def check_format(form: str) -> None:
    """Refuse a binary format on a terminal."""
    if form == "parquet" and sys.stdout.isatty():
        raise UserError(
            'Parquet is a binary format; redirect it to a file: attention-geometry sql "…" --format parquet > FILE'
        )


def check_text(statement: str) -> None:
    """Refuse a statement with bytes that are not UTF-8, which Python decodes from arguments as lone surrogates.

    ``UserError`` if it has any.
    """
    try:
        statement.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"The statement is not UTF-8 at character {error.start + 1}; encode it as UTF-8") from error


def print_tables(tables: "Iterable[Table]", *, as_json: bool = False) -> None:
    """Print tables of texts, or as JSON one object of their rows, which are objects, by their titles."""
    found = {}
    for table in tables:
        names, title = [str(column.header) for column in table.columns], str(table.title)
        rows = [list(map(str, row)) for row in zip(*(column.cells for column in table.columns), strict=True)]
        if not as_json:
            print_table(names, rows, title=title)
        found[title.lower()] = [dict(zip(names, row, strict=True)) for row in rows]
    if as_json:
        write_object(found)


def print_table(names: Sequence[str], rows: "Iterable[Iterable[str]]", *, title: str) -> None:
    """Print texts as a table with a title, with their control codes escaped."""
    from rich.table import Table

    table = Table(*names, title=title, title_justify="left")
    for row in rows:
        table.add_row(*map(escape_control_codes, row))
    make_console().print(table)


def write_object(rows: object) -> None:
    """Write one JSON document in a line to standard output, as UTF-8 regardless of the terminal's encoding."""
    _write_line(json.dumps(_replace_non_finite(rows), default=_convert_to_json, ensure_ascii=False))


def _write_line(text: str) -> None:
    """Write a line to standard output as UTF-8; what would act on a terminal has the escapes of JSON."""
    if not text.isprintable():
        text = "".join(sign if escape_unprintable(sign) == sign else json.dumps(sign)[1:-1] for sign in text)
    sys.stdout.flush()
    sys.stdout.buffer.write(f"{text}\n".encode())


def write(reader: "pa.RecordBatchReader", form: str) -> None:
    """Write a result to standard output, batch by batch.

    ``UserError`` if the query fails after its first rows, or a column has a type that the format does not support.
    """
    import pyarrow as pa

    try:
        WRITERS[form](reader)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UserError(
            f"The result cannot be written as {form}: {error}; cast the column to VARCHAR, or use --format json"
        ) from error


def make_console(width: int = WIDE) -> "Console":
    """A console on standard output: text is never markup; a file or a pipe has ``width``, unless COLUMNS is set."""
    from rich.console import Console

    wide = not sys.stdout.isatty() and not os.environ.get("COLUMNS", "").isdecimal()
    return Console(markup=False, highlight=False, width=width if wide else None)


def escape_control_codes(text: str) -> str:
    """Text with its control codes escaped, so that no terminal acts on them; line breaks stay."""
    return escape_unprintable(text, keep="\n")


def build_table(rows: "pa.Table", title: str | None = None, room: int | None = None) -> "Table":
    """A result as a table for the terminal; text is never taken as markup, and control codes are escaped.

    If ``room`` is given, in characters, each row is one line: long values are cut, except in the first column, and
    columns that do not fit even so are left out from the middle and counted. Otherwise values are wrapped.
    """
    from pyarrow import types
    from rich import box
    from rich.table import Table
    from rich.text import Text

    names = [escape_control_codes(name) for name in rows.schema.names]
    cells = [[escape_control_codes(_format_value(value)) for value in column.to_pylist()] for column in rows.columns]
    before, after = (len(names), 0) if room is None else _fit(names, cells, room)
    left_out = len(names) - before - after
    table = Table(title=title, box=box.SIMPLE_HEAD)
    columns: list[list[str]] = []
    for place, field in enumerate(rows.schema):
        if left_out and place == before:
            table.add_column(Text(f"+{left_out} columns"), justify="center", no_wrap=True)
            columns.append(["…"] * rows.num_rows)
        if not before <= place < len(names) - after:
            is_text = any(check(field.type) for check in (types.is_string, types.is_large_string, types.is_nested))
            table.add_column(Text(names[place]), justify="left" if is_text else "right", no_wrap=room is not None)
            columns.append(cells[place])
    for row in zip(*columns, strict=True):
        table.add_row(*map(Text, row))
    return table


def _fit(names: Sequence[str], cells: list[list[str]], room: int) -> tuple[int, int]:
    """Cut values until all columns fit, but none in the first column; how many fit from the left and the right."""
    cells[0] = [_shorten(text, LONGEST[0]) for text in cells[0]]
    for longest in LONGEST:
        cells[1:] = [[_shorten(text, longest) for text in column] for column in cells[1:]]
        taken = [GAP + max(map(len, [name, *column])) for name, column in zip(names, cells, strict=True)]
        if sum(taken) <= room:
            return len(taken), 0
    left = room - len("+000 columns") - GAP
    last = int(taken[0] + taken[-1] <= left)
    return max(1, sum(total + last * taken[-1] <= left for total in accumulate(taken[:-1]))), last


def _shorten(text: str, longest: int) -> str:
    """The beginning of a long value."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def run_prompt(reader: "Reader", form: str, *, unlocked: bool = False) -> None:
    """Read statements, each ended by a semicolon, and print their results until the input ends.

    Before each statement, newly landed studies are opened and named on standard error.
    """
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.lexers import PygmentsLexer
    from pygments.lexers.sql import SqlLexer

    from storage.warehouse.query import translate_interrupts

    names = "SELECT DISTINCT unnest([table_name, column_name]) FROM duckdb_columns()"
    words = [word for (word,) in reader.connection.execute(names).fetchall()]
    session: PromptSession[str] = PromptSession(
        lexer=PygmentsLexer(SqlLexer), completer=WordCompleter(words, ignore_case=True)
    )
    sys.stderr.write("Read-only. End statements with ';'. Type 'help' for commands, Ctrl-D to exit.\n")
    sys.stderr.write("Start with: FROM studies;\n")
    for text in _read_statements(session):
        if text == TURN:
            form = "table" if form == "vertical" else "vertical"
            continue
        if text == HELP:
            sys.stderr.write(MANUAL)
            continue
        try:
            with translate_interrupts():
                answer(reader, text, form, unlocked=unlocked)
        except KeyboardInterrupt:
            sys.stderr.write("Interrupted\n")


def answer(reader: "Reader", text: str, form: str, *, unlocked: bool = False) -> None:
    """Print the results of a typed statement over the currently published studies; an error is one line."""
    from rich.console import Console

    from storage.warehouse.query import query

    try:
        news = reader.refresh()
    except UserError as error:
        news = escape_control_codes(str(error))
    if news:
        Console(stderr=True, markup=False, highlight=False, soft_wrap=True).print(news, style="dim")
    try:
        with closing(reader.connection.cursor()) as cursor:
            write(query(cursor, text, unlocked=unlocked), form)
    except UserError as error:
        sys.stderr.write(f"{escape_control_codes(str(error))}\n")


def _read_statements(session: Any) -> Iterable[str]:
    """Yield what is typed, statement by statement, with commands of the prompt replaced by their SQL."""
    text = ""
    while True:
        try:
            text += session.prompt("sql> " if not text else "...> ") + "\n"
        except KeyboardInterrupt:
            text = ""
        except EOFError:
            return
        command = text.strip().rstrip(";").lower()
        if command in LEAVING:
            return
        if text.rstrip().endswith(";") or command in COMMANDS:
            yield COMMANDS.get(command, text)
            text = ""
        elif not command:
            text = ""


def _format_value(value: object) -> str:
    return "NULL" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _read_first_rows(reader: "pa.RecordBatchReader") -> "pa.Table":
    """The first ``TABLE_ROWS`` rows, with a note on standard error if there are more."""
    import pyarrow as pa

    batches, rows = [], 0
    for batch in reader:
        batches.append(batch)
        rows += batch.num_rows
        if rows > TABLE_ROWS:
            sys.stderr.write(f"Showing the first {TABLE_ROWS} rows; use --format csv for all rows\n")
            break
    return pa.Table.from_batches(batches, reader.schema).slice(0, TABLE_ROWS)


def _write_table(reader: "pa.RecordBatchReader") -> None:
    """Write a table; a few values in more columns than fit are written one in a line."""
    rows, place = _read_first_rows(reader), make_console()
    table = build_table(rows, room=place.width)
    if len(table.columns) < rows.num_columns and rows.num_rows * rows.num_columns <= SCREEN:
        _write_values(rows, LONGEST[0])
    else:
        place.print(table)


def _write_values(rows: "pa.Table", longest: int | None) -> None:
    """Write one line for each value, of at most ``longest`` characters of it, and a heading for each row."""
    place = make_console()
    names = [escape_control_codes(name) for name in rows.schema.names]
    wide = max(map(len, names), default=0)
    for number, row in enumerate(zip(*(column.to_pylist() for column in rows.columns), strict=True), 1):
        place.rule(f"row {number}", align="left", characters="-") if place.is_terminal else place.print(f"row {number}")
        for name, value in zip(names, row, strict=True):
            text = escape_control_codes(_format_value(value))
            place.print(f"{name:>{wide}} | {text if longest is None else _shorten(text, longest)}", soft_wrap=True)


def _write_markdown(reader: "pa.RecordBatchReader") -> None:
    """Write a table as Markdown, numbers to the right, batch by batch."""
    import pyarrow as pa

    numeric = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    rules = ("---:" if any(check(kind) for check in numeric) else "---" for kind in reader.schema.types)
    _write_line(_join_cells(reader.schema.names))
    _write_line(f"|{'|'.join(rules)}|")
    for batch in reader:
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            _write_line(_join_cells(map(_format_value, row)))


def _join_cells(texts: Iterable[str]) -> str:
    """A line of a table in Markdown, in which nothing of the texts is markup."""
    cells = (_MARKUP.sub(r"\\\g<0>", escape_control_codes(text)) for text in texts)
    return f"| {' | '.join(cells)} |"


def _write_csv(reader: "pa.RecordBatchReader") -> None:
    from pyarrow import csv

    shown = io.BytesIO()  # a terminal gets what would act on it escaped
    with csv.CSVWriter(shown if sys.stdout.isatty() else sys.stdout.buffer, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
            sys.stdout.write(escape_control_codes(shown.getvalue().decode()))
            shown.seek(0)
            shown.truncate()


def _write_spreadsheet(reader: "pa.RecordBatchReader") -> None:
    """Write CSV in which no text is a formula: an apostrophe stands before those that begin as one."""
    import pyarrow as pa

    names = (f"'{name}" if name.startswith(FORMULAS) else name for name in reader.schema.names)
    schema = pa.schema([field.with_name(name) for field, name in zip(reader.schema, names, strict=True)])
    guarded = (pa.record_batch([_guard_texts(column) for column in batch.columns], schema=schema) for batch in reader)
    _write_csv(pa.RecordBatchReader.from_batches(schema, guarded))


def _guard_texts(column: "pa.Array[Any]") -> "pa.Array[Any]":
    """A column in which texts that begin as a formula begin with an apostrophe."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_string(column.type):
        return column
    begins = pc.is_in(pc.utf8_slice_codeunits(column, 0, 1), pa.array(FORMULAS))
    return pc.if_else(begins, pc.binary_join_element_wise("'", column, ""), column)


def _write_json(reader: "pa.RecordBatchReader") -> None:
    if doubles := sorted({name for name in reader.schema.names if reader.schema.names.count(name) > 1}):
        raise UserError(f"Several columns are named '{doubles[0]}'; JSON needs distinct names: SELECT … AS …")
    rows = (
        json.dumps(_replace_non_finite(row), default=_convert_to_json, ensure_ascii=False)
        for batch in reader
        for row in batch.to_pylist()
    )
    before = "[" + "".join(islice(rows, 1))
    for row in rows:
        _write_line(f"{before},")
        before = row
    _write_line(f"{before}]")


def _replace_non_finite(value: Any) -> Any:
    """A value with None for every infinity and NaN, which JSON cannot represent."""
    if isinstance(value, dict):
        return {name: _replace_non_finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_non_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _convert_to_json(value: object) -> object:
    """Convert a value without a JSON type: decimals to numbers, bytes to hexadecimal, anything else to text."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value.hex() if isinstance(value, bytes) else str(value)


def _write_parquet(reader: "pa.RecordBatchReader") -> None:
    from pyarrow import parquet

    with parquet.ParquetWriter(sys.stdout.buffer, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)


WRITERS: Mapping[str, Callable[["pa.RecordBatchReader"], None]] = {
    "table": _write_table,
    "vertical": lambda reader: _write_values(_read_first_rows(reader), None),
    "markdown": _write_markdown,
    "csv": _write_csv,
    "spreadsheet": _write_spreadsheet,
    "json": _write_json,
    "parquet": _write_parquet,
}
"""The writer of each format."""
