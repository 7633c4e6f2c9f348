"""What is missing or stale in studies and families, and why; reports of refreshes are in ``refreshes/``.

The schedule and the command line both use it. Only files decide: the result is the same in all copies of a data root
and without Dagster's records, which say no more than which runs have not ended.
"""

import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dagster_project.assets.asset import Asset, Work
from dagster_project.assets.catalogue import ASSETS, select_assets
from dagster_project.assets.families import explain_stale_family, has_members
from dagster_project.study.families import Family
from dagster_project.study.home import Home
from dagster_project.study.settings import RANDOM, Study, find_twin_name
from dagster_project.study.studies import (
    expand_names,
    find_study,
    list_readable_families,
    list_readable_studies,
    locate_shipped_file,
    read_studies,
)
from storage.errors import UserError, format_error
from storage.files.staging import write_atomically

if TYPE_CHECKING:
    import dagster as dg

logger = logging.getLogger(__name__)

SHOWING = ("claims", "report")
"""The assets that show the landed results of a study and compare them with its twin; no asset is made from them."""

FOLLOWS = "follows from"
"""The beginning of the reason of an asset that is stale because a parent is."""

KEPT = 100
"""Number of reports that are kept, the latest ones."""

REFRESH_TAG = "attention-geometry/refresh"
"""Tag of a run with the name of the report that requested it."""

WHY_TAG = "attention-geometry/why"
"""Tag of a run with the stale assets and why they are stale."""

NEVER_RUN = "never run; pass its name to run it"

WAITS = "is queued or in progress; if no process is working on it, cancel it in `attention-geometry ui`"

State = Literal["stale", "fresh", "running", "never run", "error"]


def find_stale_assets(
    home: Home, name: str, study: Study, force: str | None = None, *, needed: Collection[str] | None = None
) -> dict[str, str]:
    """Find the missing or stale assets of a study, or of those needed, each with the reason, in order of ``ASSETS``.

    An asset that depends on a stale one is stale. No model is loaded, and the network is used for object stores only:
    local models and corpora are hashed; for those on the hub, the recorded commit is used, so that later commits to a
    branch are not noticed. ``force`` counts as stale in any case.

    ``UserError`` if a local model or corpus is missing or cannot be read, or an object store does not answer.
    """
    work = Work(home, name, study, ASSETS)
    wanted = select_assets(study)
    own = _explain_stale_twin(work)
    own |= {asset.name: why for asset in wanted if (why := asset.explain_staleness(work))}
    own |= {force: "requested"} if force else {}
    reasons = _add_followers(own, wanted)
    reading = [asset.name for asset in wanted if asset.reads and asset.name in reasons]
    if reading and "tensors" not in reasons and work.tensors is not None and work.tensors.dropped:
        reasons = _add_followers(own | {"tensors": f"dropped, but {reading[0]} is made from them"}, wanted)
    return {asset: why for asset, why in reasons.items() if needed is None or asset in needed}


def select_twin_assets(home: Home, twin: str) -> tuple[str, ...]:
    """The assets needed of a twin: its tables and what they are made from, and its page if it exists."""
    page, wanted = home.report(twin).exists(), select_assets(find_study(home, twin))
    return tuple(asset.name for asset in wanted if page or asset.name not in SHOWING)


def _explain_stale_twin(work: Work) -> dict[str, str]:
    """The reason of the tables of a study that are compared with its twin, if that has landed and is stale."""
    twin = find_twin_name(work.name, work.study)
    if twin is None or work.landed_twin is None:
        return {}
    if not find_stale_assets(work.home, twin, find_study(work.home, twin)).keys() - {*SHOWING}:
        return {}
    return {"warehouse": f"its twin '{twin}' is stale"}


def _add_followers(own: Mapping[str, str], wanted: Iterable[Asset]) -> dict[str, str]:
    """Add to the reasons of stale assets those of all wanted assets that depend on them."""
    reasons: dict[str, str] = {}
    for asset in wanted:
        follows = [f"{FOLLOWS} {parent}" for parent in asset.parents if parent in reasons]
        if asset.name in own or follows:
            reasons[asset.name] = own.get(asset.name) or follows[0]
    return reasons


@dataclass(frozen=True)
class Entry:
    """The findings for one study or family, and the outcome of its run."""

    study: str
    """Name of the study or family."""
    state: State
    why: dict[str, str] = field(default_factory=dict)
    """The reason for every asset that is missing or stale, in order."""
    message: str = ""
    """An error, or another explanation, in one line."""
    outcome: str = ""
    """How its run ended, if there was one."""
    seconds: float | None = None

    @property
    def failed(self) -> bool:
        """Whether it could not be examined, or its run failed."""
        return self.state == "error" or self.outcome == "failed"

    @property
    def reasons(self) -> str:
        """Why it is run or not, in one line; assets that are stale only because of another are not named."""
        assets: dict[str, list[str]] = {}
        for asset, why in self.why.items():
            if not why.startswith(FOLLOWS):
                assets.setdefault(why, []).append(asset)
        named = (
            f"{names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}: {why}" for why, names in assets.items()
        )
        return "; ".join(named) or self.message or self.state


@dataclass(frozen=True)
class Report:
    """What one refresh found and did."""

    name: str
    """The time of planning in UTC: the name of its file, and the value of ``REFRESH_TAG``."""
    by: Literal["schedule", "command"]
    entries: tuple[Entry, ...]

    def tags(self, entry: Entry) -> dict[str, str]:
        """Tags for the run of one study."""
        return {REFRESH_TAG: self.name, WHY_TAG: entry.reasons}


def plan(
    home: Home, instance: "dg.DagsterInstance", by: Literal["schedule", "command"], names: Sequence[str] = ()
) -> Report:
    """Find what is missing or stale in all studies, or in those named; an error in one does not hide the others.

    Shipped studies that were never run are skipped unless they are named: some are large. So is the page of a
    generated twin. The name of a family stands for its members. A family follows its members; with the schedule, it
    does with the sensor ``families_current``, and has no entry.

    ``UserError`` if a study is named that does not exist.
    """
    from dagster_project.records.registration import find_unended_runs, mark_dead_runs

    mark_dead_runs(instance, home)
    requested, families, names = names, list_readable_families(home), expand_names(home, names) if names else ()
    studies, unreadable = list_readable_studies(home)
    for name in {*names} - unreadable.keys():
        find_study(home, name)
    running, shipped = find_unended_runs(instance), read_studies(locate_shipped_file()).keys() - set(names)
    unseen = {find_twin_name(name, study) for name, study in studies.items() if study.twin == RANDOM} - set(names)
    entries = [Entry(name, "error", message=str(error)) for name, error in unreadable.items()]
    for name in sorted(names or studies, key=lambda name: name not in studies or studies[name].model.weights != RANDOM):
        if name in running:
            entries.append(Entry(name, "running", message=f"run {running[name]} {WAITS}"))
        elif name in studies and home.is_claimed(name):
            entries.append(Entry(name, "running", message="another process is working on it or on a shard of it"))
        elif name in studies:
            start, is_unseen = name not in shipped, name in unseen
            entries.append(_examine_study(home, name, studies[name], start=start, is_unseen=is_unseen))
    wanted = [entry for entry in entries if not names or entry.study in names]
    if by == "command":
        concerned = [
            family for family in families.values() if not names or _is_concerned(home, family, requested, names)
        ]
        wanted += [_examine_family(home, family, entries, running) for family in concerned]
    return Report(f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S.%fZ}", by, tuple(wanted))


def _examine_study(home: Home, name: str, study: Study, *, start: bool, is_unseen: bool) -> Entry:
    """The entry of a study: which of its assets are stale; ``start``: also if it was never run.

    Of an ``is_unseen`` twin, which nobody named, only the assets count that its study needs.
    """
    try:
        stored = (place for asset in reversed(ASSETS) for place in asset.places(home, name))
        if not (start or any(place.exists() for place in stored)):
            return Entry(name, "never run", message=NEVER_RUN)
        needed = select_twin_assets(home, name) if is_unseen else None
        why = find_stale_assets(home, name, study, needed=needed)
    except Exception as error:  # noqa: BLE001 (the other studies are still examined)
        return Entry(name, "error", message=format_error(error))
    return Entry(name, "stale" if why else "fresh", why)


def _is_concerned(home: Home, family: Family, requested: Collection[str], names: Collection[str]) -> bool:
    """Whether a family is asked for, or has been made and has a member among these studies."""
    made = (home.families / f"{family.name}.html").exists()
    return family.name in requested or (made and any(name in family.members for name in names))


def _examine_family(home: Home, family: Family, entries: Sequence[Entry], running: Collection[str]) -> Entry:
    """The entry of a family, given those of its members: whether its tables and its page are current."""
    if family.name in running or home.is_claimed(family.name):
        return Entry(family.name, "running", message="another process is working on it")
    if stale := [entry.study for entry in entries if entry.study in family.members and entry.state == "stale"]:
        return Entry(family.name, "stale", {"family": f"{FOLLOWS} {stale[0]}"})
    if not has_members(home, family):
        return Entry(family.name, "never run", message=NEVER_RUN)
    try:
        why = explain_stale_family(home, family)
    except Exception as error:  # noqa: BLE001 (the others are still examined)
        return Entry(family.name, "error", message=format_error(error))
    return Entry(family.name, "stale" if why else "fresh", {"family": why} if why else {})


def write(home: Home, report: Report) -> Path:
    """Write a report atomically as JSON, delete all but the latest ``KEPT`` reports, and return its path.

    ``UserError`` if it cannot be written.
    """
    path = home.root / "refreshes" / f"{report.name}.json"
    text = json.dumps(asdict(report), indent=1, ensure_ascii=False)
    write_atomically(path, text.encode(), remedy="make room there, or choose another data root with --home")
    for old in _list_reports(home)[:-KEPT]:
        old.unlink(missing_ok=True)
    return path


def read_latest(home: Home) -> Report:
    """Read the latest report; missing outcomes of runs are looked up in Dagster's records.

    These are the runs that the schedule requested, and the one during which a command was killed.

    ``UserError`` if there is no report, or it cannot be read.
    """
    from dagster_project.records.opening import open_records

    written = _list_reports(home)
    if not written:
        raise UserError(f"There is no report in {home.root / 'refreshes'} yet; write one: attention-geometry refresh")
    report = _read(written[-1])
    if all(entry.outcome or entry.state != "stale" for entry in report.entries):
        return report
    with open_records(home) as instance:
        ended = {entry.study: entry for entry in _iterate_ended(instance, report)}
    return replace(report, entries=tuple(ended.get(entry.study, entry) for entry in report.entries))


def _iterate_ended(instance: "dg.DagsterInstance", report: Report) -> Iterator[Entry]:
    """Yield the entries of studies that have runs, with their outcome; the latest run of a study is last."""
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
            message = f"see run {run.run_id} in `attention-geometry ui`" if outcome == "failed" else ""
            seconds = end - begin if begin is not None and end is not None else None
            yield replace(entry, outcome=outcome, message=message, seconds=seconds)


def _read(path: Path) -> Report:
    """Read a report from its file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return Report(document["name"], document["by"], tuple(Entry(**entry) for entry in document["entries"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"The report {path} cannot be read ({' '.join(str(error).split())}); delete it") from error


def _list_reports(home: Home) -> list[Path]:
    """The files of all reports, the oldest first."""
    return sorted((home.root / "refreshes").glob("[0-9]*.json"))
