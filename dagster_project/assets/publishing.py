"""A folder for a static host: all pages of a data root with their links, or the tables of its studies as a data set."""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from dagster_project.assets.report import write_index
from dagster_project.study.home import Home
from storage.errors import UserError
from storage.files.staging import explain_unwritable, recover_folder, stage_folder
from storage.files.user_paths import hash_regular_file, read_regular_file
from storage.warehouse.connection import connect
from storage.warehouse.dataset import write_dataset

MARKER = "published.json"
"""File of a published folder that lists its other files, with the SHA-256 digest of each."""

LARGEST = 2**30
"""Largest size of a page, in bytes."""


def publish(home: Home, folder: Path, *, overwrite: bool = False) -> list[Path]:
    """Write the index of all studies, their reports, families and comparisons into a folder; return the files.

    A folder that was published before is replaced as a whole: the new one is built next to it, and then exchanged. If
    the process is killed meanwhile, the next call undoes that first. Files of an earlier publication that were changed
    since are replaced only with ``overwrite``.

    ``UserError`` if there is no report, a page is not a regular file, the folder contains other files or changed ones,
    or it cannot be written. The folder is as it was.
    """
    if not any(home.reports.glob("*.html")):
        raise UserError(f"There is no report in {home.reports}; run a study first: attention-geometry run embedded")
    _prepare(folder, overwrite=overwrite)
    write_index(home)
    folders = (home.reports, home.families, home.comparisons)
    pages = [home.index, *(page for folder in folders for page in sorted(folder.glob("*.html")))]
    contents = {page.relative_to(home.root).as_posix(): _read_page(page) for page in pages}
    with _exchange(folder) as new:
        for name, content in contents.items():
            (new / name).parent.mkdir(exist_ok=True)
            (new / name).write_bytes(content)
    return sorted(folder / name for name in contents)


def publish_dataset(
    home: Home, folder: Path, studies: Collection[str] = (), *, licence: str | None = None, overwrite: bool = False
) -> list[Path]:
    """Write the tables of landed studies, of all if none is named, into a folder, as ``write_dataset`` describes.

    The folder is replaced as by ``publish``, and its files are returned. ``UserError`` if a study has not landed, or as
    there.
    """
    _prepare(folder, overwrite=overwrite)
    with closing(connect(home.warehouse, studies=studies or None, unlocked=True, described=False)) as connection:
        landed = [study for (study,) in connection.execute("SELECT study FROM studies ORDER BY study").fetchall()]
        if missing := sorted({*studies} - {*landed}) or ([] if landed else ["embedded"]):
            raise UserError(
                f"The study '{missing[0]}' has not landed; run it first: attention-geometry run {missing[0]}"
            )
        with _exchange(folder) as new:
            write_dataset(connection, landed, new, licence=licence)
    return sorted(path for path in folder.iterdir() if path.name != MARKER)


def _prepare(folder: Path, *, overwrite: bool) -> None:
    """Undo what a killed process left of replacing a folder, and refuse to replace what was not published.

    ``UserError`` if it has a file that no publication wrote, a link, or, unless they may be overwritten, a file changed
    since.
    """
    with explain_unwritable(folder):
        recover_folder(folder)
        if folder.exists():
            _refuse_foreign_files(folder, overwrite=overwrite)


def _refuse_foreign_files(folder: Path, *, overwrite: bool) -> None:
    if not folder.is_dir():
        raise UserError(f"{folder} is a file; name a folder to publish in")
    listed = _read_marker(folder)
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not path.is_dir():
            if path.is_symlink() or name not in {*listed, MARKER}:
                raise UserError(f"The folder {folder} holds '{name}', which was not published; name a new folder")
            if name in listed and not overwrite and hash_regular_file(path) != listed[name]:
                raise UserError(
                    f"{path} was changed after it was published; add --overwrite to replace it, or name a new folder"
                )


def _read_marker(folder: Path) -> Mapping[str, str]:
    """The names and digests that the marker of a folder lists; empty if it has none."""
    try:
        listed = json.loads(read_regular_file(folder / MARKER, LARGEST, follow=False))["files"]
        return {str(name): str(digest) for name, digest in listed.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{folder / MARKER} does not list what was published there; name a new folder") from error


def _read_page(page: Path) -> bytes:
    """The content of a page of the data root, which is neither a link nor in a folder that is one."""
    try:
        if page.parent.is_symlink():
            raise UserError(f"{page.parent} is a link, which is not published; put the folder itself in its place")
        return read_regular_file(page, LARGEST, follow=False)
    except OSError as error:
        why = "it is a link" if page.is_symlink() else error.strerror
        raise UserError(
            f"The page {page} cannot be published ({why}); remove it, or write it again: attention-geometry report"
        ) from error


@contextmanager
def _exchange(folder: Path) -> Iterator[Path]:
    """Yield a new folder that takes the place of ``folder`` after the context, with a marker that lists its files."""
    with explain_unwritable(folder), stage_folder(folder) as new:
        yield new
        files = sorted(path for path in new.rglob("*") if path.is_file())
        listed = {path.relative_to(new).as_posix(): hash_regular_file(path) for path in files}
        (new / MARKER).write_text(json.dumps({"files": listed}, indent=1), encoding="utf-8")
