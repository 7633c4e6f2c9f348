"""The commands ``tour``, ``schema`` and ``assets``."""

import sys
from collections.abc import Sequence
from contextlib import closing

import duckdb
import pyarrow as pa

import sql
from dagster_project.command.output import PROSE, build_table, escape_control_codes, make_console, write
from dagster_project.study.home import Home
from storage.errors import UserError
from storage.warehouse.connection import connect
from storage.warehouse.documentation import list_examples, list_relations, render_example, render_tour_page
from storage.warehouse.query import query, reads_comments

FIRST_CHOICE = "embedded"
"""The study that the tour queries by default, if it has landed."""


def show_tour(home: Home, number: int | None, study: str | None, *, only_sql: bool, markdown: bool) -> None:
    """Print the list of questions, one of them with its answer, only its statement, or a page of all of them.

    ``UserError`` if the number or study does not exist, no study has landed, or the options contradict one another.
    """
    examples = list_examples()
    if markdown and (number is not None or only_sql):
        raise UserError(
            "--format markdown prints the page of all questions; omit it to answer one, or to print its --sql"
        )
    if only_sql and number is None:
        raise UserError(
            "--sql prints the statement of one question; give its number, as in: attention-geometry tour 7 --sql"
        )
    if number is None and not markdown:
        _print_rows(("number", "question"), [(at, example.meaning) for at, example in enumerate(examples, start=1)])
        return
    if number is not None and not 1 <= number <= len(examples):
        raise UserError(
            f"The tour has no question {number}; choose from 1 to {len(examples)}, see: attention-geometry tour"
        )
    example = None if number is None else examples[number - 1]
    described = example is None or reads_comments(example.text)
    with closing(connect(home.warehouse, described=described)) as connection:
        chosen = _select_landed_study(connection, study)
        if example is None:
            sys.stdout.write(render_tour_page(connection, chosen))
        elif only_sql:
            sys.stdout.write(f"-- {example.meaning}\n{render_example(example, chosen)}\n")
        else:
            _print_answer(connection, example, chosen)


def _select_landed_study(connection: duckdb.DuckDBPyConnection, study: str | None) -> str:
    """The requested study, else the default one, else the first by name."""
    landed = [name for (name,) in connection.execute("SELECT study FROM studies ORDER BY study").fetchall()]
    if not landed:
        raise UserError(f"No study has landed yet; run one: attention-geometry run {study or FIRST_CHOICE}")
    if study is not None and study not in landed:
        raise UserError(f"There is no landed study '{study}'; choose from {', '.join(landed)}")
    return study or (FIRST_CHOICE if FIRST_CHOICE in landed else landed[0])


def _print_answer(connection: duckdb.DuckDBPyConnection, example: sql.Statement, study: str) -> None:
    """Print a question, its statement with syntax highlighting, and its result."""
    from rich.syntax import Syntax

    text = render_example(example, study)
    make_console(PROSE).print(f"{example.meaning}\n")
    make_console(PROSE).print(Syntax("", "sql").highlight(escape_control_codes(text)))
    write(query(connection, text), "table")


def show_schema(name: str | None, *, html: bool) -> None:
    """Print the list of tables, views and macros, the columns of one of them, or the page of all of them.

    ``UserError`` if the relation does not exist, or is named together with the page of all.
    """
    relations = {relation.name: relation for relation in list_relations()}
    if html and name is not None:
        raise UserError(f"--html prints the page of all relations; omit it to see '{name}'")
    if html:
        from reports.overviews import render_catalogue

        sys.stdout.write(render_catalogue())
    elif name is None:
        _print_rows(("kind", "name", "meaning"), [(one.kind, one.name, one.meaning) for one in relations.values()])
    elif name not in relations:
        raise UserError(f"There is no table, view or macro '{name}'; see: attention-geometry schema")
    else:
        one = relations[name]
        make_console(PROSE).print(f"{one.kind} {one.signature}\n{one.grain}\n{one.meaning}")
        if one.columns:
            _print_rows(("column", "type", "meaning"), one.columns)


def show_assets(*, markdown: bool) -> None:
    """Print the records of all assets as a table, or as the section of docs/architecture.md."""
    from dagster_project.assets.catalogue import ASSETS

    if markdown:
        sys.stdout.write(render_assets_section())
    else:
        rows = [(asset.name, ", ".join(asset.parents), asset.about) for asset in ASSETS]
        _print_rows(("asset", "made from", "description"), rows)


def render_assets_section() -> str:
    """Dagster's assets as a diagram, and the records that they are made of as a table, in Markdown."""
    from dagster_project.assets.catalogue import ASSETS, STEPS

    links = dict.fromkeys((STEPS[parent], STEPS[asset.name]) for asset in ASSETS for parent in asset.parents)
    arrows = (f"    {parent} --> {step}" for parent, step in links if parent != step)
    rows = (
        f"| `{asset.name}` | `{STEPS[asset.name]}` | {', '.join(f'`{parent}`' for parent in asset.parents) or '-'} | "
        f"{', '.join(asset.kinds)} | {' '.join(asset.about.split())} |"
        for asset in ASSETS
    )
    return "\n".join(
        [
            "Made by `attention-geometry assets --format markdown`; do not edit.",
            "",
            "```mermaid",
            "flowchart LR",
            *arrows,
            "    report --> family",
            "```",
            "",
            "| record | asset of Dagster | made from | with | what it is |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _print_rows(names: tuple[str, ...], rows: Sequence[Sequence[object]]) -> None:
    """Print rows as a table."""
    columns = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    make_console(PROSE).print(build_table(pa.table(columns)))
