"""All pages of a data root as one folder for a static host: index, reports, families, comparisons, with links."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from dagster_project.assets.report import write_index
from dagster_project.study.home import Home
from storage.errors import UserError
from storage.files.staging import explain_unwritable, recover_folder, stage_folder
from storage.files.user_paths import read_regular_file

MARKER = "published.json"
"""File of a published folder that lists its other files, with the SHA-256 digest of each."""

LARGEST = 2**30
"""Largest size of a page, in bytes."""


def publish(home: Home, folder: Path, *, overwrite: bool = False) -> list[Path]:
    """Write the index of all studies, their reports, families and comparisons into a folder; return the files.

    A folder that was published before is replaced as a whole: the new one is built next to it, and then exchanged. If
    the process is killed meanwhile, the next call undoes that first.

    Parameters
    ----------
    home
        The data root.
    folder
        The folder.
    overwrite
        Whether files of an earlier publication are replaced if they were changed since.

    Raises
    ------
    UserError
        If there is no report, a page is not a regular file, the folder contains other files or changed ones, or it
        cannot be written. The folder is as it was.
    """
    if not any(home.reports.glob("*.html")):
        msg = f"There is no report in {home.reports}; run a study first: attention-geometry run embedded"
        raise UserError(msg)
    with explain_unwritable(folder):
        recover_folder(folder)
        refuse_foreign_files(folder, overwrite=overwrite)
    write_index(home)
    folders = (home.reports, home.families, home.comparisons)
    pages = [home.index, *(page for folder in folders for page in sorted(folder.glob("*.html")))]
    contents = {page.relative_to(home.root).as_posix(): _read_page(page) for page in pages}
    with explain_unwritable(folder):
        _exchange(folder, contents)
    return sorted(folder / name for name in contents)


def refuse_foreign_files(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder to publish in unless it is empty, absent, or as an earlier publication left it.

    Raises
    ------
    UserError
        If it has a file that no publication wrote, a link, or, unless they may be overwritten, a file changed since.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        msg = f"{folder} is a file; name a folder to publish in"
        raise UserError(msg)
    listed = _read_marker(folder)
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not path.is_dir():
            if path.is_symlink() or name not in {*listed, MARKER}:
                msg = f"The folder {folder} holds '{name}', which is not a published page; name a new folder"
                raise UserError(msg)
            if name in listed and not overwrite and _digest(read_regular_file(path, LARGEST)) != listed[name]:
                msg = f"{path} was changed after it was published; add --overwrite to replace it, or name a new folder"
                raise UserError(msg)


def _read_marker(folder: Path) -> Mapping[str, str]:
    """The names and digests that the marker of a folder lists; empty if it has none."""
    try:
        listed = json.loads(read_regular_file(folder / MARKER, LARGEST, follow=False))["files"]
        return {str(name): str(digest) for name, digest in listed.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"{folder / MARKER} does not list what was published there; name a new folder"
        raise UserError(msg) from error


def _read_page(page: Path) -> bytes:
    """The content of a page of the data root, which is neither a link nor in a folder that is one."""
    try:
        if page.parent.is_symlink():
            msg = f"{page.parent} is a link, which is not published; put the folder itself in its place"
            raise UserError(msg)
        return read_regular_file(page, LARGEST, follow=False)
    except OSError as error:
        why = "it is a link" if page.is_symlink() else error.strerror
        msg = f"The page {page} cannot be published ({why}); remove it, or write it again: attention-geometry report"
        raise UserError(msg) from error


def _exchange(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Replace a folder by one with these files and a marker that lists them."""
    listed = {name: _digest(content) for name, content in contents.items()}
    marker = json.dumps({"files": listed}, indent=1).encode()
    with stage_folder(folder) as new:
        for name, content in {**contents, MARKER: marker}.items():
            target = new / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
