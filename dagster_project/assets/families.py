"""The tables and the page of a family of studies, from the databases of its members, and whether they are current."""

import logging
import time
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import duckdb

from dagster_project.analysis.families import compute_family
from dagster_project.assets.asset import MISSING, OTHER, UNREADABLE, compute_digest, digest_code
from dagster_project.assets.report import compute_report_version, read_report_origin, write_family_page
from dagster_project.study.families import Family
from dagster_project.study.home import Home
from storage.errors import UserError
from storage.warehouse.connection import ForeignError, locate_database, open_database, read_provenance
from storage.warehouse.landing import land_family

logger = logging.getLogger(__name__)


def make_family(home: Home, family: Family) -> dict[str, int]:
    """Make the tables, unless they are current, and the page of a family from the members that have landed.

    The number of rows of each table that was made is returned; ``UserError`` if no member has landed, the database of
    one cannot be read, or the disk is full.
    """
    origins = find_origins(home, family)
    if not any(origins.values()):
        raise UserError(
            f"No study of the family '{family.name}' has landed; run it: attention-geometry run {family.name}"
        )
    counts: dict[str, int] = {}
    if _explain_stale_tables(home, family, origins):
        started = time.monotonic()
        counts = land_family(home.warehouse, family.name, compute_family(family, home.warehouse, origins))
        logger.info("%s: %s rows landed, %.1f s", family.name, f"{sum(counts.values()):,}", time.monotonic() - started)
    write_family_page(home, family.name, _build_page_origin(home, family, origins))
    return counts


def explain_stale_family(home: Home, family: Family) -> str | None:
    """Why the tables or the page of a family would have to be made again, in words; None if they are current."""
    origins = find_origins(home, family)
    return _explain_stale_tables(home, family, origins) or _explain_stale_page(home, family, origins)


def compute_inputs_digest(home: Home, family: Family) -> str:
    """A digest of what the tables and the page of a family would be made from."""
    return compute_digest(_build_page_origin(home, family, find_origins(home, family)))


def has_members(home: Home, family: Family) -> bool:
    """Whether a member of a family has landed."""
    return any(locate_database(home.warehouse, study).exists() for study in family.members)


def _explain_stale_tables(home: Home, family: Family, origins: Mapping[str, str | None]) -> str | None:
    """Why the tables of a family are not those of its members as they are."""
    listed = read_origins(home, family.name)
    if listed is None:
        return f"tables: {MISSING}"
    made = {study: (value, origin) for study, value, origin in listed}
    wanted = {study: (value, origins[study]) for study, value in family.members.items()}
    changed = [study for study in {**wanted, **made} if wanted.get(study) != made.get(study)]
    if changed:
        return f"tables: {OTHER} {changed[0]}{f' and {len(changed) - 1} more' if changed[1:] else ''}"
    return None if list(made) == list(wanted) else f"tables: {OTHER} order of members"


def _explain_stale_page(home: Home, family: Family, origins: Mapping[str, str | None]) -> str | None:
    """Why the page of a family is not that of its tables."""
    path = home.families / f"{family.name}.html"
    if not path.exists():
        return f"page: {MISSING}"
    try:
        made, now = read_report_origin(path), _build_page_origin(home, family, origins)
    except OSError:
        return f"page: {UNREADABLE}"
    if made.get("version") != now["version"]:
        return f"page: made by version {made.get('version')} of its code, now {now['version']}"
    return None if made == now else f"page: {OTHER} tables or reports"


def _build_page_origin(home: Home, family: Family, origins: Mapping[str, str | None]) -> dict[str, Any]:
    """What the page of a family is made from, as JSON; ``origins`` as ``find_origins`` gives them."""
    members = [[study, value, origins[study], home.report(study).exists()] for study, value in family.members.items()]
    return {"version": compute_report_version(), "members": compute_digest({"members": members})}


def find_origins(home: Home, family: Family) -> dict[str, str | None]:
    """A digest of what the tables of each member were made from, and of this code; None if it has not landed."""
    landed = {study: read_provenance(home.warehouse, study) for study in family.members}
    return {
        study: None if origin is None else compute_digest({"landed": origin, "version": compute_family_version()})
        for study, origin in landed.items()
    }


def read_origins(home: Home, name: str) -> list[tuple[str, str, str | None]] | None:
    """What the tables of a family were made from: name, value and digest of each member; None without such tables."""
    statement = "SELECT study, value, origin FROM it.family_members ORDER BY member"
    try:
        with open_database(locate_database(home.warehouse, name)) as connection:
            return [(study, value, origin) for study, value, origin in connection.execute(statement).fetchall()]
    except (duckdb.Error, ForeignError):
        return None


@cache
def compute_family_version() -> str:
    """A digest of the code and declarations of the tables of a family."""
    return digest_code(
        files("dagster_project.analysis") / "families.py",
        files("geometry.statistics") / "intervals.py",
        files("sql") / "families",
    )
