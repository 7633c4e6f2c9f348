"""Pages that explain the warehouse: its schema and the tour of worked examples, for Markdown and the command line."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import duckdb
import pyarrow as pa

import sql
from storage.errors import escape_unprintable
from storage.warehouse.query import query
from storage.warehouse.relations import create_relations, create_tables, quote_literal

SCHEMA_COMMAND = "attention-geometry schema --html > docs/schema.html"
TOUR_COMMAND = "attention-geometry tour --format markdown > docs/tour.md"

ABOUT_TOUR = (
    "`attention-geometry tour 7` answers the seventh question with your own data, and `tour 7 --sql` prints its SQL "
    "statement, to paste or edit. Floats are shown with three significant digits. [The schema](schema.html) explains "
    "every table, view, macro and column."
)

SHOWN_ROWS = 8
"""Rows of each result that the page of the tour shows."""

KINDS = ("table", "view", "table macro", "macro")
"""Kinds of relations, in the order in which they are listed."""

_PARAMETERS = re.compile(r"^CREATE MACRO \w+\((?P<parameters>[^)]*)\)", re.MULTILINE)
_NAME = re.compile(r"[a-z_0-9]+")
_STUDY = re.compile(r"\$study\b")
_SPECIAL = re.compile(r"([\\`*\[\]<>|~&$])")


@dataclass(frozen=True)
class Relation:
    """A table, view or macro of the warehouse, as its file and an empty database describe it."""

    kind: Literal["table", "view", "table macro", "macro"]
    name: str
    signature: str
    """How it is called: the name, and a macro's parameters with their defaults."""
    grain: str
    meaning: str
    columns: tuple[tuple[str, str, str], ...]
    """Name, type and comment of each column; empty for macros."""
    inputs: str
    """What it is computed from: other relations by name, or in words."""
    example: str
    """A query of it that runs as it stands for the study ``embedded``; empty for macros that no worked example uses."""


@cache
def list_relations() -> tuple[Relation, ...]:
    """Every table, view and macro, in this order of kinds, and by name."""
    with duckdb.connect() as connection:
        create_tables(connection)
        create_tables(connection, "families")
        create_relations(connection)
        stored = connection.execute(
            "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal ORDER BY column_index"
        ).fetchall()
    kinds: tuple[sql.StatementKind, ...] = ("schema", "families", "views", "macros")
    statements = [sql.read_statement(kind, name) for kind in kinds for name in sql.list_names(kind)]
    relations = [_describe_relation(statement, stored) for statement in statements]
    return tuple(sorted(relations, key=lambda relation: (KINDS.index(relation.kind), relation.name)))


def list_examples() -> tuple[sql.Statement, ...]:
    """The worked examples in order; the first has the number 1."""
    return tuple(sql.read_statement("tour", name) for name in sql.list_names("tour"))


def render_example(example: sql.Statement, study: str) -> str:
    """The SQL of a worked example to paste at any prompt, with the name of the study as a literal."""
    return _STUDY.sub(lambda _: quote_literal(study), example.code) + ";"


def render_tour_page(connection: duckdb.DuckDBPyConnection, study: str) -> str:
    """The tour as Markdown: questions, statements, and the first rows of their results for a landed study."""
    title = f"# A tour of the warehouse in {len(list_examples())} questions"
    made = f"Made by `{TOUR_COMMAND}`; do not edit. Results are of the study {format_cell(study)}."
    lines = [title, "", made, "", ABOUT_TOUR]
    for number, example in enumerate(list_examples(), start=1):
        text = render_example(example, study)
        result = query(connection, text).read_all()
        lines += ["", f"## {number}. {example.meaning}", "", "```sql", text, "```", "", *render_result(result)]
    return "\n".join(lines) + "\n"


def _describe_relation(statement: sql.Statement, stored: Sequence[tuple[str, str, str]]) -> Relation:
    """One table, view or macro, given table, name and type of every column of an empty database."""
    name, kinds = statement.name, {"views": "view", "macros": "macro"}
    kind: Literal["table", "view", "table macro", "macro"] = kinds.get(statement.kind, "table")  # type: ignore[assignment]
    signature = name
    if kind == "macro":
        match = _PARAMETERS.search(statement.text)
        signature = f"{name}({' '.join(match['parameters'].split()) if match else ''})"
        kind = "table macro" if "AS TABLE" in statement.text else "macro"
    columns = tuple((column, typed, statement.columns[column]) for table, column, typed in stored if table == name)
    derived = sql.read_statement("derived", name) if name in sql.list_names("derived") else statement
    return Relation(
        kind,
        name,
        signature,
        statement.grain,
        statement.meaning,
        columns,
        derived.inputs,
        _find_example(name, [column for column, _, _ in columns]),
    )


def _find_example(name: str, columns: Sequence[str]) -> str:
    """The first worked example that reads a relation; else its first rows, if it is a table or view."""
    for example in list_examples():
        if name in find_names(example.inputs):
            return f"-- {example.meaning}\n{render_example(example, 'embedded')}"
    where = "\nWHERE study = 'embedded'" if "study" in columns else ""
    return f"FROM {name}{where}\nORDER BY ALL\nLIMIT 8;" if columns else ""


def find_names(inputs: str) -> list[str]:
    """The words in the inputs of a statement that may be names of relations, in order, each once."""
    return list(dict.fromkeys(_NAME.findall(inputs)))


def render_result(result: pa.Table) -> list[str]:
    """The first rows of a result, and the number of further rows."""
    rows = [[format_cell(value) for value in row.values()] for row in result.slice(0, SHOWN_ROWS).to_pylist()]
    more = result.num_rows - len(rows)
    return [
        *render_table([format_cell(name) for name in result.column_names], rows),
        *(["", f"… and {more} more."] if more else []),
    ]


def render_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table; cells must be escaped."""
    return [f"| {' | '.join(row)} |" for row in (names, ["---"] * len(names), *rows)]


def format_cell(value: object) -> str:
    """A value as text in a cell: floats with three significant digits; text is never markup, control codes escapes."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.3g}"
        case list():
            return ", ".join(format_cell(inner) for inner in value)
        case dict():
            return ", ".join(f"{format_cell(name)} {format_cell(inner)}" for name, inner in value.items())
        case _:
            return _SPECIAL.sub(r"\\\1", escape_unprintable(str(value)))
