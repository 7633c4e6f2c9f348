"""The Dagster instance of a data root: its settings, its partitions, and runs whose process was killed."""

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote

import dagster as dg
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES  # Dagster exports no name for it
from filelock import FileLock, Timeout

from dagster_project.study.home import HOME_VARIABLE, Home, is_held
from dagster_project.study.studies import list_readable_families, list_readable_studies
from storage.errors import UserError
from storage.files.locks import hold_lock
from storage.files.staging import write_atomically

studies = dg.DynamicPartitionsDefinition(name="study")
families = dg.DynamicPartitionsDefinition(name="family")


logger = logging.getLogger(__name__)

CONFIGURATION = """\
telemetry:
  enabled: false
nux:
  enabled: false
concurrency:
  pools:
    granularity: op
    default_limit: 1
run_monitoring:
  enabled: true
  free_slots_after_run_end_seconds: 60
"""
"""Dagster's settings: no telemetry or invitations, one step at a time in each pool (``gpu``, ``warehouse``)."""

IN_PROCESS = """\
compute_logs:
  module: dagster._core.storage.noop_compute_log_manager
  class: NoOpComputeLogManager
"""
"""Added for runs inside the command line: their output belongs on the terminal, not in Dagster's files."""

SETTINGS = {"dagster.yaml": CONFIGURATION, "in-process.yaml": CONFIGURATION + IN_PROCESS}
"""The files of Dagster's settings in a data root, with exactly this content."""

PATIENT = 60.0
"""Seconds to wait for another process that creates the tables of the records or registers studies."""

ABANDONED = 3600.0
"""Seconds after which a run without a lock counts as dead; a queued one only if no daemon was seen for as long."""

PARTITION_TAG = "dagster/partition"
"""Dagster's own tag of a run that names its partition: the study."""

LOCK_TAG = "attention-geometry/lock"
"""Tag of a run whose process holds a lock while it lives: the id of the run, which names the lock file.

A re-executed run inherits the tags of the first, and so the id of another run: it has no lock yet.
"""

ROOT_TAG = "attention-geometry/data-root"
"""Tag of a run that names the data root of its lock; several data roots may share Dagster's records."""


def use_instance(home: Home) -> dg.DagsterInstance:
    """The Dagster instance of a data root, or the one that ``DAGSTER_HOME`` names; child processes use the same one.

    Its runs are executed in this process and print to its terminal. ``UserError`` if ``DAGSTER_HOME`` is not a folder,
    its path cannot be that of SQLite databases, or settings cannot be written.
    """
    _check_path(Path(os.environ.get("DAGSTER_HOME", home.dagster)).absolute())
    os.environ[HOME_VARIABLE] = str(home.root)
    # the daemon waits 60 s for the schedule, which hashes local models and corpora
    os.environ.setdefault("DAGSTER_SCHEDULE_GRPC_TIMEOUT_SECONDS", "3600")
    if "DAGSTER_HOME" in os.environ and Path(os.environ["DAGSTER_HOME"]) != home.dagster:
        try:
            return _open_with_tables(Path(os.environ["DAGSTER_HOME"]), dg.DagsterInstance.get)
        except dg.DagsterInvariantViolationError as error:
            raise UserError(
                f"{error} Unset DAGSTER_HOME to store Dagster's records in the data root, or create the folder"
            ) from error
    with _lock_records(home.dagster):
        for name, text in SETTINGS.items():
            _write_settings(home.dagster / name, text)
    os.environ["DAGSTER_HOME"] = str(home.dagster)
    return _open_with_tables(home.dagster, lambda: dg.DagsterInstance.from_config(str(home.dagster), "in-process.yaml"))


def _check_path(folder: Path) -> None:
    """Refuse a folder that Dagster would read as another: it makes the path of a database the end of a URL."""
    if "?" in str(folder) or unquote(str(folder)) != str(folder):
        raise UserError(
            f"Dagster cannot keep its records in {folder}: its path has a question mark, or a code such as %20; "
            "name another data root with --home, or set DAGSTER_HOME to another folder"
        )


def _open_with_tables(folder: Path, connect: Callable[[], dg.DagsterInstance]) -> dg.DagsterInstance:
    """Connect to an instance and create its tables, one process at a time: Dagster does not lock this."""
    if not folder.is_dir():
        return connect()
    with _lock_records(folder):
        instance = connect()
        instance.get_runs_count()
        instance.get_dynamic_partitions(str(studies.name))
        instance.all_instigator_state()
    return instance


def _lock_records(folder: Path) -> AbstractContextManager[None]:
    """Hold the lock for changes to the records of a folder; other processes wait."""
    return hold_lock(folder / "records.lock", f"Dagster's records in {folder}", wait=PATIENT)


def _write_settings(path: Path, text: str) -> None:
    """Write a file of Dagster's settings unless it has this text; other settings could call any Python class.

    A file with another text is renamed to ``NAME.other``. ``UserError`` if it cannot be written.
    """
    if path.is_file() and path.read_bytes() == text.encode():
        return
    if path.is_file() and path.stat().st_size:
        other = path.replace(path.with_name(f"{path.name}.other"))
        logger.warning(
            "%s was not written by this version; it was renamed to %s and replaced. For Dagster settings of your own, "
            "set DAGSTER_HOME to a folder outside the data root",
            *(path, other.name),
        )
    write_atomically(path, text.encode(), remedy=f"make room there, or set {HOME_VARIABLE} to another data root")


def register_studies(instance: dg.DagsterInstance, home: Home) -> list[str]:
    """Register all readable studies and families of the studies files as partitions, and return the names of studies.

    Partitions of other names are deleted, unless some study cannot be read.
    """
    folder = Path(instance.root_directory)
    with _lock_records(folder):
        readable, unreadable = list_readable_studies(home)
        names = list(readable)
        own = folder == home.dagster  # elsewhere, they may be of another data root
        for partitions, keys in ((str(studies.name), names), (str(families.name), list(list_readable_families(home)))):
            known = set(instance.get_dynamic_partitions(partitions))
            if new := [key for key in keys if key not in known]:
                instance.add_dynamic_partitions(partitions, new)
            for gone in sorted(known - set(keys)) if own and not unreadable else ():
                instance.delete_dynamic_partition(partitions, gone)
    return names


@contextmanager
def hold_run_lock(home: Home, run_id: str) -> Iterator[dict[str, str]]:
    """Hold a lock for a run of this process, and yield the tags by which others can tell whether it is alive."""
    path = _locate_run_lock(home, run_id)
    with FileLock(path):
        try:
            yield {LOCK_TAG: run_id, ROOT_TAG: str(home.root)}
        finally:
            path.unlink(missing_ok=True)


def mark_dead_runs(instance: dg.DagsterInstance, home: Home) -> list[str]:
    """Mark runs whose process was killed as failed, free the pool slots they held, and return their ids.

    A run of this data root is dead if no process holds its lock; in this data root's own records, also one that has
    taken no lock for ``ABANDONED`` seconds. Locks that no run needs any more are deleted.
    """
    unended = instance.get_run_records(dg.RunsFilter(statuses=NOT_FINISHED_STATUSES))
    dead = [record.dagster_run for record in unended if _is_dead(instance, home, record)]
    for run in dead:
        instance.report_run_failed(run, "The process of this run ended without finishing it.")
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
    ids = {run.run_id for run in dead}
    needed = {record.dagster_run.run_id for record in unended} - ids
    for lock in _locate_run_lock(home, "none").parent.glob("*.lock"):
        if lock.stem not in needed:
            with suppress(Timeout), FileLock(lock, timeout=0):
                lock.unlink(missing_ok=True)
    return sorted(ids)


def find_unended_runs(instance: dg.DagsterInstance) -> dict[str, str]:
    """The studies with a queued or unfinished run, and its id; call ``mark_dead_runs`` before."""
    unended = instance.get_runs(filters=dg.RunsFilter(statuses=NOT_FINISHED_STATUSES))
    return {run.tags[PARTITION_TAG]: run.run_id for run in unended if PARTITION_TAG in run.tags}


def _is_dead(instance: dg.DagsterInstance, home: Home, record: dg.RunRecord) -> bool:
    """Whether no process is working on a run of this data root, or will start it."""
    run = record.dagster_run
    own = Path(instance.root_directory) == home.dagster
    if run.tags.get(LOCK_TAG) == run.run_id:
        return (own or run.tags.get(ROOT_TAG) == str(home.root)) and not is_held(_locate_run_lock(home, run.run_id))
    seen = record.update_timestamp.timestamp()
    if run.status is dg.DagsterRunStatus.QUEUED:
        beat = instance.get_daemon_heartbeats().get("QUEUED_RUN_COORDINATOR")  # of the daemon that starts queued runs
        seen = max(seen, beat.timestamp if beat else 0.0)
    return own and seen < time.time() - ABANDONED


def _locate_run_lock(home: Home, name: str) -> Path:
    return home.root / "locks" / "runs" / f"{name}.lock"
