"""Opening Dagster's records for a command: damage is reported with its remedy, and records can be rebuilt.

Records are history, not data: losing them loses no result.
"""

import errno
import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.errors import DagsterEventLogInvalidForRun  # Dagster exports no name for it
from dagster_shared.serdes.errors import DeserializationError
from sqlalchemy import event
from sqlalchemy.engine import Dialect, Engine
from sqlalchemy.exc import SQLAlchemyError

from dagster_project.records.registration import mark_dead_runs, register_studies, use_instance
from dagster_project.study.home import Home, is_held
from storage.errors import UserError
from storage.files.places import LocalPlace
from storage.files.staging import delete, set_aside

FULL = {errno.ENOSPC, errno.EDQUOT}
"""System errors of a disk without space."""

LEAST_SPACE = 2**20
"""Bytes that Dagster's records need at least to be written."""

REBUILD = "attention-geometry doctor --rebuild-records"
"""The command that rebuilds the records."""


@contextmanager
def open_records(home: Home) -> Iterator[dg.DagsterInstance]:
    """Open Dagster's records for a command, register all studies, and mark runs of dead processes as failed.

    ``UserError``, with the remedy, if they are damaged or cannot be written, on opening or inside the context.
    """
    with ExitStack() as stack:
        stack.enter_context(_write_quickly())
        try:
            instance = stack.enter_context(use_instance(home))
            register_studies(instance, home)
            mark_dead_runs(instance, home)
        except (UserError, OSError):
            raise
        except Exception as error:
            raise UserError(_describe_error(home, error)) from error
        try:
            yield instance
        except (SQLAlchemyError, DeserializationError, DagsterEventLogInvalidForRun) as error:
            raise UserError(_describe_error(home, error)) from error


@contextmanager
def _write_quickly() -> Iterator[None]:
    """Let SQLite wait for the disk at checkpoints only, and use each connection to a file again for later events.

    Dagster opens a connection for each of the hundreds of events of a run, often several; opening one takes longer than
    writing the event, and closing the last one of a file is a checkpoint. Records stay intact when power fails, and may
    lack the last events: https://sqlite.org/wal.html#performance.
    """
    idle: dict[str, list[_KeptConnection]] = defaultdict(list)

    def take(dialect: Dialect, _record: object, where: list[Any], options: dict[str, Any]) -> "_KeptConnection | None":
        if dialect.name != "sqlite" or where == [":memory:"]:
            return None
        if free := idle[where[0]]:
            return free.pop()
        made = _KeptConnection(*where, **options | {"check_same_thread": False})
        made.execute("PRAGMA synchronous = NORMAL").close()
        made.idle = free
        return made

    event.listen(Engine, "do_connect", take)
    try:
        yield
    finally:
        event.remove(Engine, "do_connect", take)
        for connection in chain.from_iterable(idle.values()):
            sqlite3.Connection.close(connection)


class _KeptConnection(sqlite3.Connection):
    """A connection that is kept for the next use when it is closed."""

    idle: "list[_KeptConnection]"

    def close(self) -> None:
        self.idle.append(self)


def examine_databases(home: Home) -> Iterator[tuple[Path, str | None]]:
    """Yield every database of the data root's own records with its damage in one line, or None."""
    for path in sorted(home.dagster.rglob("*.db")) if is_own(home) else []:
        yield path, _find_damage(path)


def find_unreadable_records(home: Home) -> str | None:
    """Read all runs and events of the data root's own records; the first error in one line, or None."""
    if not home.dagster.is_dir() or not is_own(home):
        return None
    try:
        with use_instance(home) as instance:
            instance.get_dynamic_partitions("study")
            instance.all_instigator_state()
            for record in instance.get_run_records():
                instance.all_logs(record.dagster_run.run_id)
    except Exception as error:  # noqa: BLE001 (damage can raise anything)
        return _shorten_error(error)
    return None


def is_own(home: Home) -> bool:
    """Whether records are stored in the data root, and not in another folder that ``DAGSTER_HOME`` names."""
    return Path(os.environ.get("DAGSTER_HOME", home.dagster)) == home.dagster


def rebuild_records(home: Home) -> None:
    """Replace the data root's own records by new ones with all studies registered and no runs.

    ``UserError`` if the records are not stored in the data root, or a process has a run in progress.
    """
    if not is_own(home):
        raise UserError(
            f"Dagster's records are in {os.environ['DAGSTER_HOME']}, set by DAGSTER_HOME; rebuild them there"
        )
    if any(is_held(lock) for lock in (home.root / "locks" / "runs").glob("*.lock")):
        raise UserError(f"A run with records in {home.dagster} is in progress; wait until it has ended, then run again")
    home.prepare()
    old = set_aside(home.dagster) if home.dagster.exists() else None
    with use_instance(home) as instance:
        register_studies(instance, home)
    if old is not None:
        delete(old)


def _describe_error(home: Home, error: Exception) -> str:
    """Describe an error of the records; the remedy depends on whether the disk is full, or they are damaged."""
    place = home.dagster if is_own(home) else Path(os.environ["DAGSTER_HOME"])
    if _is_disk_full(error, place):
        what = "cannot be written: the disk is full; free space and run again"
    elif not is_own(home):
        what = f"cannot be used ({_shorten_error(error)}); repair them"
    elif isinstance(error, SQLAlchemyError) and not any(why for _, why in examine_databases(home)):
        what = f"cannot be written ({_shorten_error(error)}); make room and run again"
    else:
        what = f"are damaged ({_shorten_error(error)}); rebuild them: {REBUILD}"
    return f"Dagster's records in {place} {what}"


def _is_disk_full(error: BaseException | None, place: Path) -> bool:
    """Whether an error, or its cause, is for lack of space; SQLite also fails in other ways if there is none."""
    if LocalPlace(place).measure_free_space() < LEAST_SPACE:
        return True
    while error is not None:
        inner = getattr(error, "orig", None) or error
        if getattr(inner, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL or getattr(inner, "errno", None) in FULL:
            return True
        error = error.__cause__ or error.__context__
    return False


def _shorten_error(error: Exception) -> str:
    """The first line of an error; for one of a database, the message of the database."""
    said = str(getattr(error, "orig", None) or error).strip().splitlines()
    return said[0] if said else type(error).__name__


def _find_damage(path: Path) -> str | None:
    """The damage of an SQLite database in one line; None if there is none."""
    try:
        # where nothing can be written beside it, SQLite opens a database only as one that nobody changes
        frozen = "" if os.access(path.parent, os.W_OK) else "&immutable=1"
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{frozen}", uri=True)) as connection:
            rows = connection.execute("PRAGMA integrity_check(1)").fetchall()
    except sqlite3.Error as error:
        return str(error)
    return None if rows == [("ok",)] else " ".join(str(rows[0][0]).split())
