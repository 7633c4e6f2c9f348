"""The commands ``export`` and ``scores``: measures of heads as files, and scores of other tools in the warehouse."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from dagster_project.assets.landing import EXTERNAL, keep_external_scores, read_external_scores
from dagster_project.study.home import Home
from geometry.statistics.verdicts import ERROR_RATE
from reports.external import PATTERN, Heads, correlate_scores, read_scores
from reports.head_files import FORMS, GROUPS, Choice, write
from storage.errors import UserError
from storage.warehouse.additions import replace_rows
from storage.warehouse.connection import connect

LONGEST_NAME = 200
"""Most characters of the name of scores."""


def export_heads(
    home: Home,
    study: str,
    path: Path,
    *,
    form: str,
    measure: str | None,
    group: str,
    inverted: bool,
    sink_size: int,
    recent_size: int,
    overwrite: bool = False,
) -> list[Path]:
    """Write one measure of every head, or all measures; return the files that were written.

    Raises
    ------
    UserError
        If the format or rule does not exist, or as ``reports.head_files.write``.
    """
    named = next((known for known in FORMS if known == form), None)
    rule = next((known for known in GROUPS if known == group), None)
    if named is None:
        msg = f"There is no format '{form}'; choose from {', '.join(FORMS)}"
        raise UserError(msg)
    if rule is None:
        msg = f"There is no rule '{group}' to combine heads of one KV head; choose from {', '.join(GROUPS)}"
        raise UserError(msg)
    if min(sink_size, recent_size) < 1:
        msg = f"--sink-size {sink_size} and --recent-size {recent_size} are numbers of keys; set both to 1 or more"
        raise UserError(msg)
    choice = Choice(named, measure, rule, inverted, sink_size, recent_size)
    with closing(connect(home.warehouse, studies=[study], described=False)) as connection:
        return write(connection, study, choice, path, overwrite=overwrite)


def add_scores(
    home: Home, study: str, path: Path, *, form: str, source: str | None, overwrite: bool = False
) -> pa.Table:
    """Land the scores of a file for a study under the name of a source, and correlate them with all measures.

    Returns
    -------
    pyarrow.Table
        The rows of ``reports.external.correlate_scores``, with a word about each.

    Raises
    ------
    UserError
        If the study has not landed, the file or the name cannot be used, or there are other scores of this name that
        are not to be overwritten; as ``storage.warehouse.additions.replace_rows``.
    """
    name = source or (path.parent if path.name == PATTERN else path).stem
    _check_name(name)
    with closing(connect(home.warehouse, studies=[study], described=False)) as connection:
        scores = read_scores(path, form, Heads.of(connection, study))
        correlations = correlate_scores(connection, study, scores)
    rows = [
        {"source": name, "format": form, "layer": layer, "head": head, "score": score}
        for (layer, head), score in sorted(scores.items())
    ]
    with home.claim(study):
        known = read_external_scores(home, study)
        others, replaced = ([row for row in known if (row["source"] == name) is same] for same in (False, True))
        if replaced and replaced != rows and not overwrite:
            msg = f"'{study}' has other scores named '{name}'; add --overwrite to replace them, or choose a --name"
            raise UserError(msg)
        # kept before they are visible, so that the next landing never loses what was seen
        with replace_rows(home.warehouse, study, EXTERNAL, pa.Table.from_pylist(others + rows)):
            keep_external_scores(home, study, others + rows)
    return pa.Table.from_pylist([row | {"says": _describe(row)} for row in correlations])


def _check_name(name: str) -> None:
    """Refuse the name of a source that is not printable text, such as that of a file whose name is not UTF-8."""
    if not name.isprintable() or not 0 < len(name) <= LONGEST_NAME:
        msg = f"The scores cannot be named {name[:LONGEST_NAME]!a}; choose a --name of up to {LONGEST_NAME} characters"
        raise UserError(msg)


def _describe(row: dict[str, Any]) -> str | None:
    """Whether scores and a measure go together, beyond what random arrangements of KV groups do; None: unknown."""
    if row["correlation"] is None or row["p_holm"] is None:
        return None
    if row["p_holm"] > ERROR_RATE:
        return "undecided"
    return "together" if row["correlation"] > 0 else "opposed"
