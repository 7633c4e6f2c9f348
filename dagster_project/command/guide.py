"""The commands ``tour``, ``schema`` and ``assets``."""

import sys
from collections.abc import Sequence
from contextlib import closing

import duckdb
import pyarrow as pa

import sql
from dagster_project.command.output import PROSE, build_table, check_format, escape_control_codes, make_console, write
from dagster_project.study.home import Home
from storage.errors import UserError
from storage.warehouse.connection import connect
from storage.warehouse.documentation import (
    Relation,
    list_examples,
    list_relations,
    render_example,
    render_tour_page,
)
from storage.warehouse.query import query, reads_comments

FORMATS = ("table", "markdown")

FIRST_CHOICE = "embedded"
"""The study that the tour queries by default, if it has landed."""


def show_tour(home: Home, number: int | None, study: str | None, *, only_sql: bool, form: str) -> None:
    """Print the list of questions, one of them with its answer, only its statement, or a page of all of them.

    Raises
    ------
    UserError
        If the number, study or format does not exist, no study has landed, or the options contradict one another.
    """
    check_format(form, FORMATS)
    if form == "markdown" and (number is not None or only_sql):
        raise UserError(
            "--format markdown prints the page of all questions; omit it to answer one, or to print its --sql"
        )
    if only_sql and number is None:
        raise UserError(
            "--sql prints the statement of one question; give its number, as in: attention-geometry tour 7 --sql"
        )
    if number is None and form == "table":
        questions = [(place, example.meaning) for place, example in enumerate(list_examples(), start=1)]
        _print_rows(("number", "question"), questions)
        return
    example = None if number is None else _find_example(number)
    described = example is None or reads_comments(example.text)
    with closing(connect(home.warehouse, described=described)) as connection:
        chosen = _select_landed_study(connection, study)
        if example is None:
            sys.stdout.write(render_tour_page(connection, chosen))
        elif only_sql:
            sys.stdout.write(f"-- {example.meaning}\n{render_example(example, chosen)}\n")
        else:
            _print_answer(connection, example, chosen)


def show_assets(form: str) -> None:
    """Print the assets of a study as a table, or as the section of docs/architecture.md.

    Raises
    ------
    UserError
        If the format does not exist.
    """
    from dagster_project.assets.catalogue import ASSETS, render_assets_section

    check_format(form, FORMATS)
    if form == "markdown":
        sys.stdout.write(render_assets_section())
        return
    rows = [(asset.name, ", ".join(asset.parents), asset.about) for asset in ASSETS]
    _print_rows(("asset", "made from", "description"), rows)


def show_schema(name: str | None, *, html: bool) -> None:
    """Print the list of tables, views and macros, the columns of one of them, or the page of all of them.

    Raises
    ------
    UserError
        If the relation does not exist, or is named together with the page of all.
    """
    if html and name is not None:
        raise UserError(f"--html prints the page of all relations; omit it to see '{name}'")
    if html:
        from reports.overviews import render_catalogue

        sys.stdout.write(render_catalogue())
    elif name is None:
        rows = [(relation.kind, relation.name, relation.meaning) for relation in list_relations()]
        _print_rows(("kind", "name", "meaning"), rows)
    else:
        _print_relation(_find_relation(name))


def _print_answer(connection: duckdb.DuckDBPyConnection, example: sql.Statement, study: str) -> None:
    """Print a question, its statement with syntax highlighting, and its result."""
    from rich.syntax import Syntax

    text = render_example(example, study)
    make_console(PROSE).print(f"{example.meaning}\n")
    make_console(PROSE).print(Syntax("", "sql").highlight(escape_control_codes(text)))
    write(query(connection, text), "table")


def _print_relation(relation: Relation) -> None:
    """Print the meaning of a relation and its columns."""
    make_console(PROSE).print(f"{relation.kind} {relation.signature}\n{relation.grain}\n{relation.meaning}")
    if relation.columns:
        _print_rows(("column", "type", "meaning"), relation.columns)


def _print_rows(names: tuple[str, ...], rows: Sequence[Sequence[object]]) -> None:
    """Print rows as a table."""
    columns = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    make_console(PROSE).print(build_table(pa.table(columns)))


def _find_example(number: int) -> sql.Statement:
    """Find the example with this number."""
    if not 1 <= number <= len(list_examples()):
        raise UserError(
            f"The tour has no question {number}; choose from 1 to {len(list_examples())}, see: attention-geometry tour"
        )
    return list_examples()[number - 1]


def _select_landed_study(connection: duckdb.DuckDBPyConnection, study: str | None) -> str:
    """The requested study, else the default one, else the first by name."""
    landed = [name for (name,) in connection.execute("SELECT study FROM studies ORDER BY study").fetchall()]
    if not landed:
        raise UserError(f"No study has landed yet; run one: attention-geometry run {study or FIRST_CHOICE}")
    if study is None:
        return FIRST_CHOICE if FIRST_CHOICE in landed else landed[0]
    if study not in landed:
        raise UserError(f"There is no landed study '{study}'; choose from {', '.join(landed)}")
    return study


def _find_relation(name: str) -> Relation:
    """Find a table, view or macro by name."""
    for relation in list_relations():
        if relation.name == name:
            return relation
    raise UserError(f"There is no table, view or macro '{name}'; see: attention-geometry schema")
