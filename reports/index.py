"""The HTML page that lists all studies."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import duckdb

from reports.findings import numbers
from reports.kinds import findings
from reports.queries import ask
from reports.rendering import render
from storage.files.staging import write_atomically


def write_index(
    connection: duckdb.DuckDBPyConnection,
    path: Path,
    *,
    reports: Mapping[str, str],
    comparisons: Mapping[str, str],
    families: Mapping[str, str],
) -> Path:
    """Write the index of the studies of a warehouse atomically; an existing file at ``path`` is replaced.

    The others are relative links to existing pages: reports by study, comparisons and families by their names.

    Raises
    ------
    UserError
        If the file cannot be written.
    """
    studies = [
        {
            **row,
            "report": reports.get(row["study"]),
            "twin_report": reports.get(row["twin"]),
            "kinds": _count_kinds(row),
            "picture": _place_sinks(row),
        }
        for row in sorted(ask(connection, "studies_overview").rows(), key=lambda row: _split_numbers(row["study"]))
        if not row["is_twin"]
    ]
    html = render("index.html.j2", studies=studies, comparisons=comparisons, families=families)
    write_atomically(path, html.encode(), remedy="name another folder with --home DIR")
    return path


def _split_numbers(name: str) -> list[tuple[int, str]]:
    """The parts of a name, by which step32 comes before step128."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", name)]


def _place_sinks(study: numbers.Row) -> list[tuple[int, int, float]]:
    """Place the attention on the sink of every head on a grid: column, row and share (``studies_overview``)."""
    places, columns = [], Counter[int]()
    rows = {layer: row for row, layer in enumerate(sorted(set(study["sink_layers"] or [])))}
    for layer, share in zip(study["sink_layers"] or [], study["sinks"] or [], strict=True):
        if share is not None:
            places.append((columns[layer], rows[layer], share))
        columns[layer] += 1
    return places


def _count_kinds(study: numbers.Row) -> list[tuple[str, int]]:
    shares = {label: study[f"{label.lower()}_share"] for label in findings.LABELS}
    return [
        (label, round(share * study["all_heads"])) for label, share in shares.items() if None not in shares.values()
    ]
