"""The SQL of the warehouse: one statement per file, rendered by Jinja.

- ``schema``: the tables of a study.
- ``families``: the tables of a family of studies, in a file of its own.
- ``macros``: scalar and table functions, for views, derived tables and the users' own queries.
- ``views``: relations that are computed from the tables when they are read.
- ``derived``: a SELECT for each table that is computed from other tables when a study lands; its name and its grain are
  the table's.
- ``tour``: worked examples of queries, in the order of their numbers; parameter ``$study``.
- ``checks``: violations of conditions that must hold; no rows if there are none.

Named questions with named parameters (``$study``) lie with the figures that they are behind, in ``reports``
(``read_query``); the rows of one table or view need none, since ``select_rows`` asks for them.

Every file begins with a header of three comments, ``grain``, ``inputs`` and ``meaning``; an indented line continues the
one before. ``inputs`` names every table, view and macro that the statement reads; ``sort_statements`` relies on it. In
``schema``, ``families`` and ``views`` a comment at the end of a column's line is that column's COMMENT in the database.

A file of ``schema`` or ``families`` declares its table completely. The columns in the parentheses of ``grain`` are its
key; an interval at the end of a column's comment is its domain; ``rows`` in the header is the number of its rows, a
sum of products of units of a study (``storage.warehouse.declared``), and ``parts`` joins the parts that the table is
made of, if they are several (``storage.warehouse.landing.join_parts``). The checks that keys occur once, values lie in
their domains, intervals enclose their estimates and all rows are there, the estimate of disk space and
``docs/schema.html`` follow from these.

A file ``NAME.sql`` whose template uses ``model`` holds two statements: ``NAME``, for every head, and ``NAME_model``,
for the whole model. Templates take columns, domains and thresholds from ``sql.columns`` and ``sql.thresholds``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from graphlib import TopologicalSorter
from importlib.resources import files
from itertools import dropwhile
from typing import TYPE_CHECKING, Literal

from sql.thresholds import KINDS, OTHER, SIGNATURE, THRESHOLDS, describe_conditions

if TYPE_CHECKING:
    from jinja2 import Environment

StatementKind = Literal["schema", "families", "macros", "views", "derived", "tour", "checks"]

_HEADER = re.compile(r"^-- (?P<key>grain|inputs|meaning|rows|parts):\s*(?P<text>.*)$")
_UNFINISHED = re.compile(r"\n-- {6,}")  # Line break before a continuation line of a header
_NAME = re.compile(r"[a-z_0-9]+")
_COLUMN = re.compile(r"^    (?:.*\bAS )?(?P<name>[a-z_0-9]+)\b[^-]*-- (?P<comment>.+)$")
_TWIN = re.compile(r"""\{[{%](?:[^}"']|"[^"]*"|'[^']*')*?\bmodel\b""")  # Matches in templates of two statements
_SUFFIX = "_model"  # Suffix of the name of the second statement
_KEY = re.compile(r"^one row per \((?P<names>[^)]+)\)")
_TYPED = re.compile(r"^    (?P<name>[a-z_0-9]+) (?P<type>[A-Z]+(?:\[\]|\b))(?P<rest>[^-]*)-- (?P<comment>.+)$")
_DOMAIN = re.compile(r"(?P<left>[\[(])(?P<low>[^\[\](),]+), (?P<high>[^\[\](),]+)(?P<right>[\])])$")


@dataclass(frozen=True)
class Column:
    """A column of a table of ``schema``."""

    name: str
    type: str  # DuckDB's type
    required: bool  # Whether it is never NULL
    domain: tuple[str, str, str, str] | None
    """The interval at the end of its comment: bracket, smallest and largest value, bracket."""


@dataclass(frozen=True)
class Statement:
    """One SQL statement with its documentation."""

    kind: StatementKind | Literal["queries"]
    name: str
    text: str  # The SQL, header included
    grain: str
    inputs: str
    meaning: str
    columns: dict[str, str]  # Comment of each column, from the end of its line; empty except for `schema` and `views`
    rows: str | None = None
    """Of a table of ``schema``, the number of its rows as a sum of products of units of a study, if it is certain."""
    parts: str | None = None
    """Of a table of ``schema``, the relation that joins the parts of which it is made, if these are several."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row, from the grain."""
        match = _KEY.match(self.grain)
        return tuple(name.strip() for name in match["names"].split(",")) if match else ()

    @property
    def typed(self) -> tuple[Column, ...]:
        """The columns of a table of ``schema``."""
        matches = (match for match in map(_TYPED.match, self.text.splitlines()) if match)
        return tuple(
            Column(
                match["name"],
                match["type"],
                "NOT NULL" in match["rest"],
                domain.groups() if (domain := _DOMAIN.search(match["comment"])) else None,  # type: ignore[arg-type]
            )
            for match in matches
        )

    @property
    def code(self) -> str:
        """The SQL without its header."""
        return "\n".join(dropwhile(lambda line: line.startswith("--"), self.text.splitlines()))


@cache
def list_names(kind: StatementKind) -> tuple[str, ...]:
    """Names of all statements of a kind, in alphabetical order."""
    return tuple(sorted(_find_templates(kind)))


@cache
def _find_templates(kind: StatementKind) -> dict[str, str]:
    """Name of each statement of a kind, and of its file."""
    templates = {}
    for entry in (files(__package__) / kind).iterdir():
        if entry.name.endswith(".sql"):
            stem = entry.name.removesuffix(".sql")
            templates[stem] = entry.name
            if _TWIN.search(entry.read_text(encoding="utf-8")):
                templates[stem + _SUFFIX] = entry.name
    return templates


@cache
def read_statement(kind: StatementKind, name: str) -> Statement:
    """Read one statement; ``KeyError`` if there is no such statement, or its header lacks a line."""
    templates = _find_templates(kind)
    if name not in templates:
        raise KeyError(f"there is no sql/{kind}/{name}.sql")
    source = (files(__package__) / kind / templates[name]).read_text(encoding="utf-8")
    text = source
    if _is_template(source):
        template = _make_environment().get_template(f"{kind}/{templates[name]}")
        text = template.render(model=f"{name}.sql" != templates[name])
    return _parse(kind, name, text)


def read_query(name: str, source: str) -> Statement:
    """Read a named question from the text of its file; ``KeyError`` if its header lacks a line."""
    return _parse("queries", name, _make_environment().from_string(source).render() if _is_template(source) else source)


def _is_template(source: str) -> bool:
    return "{{" in source or "{%" in source


def _parse(kind: StatementKind | Literal["queries"], name: str, text: str) -> Statement:
    matches = [_HEADER.match(line) for line in _UNFINISHED.sub(" ", text).splitlines()]
    header = {match["key"]: match["text"] for match in matches if match}
    grain = read_statement("schema", name).grain if kind == "derived" else header["grain"]
    commented = text.splitlines() if kind in {"schema", "families", "views"} else ()
    columns = {match["name"]: match["comment"] for match in map(_COLUMN.match, commented) if match}
    return Statement(
        kind, name, text, grain, header["inputs"], header["meaning"], columns, header.get("rows"), header.get("parts")
    )


@cache
def select_rows(relation: str, parameters: tuple[str, ...]) -> Statement:
    """The query for the rows of a table or view whose columns of these names equal parameters, in order of its key.

    ``KeyError`` if there is no such table or view.
    """
    described = read_statement("schema" if relation in list_names("schema") else "views", relation)
    conditions = " AND ".join(f"{name} = ${name}" for name in parameters)
    order = ", ".join(name for name in described.key if name not in parameters)
    code = f"SELECT * EXCLUDE ({', '.join(parameters)})\nFROM {relation}\nWHERE {conditions}"
    text = f"{code}\nORDER BY {order}" if order else code
    inputs = ", ".join([relation, *(f"${name}" for name in parameters)])
    return replace(described, kind="queries", text=text, inputs=inputs, rows=None)


@cache
def _make_environment() -> "Environment":
    """The Jinja environment, with the globals that templates may use."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from geometry import quantities
    from sql import columns

    environment = Environment(  # noqa: S701 (SQL is not HTML; no user input is rendered)
        loader=PackageLoader(__package__, ""),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals |= {name.lower(): value for name, value in vars(columns).items() if not name.startswith("_")}
    environment.globals |= {
        "thresholds": THRESHOLDS,
        "kinds": KINDS,
        "conditions": [(kind, condition) for kind in KINDS for condition in kind.conditions],
        "other": OTHER,
        "signature": SIGNATURE,
        "column_names": _name_columns,
        "described_conditions": describe_conditions(),
        "stored": quantities.SELECTION,
        "by_n": [quantity for quantity in quantities.SELECTION.values() if quantity.axes == quantities.BY_N],
        "by_kappa": [quantity for quantity in quantities.SELECTION.values() if quantity.axes == quantities.BY_KAPPA],
        "followed": dict(quantities.list_derived(quantities.SelectionCounts)),
    }
    return environment


def _name_columns(table: str, *without: str) -> str:
    """The lines of a view's SELECT for all columns of a table but some."""
    columns = read_statement("schema", table).columns
    return "\n".join(f"    {name}, -- {comment}" for name, comment in columns.items() if name not in without)


def list_tables() -> Iterator[Statement]:
    """The tables of studies and of families, by name within each."""
    kinds: tuple[StatementKind, ...] = ("schema", "families")
    return (read_statement(kind, name) for kind in kinds for name in list_names(kind))


def sort_statements(*kinds: StatementKind) -> Iterator[Statement]:
    """All statements of some kinds, each after the statements that its ``inputs`` name.

    ``graphlib.CycleError`` if statements depend on each other in a circle.
    """
    statements = {name: read_statement(kind, name) for kind in kinds for name in list_names(kind)}
    inputs = {
        name: [used for used in _NAME.findall(described.inputs) if used in statements]
        for name, described in statements.items()
    }
    return (statements[name] for name in TopologicalSorter(inputs).static_order())
