"""What follows from the declaration of a table in ``sql/schema``: checks of its rows, their number, and their size."""

from collections.abc import Iterator, Mapping
from math import isfinite, prod

import sql

BYTES = {"BOOLEAN": 1, "SMALLINT": 2, "INTEGER": 4, "FLOAT": 4, "DOUBLE": 8, "VARCHAR": 4, "BIGINT": 8}
"""Bytes of a value as DuckDB stores it, at most; texts repeat and are stored as numbers."""

DENSE = ("selection_counts", "upper_bounds")
"""Tables of the size of a study: checks of ``sql/checks`` count their keys without sorting them, and read their values
once for all of their conditions."""

SLACK = 1e-6
"""Relative rounding that a domain allows."""

Violations = Iterator[tuple[str, str]]
"""The name of a condition, and a SELECT of the rows that break it."""


def list_conditions(table: sql.Statement) -> Violations:
    """The conditions of the rows of a table, each as SQL that selects what breaks it.

    The parameter ``$study`` is the study, or the family, whose rows they are.
    """
    if table.name in DENSE:
        return
    of_study = f"{table.key[0] if table.kind == 'families' else 'study'} = $study"
    if table.key:
        key = ", ".join(table.key)
        grouped = f"FROM {table.name} WHERE {of_study} GROUP BY {key} HAVING count(*) > 1"
        yield "keys_once", f"SELECT '{table.name}', {key}, count(*) {grouped}"
    outside = [f"({condition})" for column in table.typed for condition in _list_outside(column)]
    names = {column.name for column in table.typed}
    outside += [
        f"NOT ({name}_low <= {name} AND {name} <= {name}_high) OR ({name}_low IS NULL) <> ({name}_high IS NULL)"
        for name in sorted(names)
        if {f"{name}_low", f"{name}_high"} <= names
    ]
    if outside:
        shown = ", ".join(table.key) or "*"
        where = " OR ".join(outside)
        conditions = f"FROM {table.name} WHERE {of_study} AND ({where})"
        yield "values_in_domain", f"SELECT '{table.name}', {shown} {conditions}"


def _list_outside(column: sql.Column) -> Iterator[str]:
    """The conditions that a value is outside the domain of its column; NULL meets none of them.

    Each compares the column with a constant, which DuckDB's statistics often decide. NaN is greater than infinity.
    """
    left, low, high, right = column.domain or ("(", "-inf", "inf", ")")
    for end, closed, sign, outwards in ((float(low), left == "[", "<", -1), (float(high), right == "]", ">", 1)):
        if isfinite(end):
            beyond = end + outwards * SLACK * max(1, abs(end)) if closed else end
            yield f"{column.name} {sign}{'' if closed else '='} {beyond!r}"
        elif column.type in {"FLOAT", "DOUBLE"}:
            yield f"{column.name} {sign}{'' if closed else '='} '{end}'"


def count_rows(table: sql.Statement, units: Mapping[str, int]) -> int | None:
    """The number of rows of a table of ``sql/schema`` in a study; None if it is not certain.

    ``units`` are the numbers of sequences, queries, heads and so on, by the names that declarations use.
    """
    if table.rows is None:
        return None
    terms = (term.split(" * ") for term in table.rows.split(" + "))
    return sum(prod(int(part) if part.isdigit() else units[part] for part in term) for term in terms)


def estimate_row_bytes(table: sql.Statement) -> int:
    """Upper bound of the bytes of one row of a table; lists are of the top keys."""
    from geometry.quantities import TOP_KEYS  # what only reads the warehouse does without NumPy

    lists = {f"{kind}[]": 8 + TOP_KEYS * size for kind, size in BYTES.items()}
    return sum((BYTES | lists).get(column.type, 8) for column in table.typed)
