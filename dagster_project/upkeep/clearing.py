"""Removing: what killed processes left behind, and all that is stored of a study.

Holds ``leftovers``, ``clean`` and ``clear_study``.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from dagster_project.study.home import Home, is_held
from dagster_project.study.studies import NAME, find_study
from storage.errors import UserError
from storage.files.locks import exclusive
from storage.files.places import Place, bytes_on_disk, remove

UNFINISHED = re.compile(r"\.[0-9a-f]{32}\.(partial|replaced)$")
"""What ``storage.files.staging`` adds to the name of what is being written, or set aside."""

SPILLED = re.compile(r"\.[0-9a-f]{32}\.partial(\.[a-z.]+)?$")
"""The same, of a database, to whose name DuckDB adds when it writes beside it."""

BY_PROCESS = re.compile(r"\.(?:.+\.(\d+)\.partial|writable-(\d+))")
"""A page, or a probe, that the process of this number is writing."""

NEEDED = "a run that has not ended may need it; if Dagster's records lie elsewhere, set DAGSTER_HOME"
"""Why the lock of a run stays."""


@dataclass(frozen=True)
class Removed:
    """What became of one thing that could be removed."""

    path: Place
    bytes: int
    """What it took; 0 if it is not a file."""
    kept: str = ""
    """Why it is still there; empty if it is gone."""


def leftovers(home: Home) -> list[Path]:
    """Files and folders that are half-written, set aside or locks of runs that ended; some may be in work now.

    What this program does not call so is not looked at: stores may lie in a folder that others use, too.
    """
    of_studies = [path for paths in _of_studies(home).values() for path in paths]
    return sorted([*of_studies, *_of_none(home), *_dead_locks(home)])


def clean(home: Home) -> Iterator[Removed]:
    """Remove what killed processes left; what a living one works on stays, and so does what waits for a whole store.

    Runs of the command line that were killed are marked as failed in Dagster's records, and their pool slots freed.
    """
    locks = {path: bytes_of(path) for path in _dead_locks(home)}
    _bury(home)
    for path, size in locks.items():
        yield Removed(path, 0, NEEDED) if path.exists() else Removed(path, size)
    for path in _of_none(home):
        yield _remove_unowned(home, path)
    for study, paths in _of_studies(home).items():
        yield from _clean_study(home, study, paths)


def clear_study(home: Home, name: str) -> Iterator[Removed]:
    """Remove all that is stored of a study, but its entry in the studies file and Dagster's records of its runs.

    A process killed in between leaves less of it, and clearing again removes the rest. Who has the database open keeps
    reading it. Pages that compare the study with others go too.

    Raises
    ------
    UserError
        If there is neither a study of this name nor anything stored of it, or another process works on it.
    """
    if not NAME.fullmatch(name) or not what_is_stored(home, name):
        find_study(home, name)
    with home.claimed(name):
        for path in what_is_stored(home, name):
            if path.exists():  # what lay in a store has gone with it
                size = bytes_of(path)
                _delete(path)
                yield Removed(path, size)
        _write_entries(home)


def what_is_stored(home: Home, name: str) -> list[Place]:
    """The places of a study that hold anything, in the order in which they are removed: what others lead to first."""
    from storage.warehouse.connection import database

    compared = [page for page in sorted(home.comparisons.glob("*.html")) if name in page.stem.split("+")]
    stores: list[Place] = [home.summaries(name), home.metrics(name), home.tensors(name)]
    left = _of_studies(home).get(name, [])
    places = [home.report(name), *compared, database(home.warehouse, name), *stores, *left]
    return [path for path in places if path.exists()]


def bytes_of(path: Place) -> int:
    """Bytes of a file, a folder or a store."""
    return path.stat().st_size if isinstance(path, Path) and path.is_file() else bytes_on_disk(path)


def _of_studies(home: Home) -> dict[str, list[Path]]:
    """What is half-written or set aside of each study, by the names that ``storage.files.staging`` gives; places ascending."""
    found: dict[str, list[Path]] = {}
    for folder, kind, mark in _folders(home):
        for path in sorted(folder.glob("*")):
            name = mark.sub("", path.name)
            study = name.removesuffix(kind)
            if not name.endswith(kind) or not NAME.fullmatch(study):
                continue
            inside = (part for part in sorted(path.rglob("*.partial")) if UNFINISHED.search(part.name))
            found.setdefault(study, []).extend([path] if name != path.name else inside)
    return {study: paths for study, paths in found.items() if paths}


def _folders(home: Home) -> Iterator[tuple[Path, str, re.Pattern[str]]]:
    """Where studies have files, what follows a study's name there, and what follows that while they are unfinished."""
    for elsewhere, part in ((home.tensor_root, "tensors"), (home.metric_root, "metrics")):
        place = elsewhere or home.root / part
        if isinstance(place, Path):
            yield place, ".zarr", UNFINISHED
    yield home.root / "summaries", "", UNFINISHED
    yield home.warehouse, "", SPILLED


def _of_none(home: Home) -> list[Path]:
    """What is half-written but no study's: pages, reports, probes, the studies file, the script of the plain shell."""
    from storage.warehouse.connection import ENTRY

    folders = (home.root, home.reports, home.comparisons, home.root / "refreshes")
    pages = (path for folder in folders for path in folder.glob(".*") if BY_PROCESS.fullmatch(path.name))
    entries = (path for path in home.warehouse.glob(f".{ENTRY}.*") if UNFINISHED.search(path.name))
    return sorted([*pages, *entries, *home.root.glob(f"{home.studies_file.name}.partial")])


def _clean_study(home: Home, study: str, paths: list[Path]) -> Iterator[Removed]:
    """Remove leftovers of one study under its lock."""
    with ExitStack() as stack:
        try:
            stack.enter_context(home.claimed(study))
        except UserError:
            yield from (Removed(path, 0, "in work") for path in paths)
            return
        for path in paths:
            if path.name.endswith(".replaced") and not _replacement_is_whole(home, study):
                yield Removed(path, 0, f"until the store that replaces it is whole: attention-geometry run {study}")
            elif path.exists():
                size = bytes_of(path)
                _delete(path)
                yield Removed(path, size)


def _replacement_is_whole(home: Home, study: str) -> bool:
    """Whether the tensor store of a study has all its sequences."""
    from storage.zarr.arrays import TENSORS
    from storage.zarr.sequences import SequenceStore

    try:
        return not SequenceStore.open(home.tensors(study), TENSORS).missing()
    except UserError:
        return False


def _remove_unowned(home: Home, path: Path) -> Removed:
    """Remove what belongs to no study, unless the process that writes it lives."""
    from reports.whole import lives
    from storage.warehouse.connection import write_entry

    process = BY_PROCESS.fullmatch(path.name)
    if process and lives(int(process[1] or process[2])):
        return Removed(path, 0, "in work")
    size = bytes_of(path)
    if process:
        path.unlink(missing_ok=True)
    elif path.parent == home.warehouse:
        write_entry(home.warehouse)  # removes it under its lock
    else:
        with exclusive(home.root / "studies.lock", str(home.studies_file), wait=10):
            path.unlink(missing_ok=True)
    return Removed(path, size)


def _bury(home: Home) -> None:
    """Mark killed runs as failed and free their pool slots."""
    from dagster_project.records.registration import bury_dead_runs, use_instance

    if home.dagster.is_dir() or "DAGSTER_HOME" in os.environ:
        with use_instance(home, in_process=True) as instance:
            bury_dead_runs(instance, home)


def _dead_locks(home: Home) -> list[Path]:
    """Locks of runs whose process holds them no longer."""
    return [path for path in (home.root / "locks" / "runs").glob("*.lock") if not is_held(path)]


def _delete(path: Place) -> None:
    """Delete a file, or a folder, which is renamed first unless it is what another was renamed to."""
    if isinstance(path, Path) and path.is_file():
        path.unlink()
    elif isinstance(path, Path) and path.name.endswith((".partial", ".replaced", ".tmp")):
        shutil.rmtree(path)
    else:
        remove(path)


def _write_entries(home: Home) -> None:
    """Write anew what lists all studies: the page, and the script of the plain shell."""
    from dagster_project.steps.reporting import write_index
    from storage.warehouse.connection import write_entry

    if home.index.exists():
        write_index(home)
    if home.warehouse.is_dir():
        write_entry(home.warehouse)
