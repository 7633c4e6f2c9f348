"""Removal of leftovers of killed processes, and of all files of a study."""

import logging
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from dagster_project.assets.catalogue import ASSETS
from dagster_project.study.home import Home, is_held, is_valid_name
from dagster_project.study.studies import find_study
from storage.errors import UserError
from storage.files.places import LocalPlace, Place
from storage.files.staging import UNFINISHED, is_being_written

logger = logging.getLogger(__name__)

SPILLED = re.compile(r"\.[0-9a-f]{32}\.partial(\.[a-z.]+)?$")
"""The suffix of a database that is being written: DuckDB extends it when it spills."""

IN_USE = "in use by a running process"

NEEDED = "an unfinished run may need it; if Dagster's records are in another folder, set DAGSTER_HOME"
"""Why the lock of a run is kept."""


@dataclass(frozen=True)
class Removal:
    """The outcome for one file or folder that could be removed."""

    path: Place
    bytes: int
    kept: str = ""
    """Why it was kept; empty if it was removed."""


def find_leftovers(home: Home) -> list[Path]:
    """Files and folders that are partially written or set aside, and locks of ended runs; some may be in use.

    Only names that this program gives are considered: stores may be in a folder that others use as well.
    """
    of_studies = [path for paths in _find_study_leftovers(home).values() for path in paths]
    return sorted([*of_studies, *_find_shared_leftovers(home), *_find_dead_locks(home)])


def clean(home: Home) -> Iterator[Removal]:
    """Remove leftovers of killed processes; files in use and replaced stores whose successor is incomplete are kept.

    Then killed runs of the command line are marked as failed in Dagster's records, and their pool slots freed; if the
    records cannot be written, a warning is logged.
    """
    locks = _find_dead_locks(home)
    for path in _find_shared_leftovers(home):
        yield Removal(LocalPlace(path), 0, IN_USE) if is_being_written(path) else _remove_place(LocalPlace(path))
    for study, paths in _find_study_leftovers(home).items():
        yield from _clean_study(home, study, paths)
    _mark_killed_runs(home)
    for lock in locks:
        yield Removal(LocalPlace(lock), 0, NEEDED if lock.exists() else "")


def clear_study(home: Home, name: str) -> Iterator[Removal]:
    """Remove all files of a study, but not its entry in the studies file or Dagster's records of its runs.

    If the process is killed, clearing again removes the rest. Processes that have the database open keep reading it.
    Pages that compare the study with others are removed too.

    ``UserError`` if there is neither a study nor any file of this name, or another process is working on the study.
    """
    if not list_stored(home, name):
        find_study(home, name)
    with home.reserve(name), home.claim(name):
        home.refuse_links(name)
        for place in list_stored(home, name):
            if place.exists():  # leftovers inside a store have been removed with it
                yield _remove_place(place)
        _write_entries(home)


def list_stored(home: Home, name: str) -> list[Place]:
    """The existing files and folders of a study in the order of removal: those that refer to others first.

    What cannot be the name of a study has none.
    """
    if not is_valid_name(name):
        return []
    compared = [page for page in sorted(home.comparisons.glob("*.html")) if name in page.stem.split("+")]
    pages = [home.families / f"{name}.html", *compared]
    own = dict.fromkeys(place for asset in reversed(ASSETS) for place in asset.places(home, name))
    left = _find_study_leftovers(home).get(name, [])
    return [place for place in (*map(LocalPlace, pages), *own, *map(LocalPlace, left)) if place.exists()]


def _find_study_leftovers(home: Home) -> dict[str, list[Path]]:
    """What is partially written or set aside of each study, sorted by path."""
    leftovers: dict[str, list[Path]] = {}
    folders = [(home.root / "parts", "", UNFINISHED), (home.warehouse, "", SPILLED)]
    for place, kind in ((home.locate_stores("tensors"), ".zarr"), (home.locate_stores("metrics"), ".parts")):
        if isinstance(place, LocalPlace):
            folders.append((place.path, kind, UNFINISHED))
    for folder, kind, mark in folders:
        for path in sorted(folder.glob("*")):
            name = mark.sub("", path.name)
            study = name.removesuffix(kind)
            if not name.endswith(kind) or not is_valid_name(study):
                continue
            inside = (part for part in sorted(path.rglob("*.partial")) if UNFINISHED.search(part.name))
            leftovers.setdefault(study, []).extend([path] if name != path.name else inside)
    return {study: paths for study, paths in leftovers.items() if paths}


def _find_shared_leftovers(home: Home) -> list[Path]:
    """Partially written files that belong to no study: pages, reports, the studies file, the script of the shell."""
    from storage.warehouse.connection import ENTRY

    made: dict[Path, tuple[str, ...]] = {home.root: ("index.html", "studies.yaml"), home.root / "refreshes": (".json",)}
    made |= dict.fromkeys((home.reports, home.families, home.comparisons), (".html",))
    written = [
        path
        for folder, endings in made.items()
        for path in folder.glob("*.partial")
        if UNFINISHED.sub("", path.name).endswith(endings)
    ]
    scripts = home.warehouse.glob(f".{ENTRY}.*")
    return sorted(path for path in (*written, *scripts) if UNFINISHED.search(path.name))


def _clean_study(home: Home, study: str, paths: list[Path]) -> Iterator[Removal]:
    """Remove leftovers of one study under its lock."""
    with ExitStack() as stack:
        try:
            stack.enter_context(home.claim(study))
        except UserError:
            yield from (Removal(LocalPlace(path), 0, IN_USE) for path in paths)
            return
        except OSError as error:  # no space or no permission for the lock
            yield from (Removal(LocalPlace(path), 0, f"its study cannot be locked: {error.strerror}") for path in paths)
            return
        for path in paths:
            if path.name.endswith(".replaced") and not _is_replacement_complete(home, study):
                yield Removal(
                    LocalPlace(path), 0, f"until the store that replaces it is complete: attention-geometry run {study}"
                )
            elif path.exists():
                yield _remove_place(LocalPlace(path))


def _is_replacement_complete(home: Home, study: str) -> bool:
    """Whether the tensor store of a study has all its sequences."""
    from storage.zarr.arrays import TENSORS
    from storage.zarr.sequences import SequenceStore

    try:
        return not SequenceStore.open(home.tensors(study), TENSORS).find_missing()
    except UserError:
        return False


def _remove_place(place: Place) -> Removal:
    """Remove a file or folder."""
    size = place.measure_size()
    try:
        place.remove()
    except OSError as error:
        return Removal(place, 0, f"it cannot be removed: {error.strerror}")
    return Removal(place, size)


def _mark_killed_runs(home: Home) -> None:
    """Mark killed runs as failed and free their pool slots, if Dagster's records can be written."""
    from dagster_project.records.opening import open_records

    if home.dagster.is_dir() or "DAGSTER_HOME" in os.environ:
        try:
            with open_records(home):
                pass
        except (UserError, OSError) as error:
            why = " ".join(str(error).split())
            logger.warning("Killed runs could not be marked as failed; the next run does it: %s", why)


def _find_dead_locks(home: Home) -> list[Path]:
    """Locks of runs that no process holds any more."""
    return [path for path in (home.root / "locks" / "runs").glob("*.lock") if not is_held(path)]


def _write_entries(home: Home) -> None:
    """Rewrite the two files that list all studies: the index page, and the script of the plain shell."""
    from dagster_project.assets.report import write_index
    from storage.warehouse.connection import write_entry

    if home.index.exists():
        write_index(home)
    if home.warehouse.is_dir():
        write_entry(home.warehouse)
