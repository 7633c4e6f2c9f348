"""The asset ``report``, and the other pages, pictures and tables about landed studies."""

import json
import os
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache, partial
from html import unescape
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from dagster_project.assets.asset import (
    MISSING,
    UNREADABLE,
    Asset,
    AssetResult,
    Markdown,
    Provenance,
    Work,
    compute_digest,
    digest_code,
    wrap_place,
)
from dagster_project.study.families import Family
from dagster_project.study.home import Home
from dagster_project.study.settings import Study, find_twin_name
from dagster_project.study.studies import find_study
from storage.errors import UserError
from storage.files.places import LocalPlace
from storage.files.user_paths import open_regular_file
from storage.warehouse.connection import connect, locate_database, open_database, read_provenance
from storage.warehouse.landing import land_family

if TYPE_CHECKING:
    import duckdb

    from reports.families.figures import AskFamily

HEAD = 2**14
"""Bytes at the beginning of a page that include its description of what it was made from."""

LONGEST = 200
"""Longest file name in bytes: every file system accepts it, also with the suffix that it has while it is written."""


def make_report(work: Work) -> AssetResult:
    """Write the page of a landed study, and the index of all studies.

    ``UserError`` if the study is not landed, or a file cannot be written.
    """
    from reports.page import write_report

    home, name, study = work.home, work.name, work.study
    with _connect(home, _list_shown(home, name, study)) as connection:
        path = home.report(name)
        known = connection.execute("SELECT provenance FROM studies WHERE study = ?", [name]).fetchall()
        origin = json.dumps(build_report_origin(study, json.loads(known[0][0]) if known else {}))
        link = _build_link(home.index, path.parent)
        written = write_report(connection, name, path, map_n=study.analysis.map_n, home=link, origin=origin)
    write_index(home)
    return AssetResult(
        {"path": written.path, "index": home.index, "charts": written.charts, "bytes": written.bytes}
        | {
            title: Markdown(f"![{title}](data:image/png;base64,{b64encode(png).decode()})")
            for title, png in written.previews.items()
        }
    )


@cache
def compute_report_version() -> str:
    """A digest of the code of pages: the package ``reports``, queries included, and views and macros that they use."""
    return digest_code(files("reports"), files("sql") / "views", files("sql") / "macros")


def _list_shown(home: Home, name: str, study: Study) -> set[str]:
    """The studies that the page of a study shows: itself, its twin, and the one that it was compared with as it landed.

    All others would make each query take longer.
    """
    compared = (read_provenance(home.warehouse, name) or {}).get("twin")
    twins = {find_twin_name(name, study), compared["name"] if isinstance(compared, dict) else None}
    return {name, *(twin for twin in twins if isinstance(twin, str))}


def build_report_origin(study: Study, landed: Mapping[str, Any]) -> dict[str, Any]:
    """What the page of a study is made from, as JSON; ``landed`` is the provenance that its database contains."""
    return {"version": compute_report_version(), "map_n": study.analysis.map_n, "landed": compute_digest(landed)}


def read_report_origin(path: Path) -> dict[str, Any]:
    """What the page at ``path`` was made from, as ``build_report_origin`` gives it; empty if the page does not say."""
    with open_regular_file(path) as page:
        head = page.read(HEAD).decode(errors="replace")
    match = re.search(r'<meta name="attention-geometry" content="([^"]*)">', head)
    try:
        origin = json.loads(unescape(match[1])) if match else {}
    except ValueError:
        return {}
    return origin if isinstance(origin, dict) else {}


def write_comparison(home: Home, names: Sequence[str]) -> Path:
    """Write a page that compares studies, and the index of all studies; return the path of the page.

    ``UserError`` if fewer than two studies are named, one is unknown or not landed, or a file cannot be written.
    """
    from reports.overviews import write_comparison as write

    names = list(dict.fromkeys(names))
    if len(names) < 2:
        raise UserError("A comparison needs two studies or more: attention-geometry compare A B")
    for name in names:
        find_study(home, name)
    path = home.comparison(names)
    if len(path.name) > LONGEST:
        raise UserError(f"The names of {len(names)} studies are too long for one file name; compare fewer at a time")
    with _connect(home, names) as connection, _put_together(home, names) as together:
        write(
            connection,
            names,
            path,
            home=_build_link(home.index, path.parent),
            reports=_build_report_links(home, path.parent),
            together=together,
        )
    write_index(home)
    return path


@contextmanager
def _put_together(home: Home, names: Sequence[str]) -> "Iterator[AskFamily]":
    """The tables of a family of some studies that lie along no axis, which are removed afterwards."""
    from dagster_project.analysis.families import compute_family
    from reports.queries import ask

    family = Family("compared", "", {name: name for name in names})
    landed = {name: name if locate_database(home.warehouse, name).exists() else None for name in names}
    with TemporaryDirectory() as folder:
        land_family(Path(folder), family.name, compute_family(family, home.warehouse, landed))
        with open_database(locate_database(Path(folder), family.name)) as connection:
            connection.execute("USE it")
            yield partial(ask, connection, family=family.name)


def write_family_page(home: Home, name: str, origin: Mapping[str, Any]) -> Path:
    """Write the page of a family whose tables have landed, and the index of all studies; return the path of the page.

    ``origin`` is what the page is made from, as ``read_report_origin`` gives it. ``UserError`` if the warehouse holds
    nothing of the family, or a file cannot be written.
    """
    from reports.overviews import write_family

    path = home.families / f"{name}.html"
    links = _build_report_links(home, path.parent)
    link = _build_link(home.index, path.parent)
    with _connect(home, [name]) as connection:
        write_family(connection, name, path, home=link, reports=links, origin=json.dumps(origin))
    write_index(home)
    return path


def write_index(home: Home) -> None:
    """Write the index of all studies; ``UserError`` if it cannot be written."""
    from reports.overviews import write_index as write

    folder = home.index.parent
    comparisons = {
        ", ".join(path.stem.split("+")): _build_link(path, folder) for path in sorted(home.comparisons.glob("*.html"))
    }
    families = {path.stem: _build_link(path, folder) for path in sorted(home.families.glob("*.html"))}
    reports = _build_report_links(home, folder)
    with _connect(home) as connection:
        write(connection, home.index, reports=reports, comparisons=comparisons, families=families)


def export(home: Home, name: str, *, images: Path | None, tables: Path | None, overwrite: bool = False) -> list[Path]:
    """Write the charts of a landed study as pictures and its tables as files; return the paths of the files.

    ``UserError`` if the study is unknown or not landed, a folder cannot be written, or files exist and are not to be
    overwritten.
    """
    from reports.export import write_images, write_tables
    from reports.figures import find_source
    from reports.page import build_sections

    study = find_study(home, name)
    with _connect(home, _list_shown(home, name, study)) as connection:
        sections_of_study = build_sections(find_source(connection, name, map_n=study.analysis.map_n))
    written = [] if images is None else write_images(sections_of_study, images, overwrite=overwrite)
    return written + ([] if tables is None else write_tables(sections_of_study, tables, overwrite=overwrite))


def _connect(home: Home, studies: Iterable[str] | None = None) -> "closing[duckdb.DuckDBPyConnection]":
    return closing(connect(home.warehouse, studies=studies, described=False))


def _build_report_links(home: Home, folder: Path) -> dict[str, str]:
    """Links from a page in ``folder`` to the existing reports, by study."""
    return {path.stem: _build_link(path, folder) for path in sorted(home.reports.glob("*.html"))}


def _build_link(path: Path, folder: Path) -> str:
    """A relative link from a page in ``folder`` to ``path``, which also works if pages are opened from a disk."""
    from urllib.parse import quote

    return quote(Path(os.path.relpath(path, folder)).as_posix())


def _compare(work: Work) -> tuple[Provenance | str, Provenance | None]:
    path = work.home.report(work.name)
    if not path.exists():
        return MISSING, None
    now = None if work.landed is None else _parse_origin(build_report_origin(work.study, work.landed))
    try:
        return _parse_origin(read_report_origin(path)), now
    except OSError:
        return UNREADABLE, now


def _parse_origin(origin: Mapping[str, Any]) -> Provenance:
    return Provenance(origin.get("version"), {"analysis.map_n": origin.get("map_n")}, {"tables": origin.get("landed")})


REPORT = Asset(
    name="report",
    about="One self-contained HTML page about the study, which opens offline.",
    parents=("warehouse",),
    kinds=("altair", "html"),
    version=compute_report_version,
    make=make_report,
    compare=_compare,
    places=wrap_place(lambda home, name: LocalPlace(home.report(name))),
    settings=("analysis.map_n",),
)
