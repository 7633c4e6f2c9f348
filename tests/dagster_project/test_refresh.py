"""``refresh``: what is stale is rebuilt, what fails stops nobody, and a report says what was done and why.

And Dagster's own files in a data root: settings that are not ours, damage, and how they are rebuilt.
"""

import datetime as dt
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

import dagster as dg
import pytest
import yaml
from dagster._core.execution.plan.instance_concurrency_context import InstanceConcurrencyContext
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.utils import make_new_run_id
from dagster._daemon.types import DaemonHeartbeat
from filelock import FileLock

from dagster_project.definitions import defs
from dagster_project.defs import schedules
from dagster_project.defs.assets import OURS, configure_assets, select_steps
from dagster_project.records import opening, registration
from dagster_project.records.registration import (
    ABANDONED,
    LOCK_TAG,
    PARTITION_TAG,
    ROOT_TAG,
    find_unended_runs,
    hold_run_lock,
    mark_dead_runs,
)
from dagster_project.study.home import HOME_VARIABLE, Home
from dagster_project.upkeep import plan as planning
from dagster_project.upkeep.plan import REFRESH_TAG, WAITS, WHY_TAG, Entry, Report, plan, write
from storage.errors import UserError
from storage.files.locks import hold_lock
from tests.dagster_project.driver import attention_geometry, environment, files, instance_of
from tests.dagster_project.making import NAMES, TABLES
from tests.dagster_project.recorded import LOST, TINY, change, write_studies


def reports(home: Path) -> list[dict[str, dict[str, object]]]:
    read = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((home / "refreshes").glob("*.json"))]
    return [{entry["study"]: entry for entry in report["entries"]} for report in read]


def row(output: str, study: str) -> list[str]:
    """The cells of one study in the table that is printed."""
    (found,) = [line for line in output.splitlines() if line.startswith(f"│ {study} ")]
    return [cell.strip() for cell in found.strip("│").split("│")]


@pytest.mark.slow
def test_a_failed_study_stops_no_other_and_only_what_is_stale_runs(copied: Path) -> None:
    recorded = yaml.safe_load((copied / "studies.yaml").read_text(encoding="utf-8"))["studies"]
    write_studies(copied, lost=LOST, bad={"model": "embedded"}, **recorded)
    change(copied, analysis={"map_n": 3})
    before = files(copied)
    done = attention_geometry("refresh", home=copied)
    assert done.code == 1
    assert row(done.text, "mine")[1:4] == ["stale", "report: setting 'analysis.map_n' is 3, was 4", "done"]
    assert row(done.text, "lost")[1] == "stale"
    assert row(done.text, "lost")[3].startswith("failed: There is no corpus file")
    assert row(done.text, "bad")[1] == "error"
    assert row(done.text, "gpt2")[1:] == ["never run", "pass its name to run it", "", ""]
    after = files(copied)
    assert {name for name in after if after[name] != before.get(name)} == {
        "reports/mine.html",
        "refreshes",
        *(name for name in after if name.startswith("refreshes/")),
    } | {name for name in ("index.html",) if after[name] != before[name]}
    shown = attention_geometry("refresh", "--report", home=copied)
    assert (shown.code, shown.text) == (1, done.text)
    again = attention_geometry("refresh", "mine", home=copied)
    assert again.code == 0, again.errors
    assert row(again.text, "mine")[1:] == ["fresh", "", "", ""]
    assert "gpt2" not in again.text


# --- the schedule ---


@contextmanager
def own_instance(home: Path) -> Iterator[dg.DagsterInstance]:
    (home / "dagster").mkdir(exist_ok=True)
    with (
        mock.patch.dict(os.environ, {HOME_VARIABLE: str(home)}),
        dg.DagsterInstance.local_temp(str(home / "dagster")) as instance,
    ):
        yield instance


def tick(instance: dg.DagsterInstance) -> Any:
    loaded = defs()
    when = dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC)
    given = {"instance": instance, "repository_def": loaded.get_repository_def()}
    with dg.build_schedule_context(scheduled_execution_time=when, **given) as context:
        return loaded.resolve_schedule_def("all_studies_daily").evaluate_tick(context)


def test_a_tick_asks_for_the_stale_assets_of_stale_studies(tmp_path: Path) -> None:
    write_studies(tmp_path, one=TINY, two=TINY, bad={"model": "embedded"})
    with own_instance(tmp_path) as instance:
        asked = {request.partition_key: request for request in tick(instance).run_requests}
        assert instance.get_dynamic_partitions("study")
    assert asked.keys() == {"one", "two"}
    one = asked["one"]
    assert one.run_key == "one-2026-01-02T03:00"
    assert one.asset_selection == select_steps(NAMES)
    assert one.run_config == configure_assets(NAMES)
    tables = [name for name in TABLES if name in NAMES]
    assert one.run_config["ops"]["tables"] == {"config": {"replace": True, "tables": tables}}
    assert one.run_config["ops"]["tensors"] == {"config": {"replace": True}}
    stored = {*NAMES} - {"claims"}
    assert one.tags[WHY_TAG] == f"tensors and {len(stored) - 1} more: missing"
    assert one.tags[REFRESH_TAG] == asked["two"].tags[REFRESH_TAG]
    (report,) = reports(tmp_path)
    assert report["bad"]["state"] == "error"


@pytest.mark.long
def test_a_run_that_a_tick_asks_for_succeeds_and_the_next_asks_for_none(tmp_path: Path) -> None:
    write_studies(tmp_path, one=TINY)
    with own_instance(tmp_path) as instance:
        (asked,) = tick(instance).run_requests
        given = {"run_config": asked.run_config, "asset_selection": asked.asset_selection, "tags": asked.tags}
        job = defs().resolve_job_def("study")
        assert job.execute_in_process(instance=instance, partition_key=asked.partition_key, **given).success
        assert tick(instance).run_requests == []
    assert reports(tmp_path)[-1]["one"]["state"] == "fresh"


ORIGIN = RemoteJobOrigin(RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "repository"), "study")


def started(
    instance: dg.DagsterInstance,
    status: dg.DagsterRunStatus,
    tags: Mapping[str, str] = MappingProxyType({}),
    *,
    marked: bool = False,
) -> str:
    """Record a run; ``marked``: that it took a lock, as a run does that begins."""
    run = make_new_run_id()
    given = {PARTITION_TAG: "mine", **({LOCK_TAG: run} if marked else {}), **tags}
    return instance.add_run(
        dg.DagsterRun("study", run_id=run, status=status, tags=given, remote_job_origin=ORIGIN)
    ).run_id


def state(home: Path, instance: dg.DagsterInstance) -> tuple[str, str]:
    """What is found of the study ``mine``, which cannot be examined further than its runs."""
    (entry,) = plan(Home(home), instance, "command", ["mine"]).entries
    return entry.state, entry.message


def test_a_study_that_is_still_at_work_is_left_alone(tmp_path: Path) -> None:
    write_studies(tmp_path, mine=TINY)
    with own_instance(tmp_path) as instance:
        with FileLock(Home(tmp_path).lock("mine")):
            assert state(tmp_path, instance) == ("running", "another process is working on it or on a shard of it")
        run = started(instance, dg.DagsterRunStatus.QUEUED)
        assert tick(instance).run_requests == []
        assert state(tmp_path, instance) == ("running", f"run {run} {WAITS}")
    assert reports(tmp_path)[-1]["mine"]["state"] == "running"


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("status", "file"),
    [("STARTED", True), ("QUEUED", False), ("CANCELING", True)],
)
def test_a_run_whose_process_was_killed_keeps_nothing_from_starting(tmp_path: Path, status: str, *, file: bool) -> None:
    home = Home(tmp_path)
    with own_instance(tmp_path) as instance:
        run, other = (started(instance, dg.DagsterRunStatus(status), marked=True) for _ in range(2))
        with hold_run_lock(home, run), hold_run_lock(home, other):
            assert mark_dead_runs(instance, home) == []
            assert find_unended_runs(instance).keys() == {"mine"}
        if file:
            registration._locate_run_lock(home, run).touch()
        assert mark_dead_runs(instance, home) == sorted([run, other])
        assert instance.get_run_by_id(run).status is dg.DagsterRunStatus.FAILURE
        assert find_unended_runs(instance) == {}
    assert list((tmp_path / "locks" / "runs").iterdir()) == []


def test_a_run_that_died_waiting_for_a_pool_keeps_no_other_waiting(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with own_instance(tmp_path) as instance, ExitStack() as alive:
        instance.event_log_storage.set_concurrency_slots("gpu", 1)
        runs = [started(instance, dg.DagsterRunStatus.STARTED, marked=True) for _ in range(3)]
        for run in (runs[0], runs[2]):
            alive.enter_context(hold_run_lock(home, run))
        first, dead, last = (InstanceConcurrencyContext(instance, instance.get_run_by_id(run)) for run in runs)
        assert first.claim("gpu", "one")
        assert not dead.claim("gpu", "two", step_priority=1)
        assert not last.claim("gpu", "three")
        first.free_step("one")
        last._pending_timeouts["three"] = 0
        assert not last.claim("gpu", "three"), "Dagster gives the slot to the run that is dead"
        assert last.interval_to_next_pending_claim_check() > 0.1, "it sleeps meanwhile"
        last._pending_timeouts["three"] = 0
        assert last.claim("gpu", "three")


@pytest.mark.slow
def test_among_records_of_several_data_roots_each_buries_its_own(tmp_path: Path) -> None:
    here, elsewhere = Home(tmp_path / "a"), Home(tmp_path / "b")
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        runs = [
            started(instance, dg.DagsterRunStatus.STARTED, {ROOT_TAG: str(home.root)}, marked=True)
            for home in (here, elsewhere)
        ]
        lock = registration._locate_run_lock(here, runs[1])
        lock.parent.mkdir(parents=True)
        lock.touch()
        assert mark_dead_runs(instance, here) == runs[:1]
        assert lock.exists(), "a run that has not ended names it"
        assert mark_dead_runs(instance, elsewhere) == runs[1:]
        assert mark_dead_runs(instance, here) == []
        assert not lock.exists()


@pytest.mark.one_case
@pytest.mark.parametrize("status", [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTED])
def test_a_run_that_no_process_took_on_is_dead_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: dg.DagsterRunStatus
) -> None:
    home, now = Home(tmp_path), time.time()
    (tmp_path / "other").mkdir()
    with own_instance(tmp_path) as instance, dg.DagsterInstance.local_temp(str(tmp_path / "other")) as foreign:
        inherited = started(instance, status, {LOCK_TAG: "of the run that it repeats"})
        started(foreign, status)
        assert mark_dead_runs(instance, home) == []
        monkeypatch.setattr(time, "time", lambda: now + ABANDONED + 60)
        assert mark_dead_runs(foreign, home) == []
        if status is dg.DagsterRunStatus.QUEUED:
            instance.add_daemon_heartbeat(DaemonHeartbeat(now + ABANDONED, "QUEUED_RUN_COORDINATOR", None, None))
            assert mark_dead_runs(instance, home) == [], "a daemon lives that will start it"
            instance.wipe_daemon_heartbeats()
        assert mark_dead_runs(instance, home) == [inherited]


def test_how_scheduled_runs_ended_is_looked_up(tmp_path: Path) -> None:
    report = Report("2026-01-02", "schedule", (Entry("mine", "stale", {"report": "missing"}), Entry("two", "fresh")))
    write(Home(tmp_path), report)
    tags = report.tags(report.entries[0])
    with mock.patch.dict(os.environ, environment(), clear=True), registration.use_instance(Home(tmp_path)) as recorded:
        started(recorded, dg.DagsterRunStatus.FAILURE, tags)
        shown = attention_geometry("refresh", "--report", home=tmp_path)
        assert shown.code == 1
        assert row(shown.text, "mine")[3].startswith("failed: see run ")
        assert row(shown.text, "two")[1:] == ["fresh", "", "", ""]
        started(recorded, dg.DagsterRunStatus.SUCCESS, tags)  # executed again, with the tags of the first
        again = attention_geometry("refresh", "--report", home=tmp_path)
    assert again.code == 0
    assert row(again.text, "mine")[3] == "done"


def test_when_the_schedule_fires_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    job = schedules.build_job(OURS, "study", "a job")
    monkeypatch.setenv(schedules.SCHEDULE_VARIABLE, "*/5 * * * *")
    assert schedules.build_schedule(OURS, job).cron_schedule == "*/5 * * * *"
    monkeypatch.setenv(schedules.SCHEDULE_VARIABLE, "at three")
    with pytest.raises(UserError, match="ATTENTION_GEOMETRY_SCHEDULE is 'at three', which is not a cron expression"):
        schedules.build_schedule(OURS, job)


def test_an_error_of_any_kind_hides_no_other_study(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **_needed: object) -> dict[str, str]:
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr(planning, "find_stale_assets", broken)
    with own_instance(copied) as instance:
        found = {entry.study: entry for entry in plan(Home(copied), instance, "command").entries}
    assert found["mine"] == Entry("mine", "error", message="ZeroDivisionError: two lines")
    assert found["gpt2"].state == "never run"


AGAIN = ("run", "mine", "--force", "report")


def test_a_class_that_a_data_root_names_is_not_called(copied: Path, tmp_path: Path) -> None:
    """Dagster calls what its settings name; ``subprocess.Popen`` as a handler of its log did run."""
    ran = tmp_path / "ran"
    handler = {"class": "subprocess.Popen", "args": ["touch", str(ran)], "level": "INFO"}
    evil = yaml.safe_dump(
        {"python_logs": {"dagster_handler_config": {"handlers": {"it": {**handler, "formatter": "f"}}}}}
    )
    for name in registration.SETTINGS:
        (copied / "dagster" / name).write_text(evil, encoding="utf-8")
    done = attention_geometry("doctor", "--clean", home=copied)
    assert done.code == 0, done.errors
    assert "was not written by this version" in done.errors
    assert not ran.exists()
    for name, text in registration.SETTINGS.items():
        assert (copied / "dagster" / name).read_text(encoding="utf-8") == text
        assert (copied / "dagster" / f"{name}.other").read_text(encoding="utf-8") == evil
    assert attention_geometry("doctor", "--clean", home=copied).errors == ""


@pytest.mark.parametrize(("name", "is_refused"), [("a%41", True), ("a?b", True), ("100% a #b", False)])
def test_a_folder_that_dagster_reads_as_another_is_refused(tmp_path: Path, name: str, *, is_refused: bool) -> None:
    """The records of ``a%41`` were sought in ``aA``: there was no room, or they were those of another data root."""
    home = Home(tmp_path / name)
    home.prepare()
    if is_refused:
        with pytest.raises(UserError, match=r"Dagster cannot keep its records in .*; name another data root"):
            registration.use_instance(home)
        assert not home.dagster.exists()
    else:
        with mock.patch.dict(os.environ), registration.use_instance(home) as instance:
            assert instance.root_directory == str(home.dagster)


def test_settings_on_a_full_disk_are_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, _: bytes) -> int:
        with path.open("wb"):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match=r"dagster\.yaml cannot be written: No space left on device; make room there"):
        registration.use_instance(Home(tmp_path))
    assert [path.name for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"] == []


def test_a_damaged_database_of_dagster_is_named_with_what_rebuilds_it(copied: Path) -> None:
    path = copied / "dagster" / "history" / "runs.db"
    content = bytearray(path.read_bytes())
    content[16:4096] = bytes(4080)  # the first page but the name of the format
    path.write_bytes(content)
    verified = attention_geometry("doctor", "--verify", home=copied)
    assert verified.code == 1
    assert f"{path} is damaged" in verified.text
    assert opening.REBUILD in verified.text
    assert opening.REBUILD in attention_geometry("doctor", "--clean", home=copied).errors
    assert attention_geometry("doctor", "--rebuild-records", home=copied).code == 0
    assert opening.find_unreadable_records(Home(copied)) is None
    with instance_of(copied) as instance:
        assert "mine" in instance.get_dynamic_partitions("study")


def test_records_in_use_or_elsewhere_stay(copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, before = Home(copied), (copied / "dagster" / "history" / "runs.db").read_bytes()
    with hold_lock(copied / "locks" / "runs" / "one.lock", "it", wait=0):
        refused = attention_geometry("doctor", "--rebuild-records", home=copied)
    assert "is in progress; wait until it has ended" in refused.complaint
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with pytest.raises(UserError, match="set by DAGSTER_HOME; rebuild them there"):
        opening.rebuild_records(home)
    assert (copied / "dagster" / "history" / "runs.db").read_bytes() == before


def test_a_full_disk_is_not_called_damage(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's own error, beside a database that a full disk has left half-written: history was to be deleted."""

    def write_too_much(*_: object, **__: object) -> None:
        with closing(sqlite3.connect(":memory:")) as small:
            small.execute("PRAGMA max_page_count = 2")
            small.execute("CREATE TABLE t AS SELECT zeroblob(100000)")

    (copied / "dagster" / "history" / "runs.db").write_bytes(b"half-written")
    damaged = attention_geometry(*AGAIN, home=copied).complaint
    assert damaged.endswith(f"rebuild them: {opening.REBUILD}")
    monkeypatch.setattr(opening, "use_instance", write_too_much)
    full = f"Dagster's records in {copied}/dagster cannot be written: the disk is full; free space and run again"
    assert attention_geometry(*AGAIN, home=copied).complaint == full
    monkeypatch.undo()
    monkeypatch.setattr(opening.LocalPlace, "measure_free_space", lambda _: 0)
    assert attention_geometry(*AGAIN, home=copied).complaint == full


@pytest.mark.parametrize("writable", [True, False])
def test_records_where_nothing_can_be_written_are_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, writable: bool
) -> None:
    """SQLite opens the write-ahead log beside a database, or creates it; here a folder is in its place."""
    path = tmp_path / "schedules.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE jobs (id INTEGER)")
    (tmp_path / "schedules.db-wal").mkdir()
    monkeypatch.setattr(os, "access", lambda *_: writable)
    assert (opening._find_damage(path) is None) is not writable
