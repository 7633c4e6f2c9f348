"""What ``run``, ``refresh`` and ``studies`` print: tables for people, or lines of JSON."""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import asdict
from typing import Any

import typer
from rich import box
from rich.table import Column, Table

from dagster_project.analysis.metrics import Metrics
from dagster_project.command import runs
from dagster_project.command.output import build_table, escape_control_codes, make_console, print_table, write_object
from dagster_project.study.families import Family
from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from dagster_project.study.studies import find_family, list_families, list_readable_studies
from dagster_project.upkeep.plan import Report
from reports.headlines.findings import summarise
from reports.queries import ask
from storage.errors import UserError
from storage.warehouse.connection import connect, locate_database
from storage.zarr.arrays import TENSORS
from storage.zarr.layers import list_attending_layers
from storage.zarr.sequences import SequenceStore


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
        from reports.effects.figures import summarise_effects  # here, because it loads Altair

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
    rows: list[Mapping[str, Any]] = [
        {
            "study": name,
            "model": study.model.name,
            "corpus": study.corpus.name,
            "context_length": study.context_length,
            "sequences": study.sequences,
            "state": _describe_state(home, name, study),
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
    for row in rows if family is not None else _merge_members(rows, families):
        table.add_row(*(escape_control_codes(str(cell)) for cell in row.values()))
    make_console().print(table)
    return unreadable.values()


def _merge_members(rows: Iterable[Mapping[str, Any]], families: Mapping[str, Family]) -> list[dict[str, Any]]:
    """Rows of studies, where those of the members of a family are one row, in the place of the first.

    A column in which members differ has the number of its values; their states are counted.
    """
    owner = {member: name for name, family in families.items() for member in family.members}
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(owner.get(row["study"], row["study"]), []).append(row)
    merged = []
    for name, group in groups.items():
        values = {key: list(dict.fromkeys(row[key] for row in group)) for key in group[0]}
        row = {key: some[0] if len(some) == 1 else f"{len(some)} values" for key, some in values.items()}
        if name in families:
            states = Counter(row["state"].partition(":")[0] for row in group)
            told = ", ".join(f"{number} {state}" for state, number in states.items())
            row |= {"study": name, "state": f"{len(group)} studies by {families[name].axis}: {told}"}
        merged.append(row)
    return merged


def _describe_state(home: Home, name: str, study: Study) -> str:
    """The state of a study in a few words, from not run to reported."""
    if locate_database(home.warehouse, name).exists():
        return "reported" if home.report(name).exists() else "landed"
    try:
        if not home.tensors(name).exists():
            return "not run; needs a GPU" if study.needs_gpu else "not run"
    except UserError:  # an object store that does not answer
        return "unknown: its tensors cannot be reached; see doctor"
    try:
        store = SequenceStore.open(home.tensors(name), TENSORS)
        if home.metrics(name).exists():
            total = len(list_attending_layers(store))
            missing = len(Metrics.of(home, name, store, study.analysis).find_missing())
            return f"measured: {total - missing} of {total} layers"
        total = store.sizes["sequence"]
        return f"extracted: {total - len(store.find_missing())} of {total} sequences"
    except Exception:  # noqa: BLE001 (the other studies are still listed)
        return "extracted: cannot be read; see doctor"
