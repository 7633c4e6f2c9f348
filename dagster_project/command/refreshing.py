"""Refreshing: what of all studies is missing or stale is made anew, and a report says what was done and why.

Holds the plan, which the schedule and the command line share, its reports in ``refreshes/`` of the data root, and the
refreshing in this process.
"""

import json
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dagster_project.study.home import Home
from dagster_project.study.studies import Study, find_study, read_studies, readable_studies, shipped_file
from dagster_project.upkeep.freshness import FOLLOWS, stale
from storage.errors import UserError

if TYPE_CHECKING:
    import dagster as dg

logger = logging.getLogger(__name__)

KEPT = 100
"""Reports that are kept, the latest."""

REFRESH_TAG = "attention-geometry/refresh"
"""Tag of a run that names the report in which it was asked for."""

WHY_TAG = "attention-geometry/why"
"""Tag of a run that says which assets were stale, and why."""

NEVER_RUN = "never run; name it to start"

WAITS = "waits or is in progress; if nothing works on it, cancel it in `attention-geometry ui`"

State = Literal["stale", "fresh", "running", "never run", "error"]


@dataclass(frozen=True)
class Entry:
    """What was found of one study, and what came of it."""

    study: str
    state: State
    why: dict[str, str] = field(default_factory=dict)
    """The reason for every asset that is missing or stale, in order."""
    message: str = ""
    """What went wrong, in one line."""
    outcome: str = ""
    """How its run ended, if there was one."""
    seconds: float | None = None

    @property
    def failed(self) -> bool:
        """Whether it could not be examined, or its run failed."""
        return self.state == "error" or self.outcome == "failed"

    @property
    def reasons(self) -> str:
        """Why it is run or not, in a line; what follows from a stale asset is not named."""
        assets: dict[str, list[str]] = {}
        for asset, why in self.why.items():
            if not why.startswith(FOLLOWS):
                assets.setdefault(why, []).append(asset)
        named = (f"{_some(found)}: {why}" for why, found in assets.items())
        return "; ".join(named) or self.message or self.state


def _some(assets: Sequence[str]) -> str:
    """The first of some assets, and how many more there are."""
    return assets[0] if len(assets) == 1 else f"{assets[0]} and {len(assets) - 1} more"


@dataclass(frozen=True)
class Report:
    """What one refresh found and did."""

    name: str
    """The time when it was planned, in UTC: the name of its file, and the value of ``REFRESH_TAG``."""
    by: Literal["schedule", "command"]
    entries: tuple[Entry, ...]

    def tags(self, entry: Entry) -> dict[str, str]:
        """Tags for the run of one study."""
        return {REFRESH_TAG: self.name, WHY_TAG: entry.reasons}


def plan(
    home: Home, instance: "dg.DagsterInstance", by: Literal["schedule", "command"], names: Sequence[str] = ()
) -> Report:
    """What has to be done of all studies, or of those named; one that cannot be examined does not hide the others.

    Shipped studies of which nothing was ever made are left alone unless they are named: some are large.

    Raises
    ------
    UserError
        If a study is named that does not exist.
    """
    from dagster_project.records.registration import at_work, bury_dead_runs

    bury_dead_runs(instance, home)
    studies, unreadable = readable_studies(home)
    for name in set(names) - unreadable.keys():
        find_study(home, name)
    running, shipped = at_work(instance), read_studies(shipped_file()).keys() - set(names)
    entries = [Entry(name, "error", message=str(error)) for name, error in unreadable.items()]
    for name in names or studies:
        if name in running:
            entries.append(Entry(name, "running", message=f"run {running[name]} {WAITS}"))
        elif name in studies and home.at_work(name):
            entries.append(Entry(name, "running", message="another process works on it, or on a shard of it"))
        elif name in studies:
            entries.append(_examined(home, name, studies[name], start=name not in shipped))
    wanted = [entry for entry in entries if not names or entry.study in names]
    return Report(f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S.%fZ}", by, tuple(wanted))


def _examined(home: Home, name: str, study: Study, *, start: bool) -> Entry:
    """What is stale of a study; ``start``: also if it was never run."""
    try:
        if not (start or _was_run(home, name)):
            return Entry(name, "never run", message=NEVER_RUN)
        why = stale(home, name, study)
    except Exception as error:  # noqa: BLE001 (whatever it is, the other studies go on)
        return Entry(name, "error", message=_in_a_line(error))
    return Entry(name, "stale" if why else "fresh", why)


def _was_run(home: Home, name: str) -> bool:
    """Whether anything of a study is there."""
    from storage.warehouse.connection import database

    places = (home.metrics(name), home.summaries(name), database(home.warehouse, name), home.report(name))
    return any(place.exists() for place in (*places, home.tensors(name)))


def refresh(home: Home, names: Sequence[str] = (), *, dry_run: bool = False) -> Report:
    """Make anew what is stale of all studies, or of those named, one after the other in this process.

    A study that fails does not stop the others. The report is written before the first and after each.

    Raises
    ------
    UserError
        If a study is named that does not exist.
    """
    from dagster_project.records.registration import use_instance

    home.prepare()
    with use_instance(home, in_process=True) as instance:
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
    """Run what is stale of one study."""
    from dagster_project.command.runs import run_assets

    logger.info("%s: %s", entry.study, entry.reasons)
    started = time.monotonic()
    try:
        run_assets(home, entry.study, list(entry.why), report.tags(entry))
        outcome, message = "done", ""
    except Exception as error:  # noqa: BLE001 (whatever it is, the other studies go on)
        outcome, message = "failed", _in_a_line(error)
        logger.warning("%s: %s", entry.study, message)
    return replace(entry, outcome=outcome, message=message, seconds=time.monotonic() - started)


def _in_a_line(error: Exception) -> str:
    """An error in one line; one that is no user's mistake with its kind."""
    said = " ".join(str(error).split())
    return said if isinstance(error, UserError) else f"{type(error).__name__}: {said}"


def write(home: Home, report: Report) -> Path:
    """Keep a report as JSON, whole or not at all, and of all reports the latest ``KEPT``; returns where it lies.

    Raises
    ------
    UserError
        If it cannot be written.
    """
    from reports.whole import replace as write_whole

    path = _folder(home) / f"{report.name}.json"
    text = json.dumps(asdict(report), indent=1, ensure_ascii=False)
    write_whole(path, text.encode(), remedy="make room there, or choose another data root with --home")
    for old in _written(home)[:-KEPT]:
        old.unlink(missing_ok=True)
    return path


def latest(home: Home) -> Report:
    """The latest report; how runs ended that it does not know of is looked up in Dagster's records.

    These are the runs that the schedule asked for, and the one in which a command was killed.

    Raises
    ------
    UserError
        If there is none that can be read.
    """
    from dagster_project.records.registration import bury_dead_runs, use_instance

    written = _written(home)
    if not written:
        msg = (
            f"There is no report in {_folder(home)}; `attention-geometry refresh` writes one, and so does the schedule"
        )
        raise UserError(msg)
    report = _read(written[-1])
    if all(entry.outcome or entry.state != "stale" for entry in report.entries):
        return report
    with use_instance(home, in_process=True) as instance:
        bury_dead_runs(instance, home)
        ended = {entry.study: entry for entry in _ended(instance, report)}
    return replace(report, entries=tuple(ended.get(entry.study, entry) for entry in report.entries))


def _ended(instance: "dg.DagsterInstance", report: Report) -> Iterator[Entry]:
    """The entries of the studies that runs were started for, with their outcome, the latest run of a study last."""
    import dagster as dg

    from dagster_project.records.registration import PARTITION_TAG

    outcomes = {
        dg.DagsterRunStatus.SUCCESS: "done",
        dg.DagsterRunStatus.FAILURE: "failed",
        dg.DagsterRunStatus.CANCELED: "cancelled",
    }
    entries = {entry.study: entry for entry in report.entries}
    for record in instance.get_run_records(dg.RunsFilter(tags={REFRESH_TAG: report.name}), ascending=True):
        run, (begin, end) = record.dagster_run, (record.start_time, record.end_time)
        if entry := entries.get(run.tags.get(PARTITION_TAG, "")):
            outcome = outcomes.get(run.status, "in progress")
            message = f"see run {run.run_id} with `attention-geometry ui`" if outcome == "failed" else ""
            seconds = end - begin if begin is not None and end is not None else None
            yield replace(entry, outcome=outcome, message=message, seconds=seconds)


def _read(path: Path) -> Report:
    """A report as it was written."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Report(found["name"], found["by"], tuple(Entry(**entry) for entry in found["entries"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f"The report {path} cannot be read ({' '.join(str(error).split())}); delete it"
        raise UserError(msg) from error


def _written(home: Home) -> list[Path]:
    """The files of all reports, the oldest first."""
    return sorted(_folder(home).glob("[0-9]*.json"))


def _folder(home: Home) -> Path:
    """Where reports lie."""
    return home.root / "refreshes"
