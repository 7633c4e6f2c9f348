"""The HTML page of a family of studies."""

from collections.abc import Mapping
from pathlib import Path

import duckdb

from reports.families import figures as families
from reports.families import findings
from reports.rendering import render, unvalidated
from storage.errors import UserError
from storage.files.staging import write_atomically


@unvalidated
def write_family(
    connection: duckdb.DuckDBPyConnection,
    family: str,
    path: Path,
    *,
    home: str,
    reports: Mapping[str, str],
    origin: str = "",
) -> Path:
    """Write the page of a family atomically; an existing file at ``path`` is replaced.

    ``home`` and ``reports`` are relative links to the index and to existing reports; the page keeps ``origin``, what it
    is made from, as JSON.

    Raises
    ------
    UserError
        If the warehouse holds nothing of the family, or the file cannot be written.
    """
    source = families.FamilySource(connection, family)
    members = source.ask("family_members").rows()
    if not members:
        raise UserError(
            f"The warehouse holds nothing of the family '{family}'; run it first: attention-geometry run {family}"
        )
    html = render(
        "family.html.j2",
        (*families.build_sections(source, ordered=members[0]["axis"] != "model"), families.build_verdicts(source)),
        name=family,
        family=family,
        members=[(row["study"], row["value"], row["landed"], reports.get(row["study"])) for row in members],
        home=home,
        origin=origin,
        told=families.tell_first(source),
        lead=findings.describe_members(members),
        listing=findings.tabulate_members(members, reports),
    )
    write_atomically(path, html.encode(), remedy="name another folder with --home DIR")
    return path
