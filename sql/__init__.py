"""The SQL of the warehouse: one statement per file.

Holds the reading of these files.

- ``schema``: the tables.
- ``macros``: functions of scalars and of tables, which views, derived tables and anyone's own queries share.
- ``views``: what follows from the tables while one looks at it.
- ``derived``: a SELECT for each table that follows from the others when a study lands; its name is the table's.
- ``queries``: named questions, with named parameters (``$study``).
- ``tour``: twenty worked examples, in the order of their numbers, from which one learns to ask; parameter ``$study``.
- ``checks``: violations of what must be true; no row when all is well.

Every file opens with a header of three comments, ``grain``, ``inputs`` and ``meaning``, indented lines of which go on
with the one before. ``inputs`` names every table, view and macro that the statement reads; ``in_order`` relies on it.
In ``schema`` and ``views`` a comment at the end of a column's line is that column's COMMENT in the database.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from importlib.resources import files
from itertools import dropwhile
from typing import Literal

Kind = Literal["schema", "macros", "views", "derived", "queries", "tour", "checks"]

_HEADER = re.compile(r"^-- (?P<key>grain|inputs|meaning):\s*(?P<text>.*)$")
_UNFINISHED = re.compile(r"\n-- {6,}")
"""Where a line of a header goes on in the next."""
_NAME = re.compile(r"[a-z_0-9]+")
_COLUMN = re.compile(r"^    (?:.*\bAS )?(?P<name>[a-z_0-9]+)\b[^-]*-- (?P<comment>.+)$")


@dataclass(frozen=True)
class Statement:
    """One SQL statement with its documentation."""

    kind: Kind
    name: str
    text: str
    """The SQL, header included."""
    grain: str
    inputs: str
    meaning: str
    columns: dict[str, str]
    """Comment of each column, from the ends of its lines; empty but for ``schema`` and ``views``."""

    @property
    def code(self) -> str:
        """The SQL without its header."""
        return "\n".join(dropwhile(lambda line: line.startswith("--"), self.text.splitlines()))


@cache
def names(kind: Kind) -> tuple[str, ...]:
    """Names of all statements of a kind, in alphabetical order."""
    folder = files(__package__) / kind
    return tuple(sorted(entry.name.removesuffix(".sql") for entry in folder.iterdir() if entry.name.endswith(".sql")))


@cache
def statement(kind: Kind, name: str) -> Statement:
    """Read one statement.

    Raises
    ------
    KeyError
        If there is no such file, or its header lacks a line.
    """
    if name not in names(kind):
        msg = f"there is no sql/{kind}/{name}.sql"
        raise KeyError(msg)
    text = (files(__package__) / kind / f"{name}.sql").read_text(encoding="utf-8")
    matches = [_HEADER.match(line) for line in _UNFINISHED.sub(" ", text).splitlines()]
    header = {match["key"]: match["text"] for match in matches if match}
    return Statement(kind, name, text, header["grain"], header["inputs"], header["meaning"], _columns(kind, text))


def in_order(*kinds: Kind) -> Iterator[Statement]:
    """All statements of some kinds, each after those of them that its ``inputs`` name.

    Raises
    ------
    graphlib.CycleError
        If statements read one another in a circle.
    """
    found = {name: statement(kind, name) for kind in kinds for name in names(kind)}
    inputs = {
        name: [used for used in _NAME.findall(described.inputs) if used in found] for name, described in found.items()
    }
    return (found[name] for name in TopologicalSorter(inputs).static_order())


def _columns(kind: Kind, text: str) -> dict[str, str]:
    if kind not in {"schema", "views"}:
        return {}
    matches = [_COLUMN.match(line) for line in text.splitlines()]
    return {match["name"]: match["comment"] for match in matches if match}
