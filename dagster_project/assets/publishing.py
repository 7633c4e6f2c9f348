"""All pages of a data root as one folder for a static host: the index, reports and comparisons, with relative links."""

import shutil
from pathlib import Path

from dagster_project.assets.report import write_index
from dagster_project.study.home import Home
from storage.errors import UserError
from storage.files.staging import make_staging_path


def publish(home: Home, folder: Path) -> list[Path]:
    """Write the index of all studies, their reports and comparisons into a folder; return the files.

    A folder that was published before is replaced: the new one is built next to it, and two renames exchange them, so
    that the folder is complete at any other moment.

    Raises
    ------
    UserError
        If there is no report, the folder holds other files, or it cannot be written.
    """
    places = (home.index, home.reports, home.comparisons)
    if not any(home.reports.glob("*.html")):
        msg = f"There is no report in {home.reports}; run a study first: attention-geometry run embedded"
        raise UserError(msg)
    if folder.exists() and not folder.is_dir():
        msg = f"{folder} is a file; name a folder to publish in"
        raise UserError(msg)
    if others := sorted({path.name for path in folder.glob("*")} - {place.name for place in places}):
        msg = f"The folder {folder} holds '{others[0]}', which is not a published page; name a new folder"
        raise UserError(msg)
    write_index(home)
    new, old = make_staging_path(folder), make_staging_path(folder)
    try:
        for source in (home.index, *sorted(home.reports.glob("*.html")), *sorted(home.comparisons.glob("*.html"))):
            target = new / source.relative_to(home.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
    except OSError as error:
        msg = f"{folder} cannot be written ({error.strerror}); name another folder"
        raise UserError(msg) from error
    finally:
        for leftover in (new, old):
            shutil.rmtree(leftover, ignore_errors=True)
    return sorted(path for path in folder.rglob("*") if path.is_file())
