"""The version of the databases that landings build from stores and tables."""

import hashlib
import re
from collections.abc import Iterator
from functools import cache

import sql

ROWS_VERSION = 7
"""Version of the rows that ``storage.warehouse.rows`` makes; increased when they change, so that studies land again."""


@cache
def compute_landing_version() -> str:
    """Version of the rows and a digest of the SQL that determines a database: tables, derived tables and checks.

    Views, and macros that no derived table or check reads, are created when the warehouse is opened, and do not count.
    """
    digest = hashlib.sha256("".join(statement.text for statement in _iterate_statements()).encode())
    return f"{ROWS_VERSION}-{digest.hexdigest()[:12]}"


def _iterate_statements() -> Iterator[sql.Statement]:
    """The statements of a landing, each once: ``schema``, ``derived`` and ``checks``, and what the last two read."""
    read = {name: sql.read_statement(kind, name) for kind in ("macros", "views") for name in sql.list_names(kind)}
    waiting = [
        sql.read_statement(kind, name) for kind in ("schema", "derived", "checks") for name in sql.list_names(kind)
    ]
    while waiting:
        statement = waiting.pop()
        yield statement
        waiting += [read.pop(name) for name in re.findall(r"\w+", statement.inputs) if name in read]
