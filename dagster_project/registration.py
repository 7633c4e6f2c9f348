"""Dagster's records as this project keeps them: the instance, its partitions, and runs that died.

Holds what must be true of a Dagster instance before a run. What does not belong here: definitions (``defs``).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import dagster as dg
from filelock import FileLock, Timeout

from dagster_project.defs.partitions import studies
from dagster_project.home import HOME_VARIABLE, Home
from dagster_project.studies import all_studies
from storage.errors import UserError

CONFIGURATION = """\
telemetry:
  enabled: false
concurrency:
  pools:
    granularity: op
    default_limit: 1
run_monitoring:
  enabled: true
  free_slots_after_run_end_seconds: 60
"""
"""Dagster's settings: no telemetry, one step at a time in each pool (``gpu``, ``warehouse``)."""

IN_PROCESS = """\
compute_logs:
  module: dagster._core.storage.noop_compute_log_manager
  class: NoOpComputeLogManager
"""
"""Added for runs inside the command line: what they print belongs on its terminal, not into Dagster's files."""

LOCK_TAG = "attention-geometry/lock"
"""Tag of a run that names the lock file its process holds as long as it lives."""


def use_instance(home: Home, *, in_process: bool = False) -> dg.DagsterInstance:
    """The Dagster instance of a data root, or the one ``DAGSTER_HOME`` names; also for processes started from here.

    Parameters
    ----------
    home
        The data root.
    in_process
        Whether runs happen in this process and its output shall stay on the terminal.

    Raises
    ------
    UserError
        If ``DAGSTER_HOME`` names no folder.
    """
    os.environ[HOME_VARIABLE] = str(home.root)
    if "DAGSTER_HOME" in os.environ and Path(os.environ["DAGSTER_HOME"]) != home.dagster:
        try:
            return dg.DagsterInstance.get()
        except dg.DagsterInvariantViolationError as error:
            msg = f"{error} Unset DAGSTER_HOME to keep Dagster's records in the data root, or make the folder"
            raise UserError(msg) from error
    home.dagster.mkdir(parents=True, exist_ok=True)
    for name, text in (("dagster.yaml", CONFIGURATION), ("in-process.yaml", CONFIGURATION + IN_PROCESS)):
        if not (home.dagster / name).exists():
            (home.dagster / name).write_text(text, encoding="utf-8")
    os.environ["DAGSTER_HOME"] = str(home.dagster)
    return dg.DagsterInstance.from_config(str(home.dagster), "in-process.yaml" if in_process else "dagster.yaml")


def register_studies(instance: dg.DagsterInstance, home: Home) -> list[str]:
    """Make the partitions those of the studies files, and return their names.

    Raises
    ------
    UserError
        If a studies file has an error.
    """
    names = list(all_studies(home))
    known = set(instance.get_dynamic_partitions(str(studies.name)))
    instance.add_dynamic_partitions(str(studies.name), [name for name in names if name not in known])
    if Path(instance.root_directory) == home.dagster:  # elsewhere another data root may have put them there
        for gone in known - set(names):
            instance.delete_dynamic_partition(str(studies.name), gone)
    return names


@contextmanager
def living_run(home: Home) -> Iterator[dict[str, str]]:
    """Tags for a run of this process, by which other processes can tell whether it still lives."""
    lock = FileLock(_lock_path(home, uuid4().hex))
    Path(lock.lock_file).parent.mkdir(parents=True, exist_ok=True)
    try:
        with lock:
            yield {LOCK_TAG: Path(lock.lock_file).stem}
    finally:
        Path(lock.lock_file).unlink(missing_ok=True)


def bury_dead_runs(instance: dg.DagsterInstance, home: Home) -> list[str]:
    """Mark runs whose process was killed as failed and free the pool slots they held; return their ids."""
    unfinished = dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING])
    dead = [run for run in instance.get_runs(filters=unfinished) if _died(home, run.tags.get(LOCK_TAG))]
    for run in dead:
        instance.report_run_failed(run, "The process of this run ended without finishing it.")
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
    return [run.run_id for run in dead]


def _died(home: Home, lock: str | None) -> bool:
    """Whether a run of the command line no longer holds its lock; of other runs Dagster's daemon takes care."""
    path = _lock_path(home, lock or "none")
    if not path.exists():  # not of this data root
        return False
    try:
        with FileLock(path, timeout=0):
            pass
    except Timeout:
        return False
    path.unlink(missing_ok=True)
    return True


def _lock_path(home: Home, name: str) -> Path:
    return home.root / "locks" / "runs" / f"{name}.lock"
