"""Refreshing in this process: rebuild what is missing or stale in all studies."""

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from dagster_project.command.runs import run_assets, run_family_asset
from dagster_project.study.home import Home
from dagster_project.study.studies import expand_names, find_study, list_readable_families, list_readable_studies
from dagster_project.upkeep.plan import Entry, Report, plan, write
from storage.errors import format_error

logger = logging.getLogger(__name__)


def refresh(home: Home, names: Sequence[str] = (), *, dry_run: bool = False) -> Report:
    """Rebuild what is stale in all studies and families, or in those named, one after the other in this process.

    The name of a family stands for its members and for itself.

    A study that fails does not stop the others. The report is written before the first run and after each.

    Raises
    ------
    UserError
        If a study is named that does not exist.
    """
    unreadable = list_readable_studies(home)[1] if names else {}
    for name in set(expand_names(home, names) if names else ()) - unreadable.keys():
        find_study(home, name)
    from dagster_project.records.opening import open_records

    home.prepare()
    with open_records(home) as instance:
        report = plan(home, instance, "command", names)
    if dry_run:
        return report
    write(home, report)
    for index, entry in enumerate(report.entries):
        if entry.state == "stale":
            entries = list(report.entries)
            entries[index] = _run(home, report, entry)
            report = replace(report, entries=tuple(entries))
            write(home, report)
    return report


def _run(home: Home, report: Report, entry: Entry) -> Entry:
    """Rebuild what is stale in one study, or the tables and the page of a family."""
    logger.info("%s: %s", entry.study, entry.reasons)
    started = time.monotonic()
    try:
        if family := list_readable_families(home).get(entry.study):
            run_family_asset(home, family, report.tags(entry))
        else:
            run_assets(home, entry.study, list(entry.why), report.tags(entry))
        outcome, message = "done", ""
    except Exception as error:  # noqa: BLE001 (the other studies are still refreshed)
        outcome, message = "failed", format_error(error)
        logger.warning("%s: %s", entry.study, message)
    return replace(entry, outcome=outcome, message=message, seconds=time.monotonic() - started)
