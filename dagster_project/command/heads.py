"""The command ``export``: measures of heads as files."""

from contextlib import closing
from pathlib import Path

from dagster_project.command.headvis import export_headvis
from dagster_project.study.home import Home
from reports.scores.files import FORMS, GROUPS, Choice, refuse_missing, write
from storage.errors import UserError
from storage.warehouse.connection import connect


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
        If the format or rule does not exist, or as ``reports.scores.files.write`` or ``export_headvis``.
    """
    named = next((known for known in FORMS if known == form), None)
    rule = next((known for known in GROUPS if known == group), None)
    if named is None:
        raise UserError(f"There is no format '{form}'; choose from {', '.join(FORMS)}")
    if rule is None:
        raise UserError(f"There is no rule '{group}' to combine heads of one KV head; choose from {', '.join(GROUPS)}")
    if min(sink_size, recent_size) < 1:
        raise UserError(
            f"--sink-size {sink_size} and --recent-size {recent_size} are numbers of keys; set both to 1 or more"
        )
    if named == "headvis" and measure is not None:
        raise UserError(f"The format 'headvis' holds its own metrics, not '{measure}' alone; leave out --by")
    choice = Choice(named, measure, rule, inverted, sink_size, recent_size)
    with closing(connect(home.warehouse, studies=[study], described=False)) as connection:
        if named == "headvis":
            refuse_missing(connection, study)
            return export_headvis(connection, study, path, overwrite=overwrite)
        return write(connection, study, choice, path, overwrite=overwrite)
