"""The tables of a family of studies, from the databases of its members."""

import hashlib
import logging
import time
from functools import cache
from importlib.resources import files

import duckdb

import sql
from dagster_project.analysis.families import compute_family
from dagster_project.assets.asset import compute_digest
from dagster_project.assets.report import write_family_page
from dagster_project.study.families import Family
from dagster_project.study.home import Home
from storage.warehouse.connection import ForeignError, locate_database, open_database, read_provenance
from storage.warehouse.families import land_family

logger = logging.getLogger(__name__)

SOURCES = {
    "dagster_project.analysis": ("families.py",),
    "geometry.statistics": ("differences.py", "intervals.py", "moments.py"),
    "geometry.selection": ("overlap.py",),
}
"""The code that determines the tables of a family, with the SQL of their declarations."""


def make_family(home: Home, family: Family) -> bool:
    """Make the tables and the page of a family from the members that have landed; return whether the tables were made.

    Tables that are current are kept, and so is their page if it is there.

    Raises
    ------
    UserError
        If the database of a member cannot be read, or the disk is full.
    """
    origins = find_origins(home, family)
    wanted = [(study, value, origins[study]) for study, value in family.members.items()]
    if read_origins(home, family.name) == wanted:
        if not (home.families / f"{family.name}.html").exists():
            write_family_page(home, family.name)
        return False
    started = time.monotonic()
    counts = land_family(home.warehouse, family.name, compute_family(family, home.warehouse, origins))
    logger.info("%s: %s rows landed, %.1f s", family.name, f"{sum(counts.values()):,}", time.monotonic() - started)
    write_family_page(home, family.name)
    return True


def find_origins(home: Home, family: Family) -> dict[str, str | None]:
    """A digest of what the tables of each member were made from, and of this code; None if it has not landed."""
    landed = {study: read_provenance(home.warehouse, study) for study in family.members}
    return {
        study: None if origin is None else compute_digest({"landed": origin, "version": compute_family_version()})
        for study, origin in landed.items()
    }


def read_origins(home: Home, name: str) -> list[tuple[str, str, str | None]] | None:
    """What the tables of a family were made from: name, value and digest of each member; None without such tables."""
    asked = "SELECT study, value, origin FROM it.family_members ORDER BY member"
    try:
        with open_database(locate_database(home.warehouse, name)) as connection:
            return [(study, value, origin) for study, value, origin in connection.execute(asked).fetchall()]
    except (duckdb.Error, ForeignError):
        return None


@cache
def compute_family_version() -> str:
    """A digest of the code and declarations of the tables of a family."""
    digest = hashlib.sha256()
    for package, names in SOURCES.items():
        for name in names:
            digest.update(f"{name}\0".encode() + (files(package) / name).read_bytes())
    for name in sql.list_names("families"):
        digest.update(sql.read_statement("families", name).text.encode())
    return digest.hexdigest()[:12]
