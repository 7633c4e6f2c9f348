"""The version of what a landing makes of stores and tables.

Holds ``landing_version``.
"""

import hashlib
import re
from collections.abc import Iterator
from functools import cache

import sql

ROWS_VERSION = 7
"""Version of the rows that ``storage.warehouse.rows`` makes; raised when they change, so that studies land anew."""


@cache
def landing_version() -> str:
    """That of the rows, and a digest of the statements that decide what is in a database: tables, derived and checks.

    Views, and macros that no derived table or check reads, are made when a database is opened, and do not count.
    """
    digest = hashlib.sha256("".join(statement.text for statement in _statements()).encode())
    return f"{ROWS_VERSION}-{digest.hexdigest()[:12]}"


def _statements() -> Iterator[sql.Statement]:
    """The statements of a landing, each once: ``schema``, ``derived`` and ``checks``, and what the last two read."""
    read = {name: sql.statement(kind, name) for kind in ("macros", "views") for name in sql.names(kind)}
    waiting = [sql.statement(kind, name) for kind in ("schema", "derived", "checks") for name in sql.names(kind)]
    while waiting:
        statement = waiting.pop()
        yield statement
        waiting += [read.pop(name) for name in re.findall(r"\w+", statement.inputs) if name in read]
