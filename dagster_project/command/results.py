"""What ``run``, ``refresh`` and ``studies`` print: tables for people, or lines of JSON."""

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import asdict

import typer
from rich import box
from rich.table import Column, Table

from dagster_project.command import runs
from dagster_project.command.output import build_table, escape_control_codes, make_console, print_table, write_object
from dagster_project.study.families import Family
from dagster_project.study.home import Home
from dagster_project.study.studies import find_family, list_families, list_readable_studies
from dagster_project.upkeep.plan import Report
from dagster_project.upkeep.progress import describe_state, merge_members
from reports.effects.figures import summarise_effects
from reports.headlines.findings import summarise
from reports.queries import ask
from storage.errors import UserError
from storage.warehouse.connection import connect


def print_results(home: Home, study: str, *, as_json: bool) -> None:
    """Print a short table of results, the summary sentences of the report, and its path."""
    with closing(connect(home.warehouse, studies=[study], described=False)) as connection:
        table = ask(connection, "results_at_a_glance", study=study)
        claims = ask(connection, "claims", study=study).rows()
        sentences = summarise(connection, study)
        heads = ask(connection, "ablation_by_head", study=study).rows()
        associations = ask(connection, "loss_associations", study=study).rows()
    if as_json:
        pages = {"report": str(home.report(study)), "index": str(home.index)}
        write_object({"study": study, "results": table.rows(), "claims": claims, **pages})
        return
    if heads:
        sentences.append(summarise_effects(heads, associations))
    make_console().print(build_table(table.table, title=f"{study}: mean over heads and sequences"))
    for sentence in sentences:
        make_console().print(f"• {sentence}", highlight=False, markup=False)
    typer.echo(f"Claims and intervals: attention-geometry sql \"FROM claims WHERE study = '{study}'\"")
    typer.echo(f"Report: {home.report(study)}")
    typer.echo(f"All studies: {home.index}")


def run_family(home: Home, family: Family, *, fresh: bool, force: str | None, as_json: bool) -> None:
    """Run a family, and print the outcome for each member; ``UserError`` if one failed, once all have been run."""
    failed = runs.run_family(home, family, fresh=fresh, force=force)
    rows = [
        {"study": name, family.axis: value, "outcome": failed.get(name, "done")}
        for name, value in family.members.items()
    ]
    if as_json:
        for row in rows:
            write_object({"family": family.name, **row})
    else:
        print_table(("study", family.axis, "outcome"), (row.values() for row in rows), title=family.name)
        typer.echo(f"Page: {home.families / family.name}.html")
    if failed:
        first = next(iter(failed))
        count = f"{len(failed)} of {len(family.members)} studies of '{family.name}'"
        raise UserError(f"{count} failed; the first, {first}: {failed[first]}")


def print_refresh(report: Report, *, as_json: bool) -> None:
    """Print what a refresh found and did."""
    if as_json:
        for entry in report.entries:
            write_object(asdict(entry) | {"reasons": entry.reasons})
        return
    rows = (
        (
            entry.study,
            entry.state,
            entry.reasons.removeprefix(entry.state).removeprefix("; "),
            f"{entry.outcome}: {entry.message}" if entry.outcome and entry.message else entry.outcome,
            "" if entry.seconds is None else f"{entry.seconds:.1f}",
        )
        for entry in report.entries
    )
    print_table(("study", "state", "why", "outcome", "seconds"), rows, title=f"{report.by}, {report.name}")


def print_studies(home: Home, family: str | None, *, as_json: bool) -> Iterable[UserError]:
    """Print all studies with their state, a family in one line, or those of one family; return what cannot be read."""
    readable, unreadable = list_readable_studies(home)
    families = list_families(home)
    if family is not None:
        families, unreadable = {family: find_family(home, family)}, {}
        readable = {name: readable[name] for name in families[family].members if name in readable}
    rows: list[Mapping[str, object]] = [
        {
            "study": name,
            "model": study.model.name,
            "corpus": study.corpus.name,
            "context_length": study.context_length,
            "sequences": study.sequences,
            "state": describe_state(home, name, study),
        }
        for name, study in readable.items()
    ]
    if as_json:
        members = {member: name for name, known in families.items() for member in known.members}
        for row in rows:
            write_object({**row, "family": members.get(str(row["study"]))})
        return unreadable.values()
    names = ("study", "model", "corpus", "context", "sequences", "state")
    table = Table(*(Column(name, overflow="fold") for name in names), box=box.SIMPLE_HEAD)
    table.columns[0].no_wrap = True
    for row in rows if family is not None else merge_members(rows, families):
        table.add_row(*(escape_control_codes(str(cell)) for cell in row.values()))
    make_console().print(table)
    return unreadable.values()
