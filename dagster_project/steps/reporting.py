"""Writing pages, pictures and tables about what is landed, in their places of the data root.

Holds one function per thing a user asks for.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagster_project.study.home import Home
from dagster_project.study.studies import Study, find_study
from storage.errors import UserError

if TYPE_CHECKING:
    import duckdb

    from reports.page import ReportSummary

REPORT_VERSION = 3
"""Version of the page of a study; raised when what it shows changes, so that it is written anew."""

HEAD = 2**14
"""Bytes at the beginning of a page that hold what it says of itself."""

LONGEST = 230
"""Bytes of a file name that every file system takes, with some left for what is written aside."""


def write_study_report(home: Home, name: str, study: Study) -> "ReportSummary":
    """Write the HTML report of a landed study, and the index of all studies.

    Raises
    ------
    UserError
        If the study is not landed, or a file cannot be written.
    """
    from reports.page import write_report

    with _connected(home) as connection:
        path = home.report(name)
        known = connection.execute("SELECT provenance FROM studies WHERE study = ?", [name]).fetchall()
        origin = json.dumps(report_origin(study, json.loads(known[0][0]) if known else {}))
        link = _link(home.index, path.parent)
        written = write_report(connection, name, path, map_n=study.analysis.map_n, home=link, origin=origin)
        _write_index(connection, home)
    return written


def report_origin(study: Study, landed: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the page of a study, as JSON, given the provenance that its database carries."""
    digest = hashlib.sha256(json.dumps(landed, sort_keys=True).encode()).hexdigest()
    return {"version": REPORT_VERSION, "map_n": study.analysis.map_n, "landed": digest}


def origin_of_report(path: Path) -> dict[str, Any]:
    """What the page at ``path`` was made from, as ``report_origin``; nothing if it does not say.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    with path.open("rb") as page:
        head = page.read(HEAD).decode(errors="replace")
    found = re.search(r'<meta name="attention-geometry" content="([^"]*)">', head)
    try:
        origin = json.loads(unescape(found[1])) if found else {}
    except ValueError:
        return {}
    return origin if isinstance(origin, dict) else {}


def write_comparison(home: Home, names: Sequence[str]) -> Path:
    """Write a page that sets studies side by side, and the index of all studies; return where the page lies.

    Raises
    ------
    UserError
        If fewer than two studies are named, one is unknown or not landed, or a file cannot be written.
    """
    from reports.compare import write_comparison as write

    names = list(dict.fromkeys(names))
    if len(names) < 2:
        msg = "A comparison needs two studies or more: attention-geometry compare A B"
        raise UserError(msg)
    for name in names:
        find_study(home, name)
    path = home.comparison(names)
    if len(path.name) > LONGEST:
        msg = f"The names of {len(names)} studies are too long for one file name; compare fewer at a time"
        raise UserError(msg)
    with _connected(home) as connection:
        write(connection, names, path, home=_link(home.index, path.parent), reports=_reports(home, path.parent))
        _write_index(connection, home)
    return path


def write_index(home: Home) -> None:
    """Write the index of all studies.

    Raises
    ------
    UserError
        If it cannot be written.
    """
    with _connected(home) as connection:
        _write_index(connection, home)


def export(home: Home, name: str, *, images: Path | None, tables: Path | None) -> list[Path]:
    """Write the charts of a landed study as pictures and its tables as files; return which were written.

    Raises
    ------
    UserError
        If the study is unknown or not landed, or a folder cannot be written.
    """
    from reports.export import write_images, write_tables
    from reports.figures import find_source, sections

    map_n = find_study(home, name).analysis.map_n
    with _connected(home) as connection:
        found = sections(find_source(connection, name, map_n=map_n))
    written = [] if images is None else write_images(found, images)
    return written + ([] if tables is None else write_tables(found, tables))


@contextmanager
def _connected(home: Home) -> "Iterator[duckdb.DuckDBPyConnection]":
    from storage.warehouse.connection import connect

    with closing(connect(home.warehouse)) as connection:
        yield connection


def _write_index(connection: "duckdb.DuckDBPyConnection", home: Home) -> None:
    from reports.index import write_index

    folder = home.index.parent
    comparisons = {
        ", ".join(path.stem.split("+")): _link(path, folder) for path in sorted(home.comparisons.glob("*.html"))
    }
    write_index(connection, home.index, reports=_reports(home, folder), comparisons=comparisons)


def _reports(home: Home, folder: Path) -> dict[str, str]:
    """Links from a page in ``folder`` to the reports that there are, by study."""
    return {path.stem: _link(path, folder) for path in sorted(home.reports.glob("*.html"))}


def _link(path: Path, folder: Path) -> str:
    """A link that leads from a page in ``folder`` to ``path``, from a disk too."""
    from urllib.parse import quote

    return quote(Path(os.path.relpath(path, folder)).as_posix())
