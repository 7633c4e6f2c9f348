"""Compares the tables of studies before and after a change of the code that must not change what they hold.

``python -m tests.net save DATA_ROOT FOLDER [STUDY ...]`` writes every table of these studies (default: of all) as
Parquet, ``python -m tests.net compare BEFORE AFTER`` compares two such folders table by table: texts, counts and
verdicts exactly, float32 within 2 units in the last place, float64 within 1e-9 of the larger number, and within 1e-6
where a fit starts from them. It prints what differs and exits with 1 if anything does.

``DROPPED``, ``RENAMED`` and ``OWN`` list what differs on purpose.
"""

import sys
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from pyarrow import compute, parquet

DROPPED = frozenset({"external_scores", "contributions"})
"""Tables, or TABLE.COLUMN, that are no more."""

RENAMED = {"contributions": "attention_by_position"}
"""Tables by their former names."""

OWN = frozenset({"studies.provenance", "family_members.origin"})
"""Columns that say by which code and when a row was made."""

FITTED = (
    "assumption_similarity",
    "assumption_weights",
    "parameter_effects",
    "regimes",
    "monte_carlo",
    "measure",
    "claim",
)
"""How the names of tables begin that hold fits, or what follows from fits."""

RELATIONS = """
SELECT table_name FROM duckdb_tables()
UNION ALL
SELECT view_name FROM duckdb_views() WHERE NOT internal AND view_name NOT IN ('margins', 'selection')
"""
"""What is compared: tables, and views, which may have been tables; but for those of every selection."""

ULPS, PART, FITTED_PART, CANCELLED = 2, 1e-9, 1e-6, 1e-12
"""What floats may differ by; ``CANCELLED``: part of the largest number of a column, which sums that cancel round to."""


def save(root: Path, folder: Path, studies: list[str]) -> None:
    """Write every table and view of these studies as FOLDER/STUDY/TABLE.parquet."""
    for name in studies or sorted(path.stem for path in (root / "warehouse").glob("*.duckdb")):
        (folder / name).mkdir(parents=True, exist_ok=True)
        with duckdb.connect(root / "warehouse" / f"{name}.duckdb", read_only=True) as connection:
            for (table,) in connection.execute(RELATIONS).fetchall():
                connection.sql(f'FROM "{table}"').write_parquet(str(folder / name / f"{table}.parquet"))


def compare(before: Path, after: Path) -> list[str]:
    """What differs between two folders, a line for each column or table."""
    found = []
    for path in sorted(before.rglob("*.parquet")):
        table, name = path.stem, f"{path.parent.name}: {path.stem}"
        other = after / path.parent.name / f"{RENAMED.get(table, table)}.parquet"
        if table in DROPPED:
            continue
        if not other.exists():
            found.append(f"{name} is missing")
            continue
        found += [
            f"{name}{line}" for line in compare_tables(table, parquet.read_table(path), parquet.read_table(other))
        ]
    return found


def compare_tables(name: str, before: pa.Table, after: pa.Table) -> list[str]:
    """What differs between two tables, a line for each column."""
    if len(before) != len(after):
        return [f" had {len(before):,} rows, has {len(after):,}"]
    columns = [column for column in before.column_names if not {f"{name}.{column}"} & (DROPPED | OWN)]
    if missing := [column for column in columns if column not in after.column_names]:
        return [f".{column} is missing" for column in missing]
    exact = [column for column in columns if not _has_floats(before.schema.field(column).type)]
    one, other = (sort_rows(table.select(columns), exact) for table in (before, after))
    lines = ((column, describe_difference(name, one[column], other[column])) for column in columns)
    return [f".{column} {line}" for column, line in lines if line]


def sort_rows(table: pa.Table, exact: list[str]) -> pa.Table:
    """The rows in the order of all columns without floats, then of the others."""
    simple = [column for column in exact if not pa.types.is_nested(table.schema.field(column).type)]
    rest = [column for column in table.column_names if pa.types.is_floating(table.schema.field(column).type)]
    return table.sort_by([(column, "ascending") for column in simple + rest])


def _has_floats(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or (pa.types.is_list(kind) and _has_floats(kind.value_type))


def describe_difference(table: str, before: pa.ChunkedArray, after: pa.ChunkedArray) -> str | None:
    """How a column differs; None if it does not, or by no more than floats may."""
    if not _has_floats(before.type):
        unlike = [row for row in range(len(before)) if before[row] != after[row]] if before != after else []
        return f"differs in {len(unlike)} rows, first {before[unlike[0]]} → {after[unlike[0]]}" if unlike else None
    if before.is_null() != after.is_null():
        return "is NULL in other rows"
    if pa.types.is_list(before.type):
        before, after = compute.list_flatten(before), compute.list_flatten(after)
    one, other = (column.to_numpy().astype(np.float64) for column in (before, after))
    if one.shape != other.shape or (np.isnan(one) != np.isnan(other)).any():
        return "is NaN in other rows, or has lists of other lengths"
    largest = np.fmax(np.abs(one), np.abs(other))
    scale = np.max(largest[np.isfinite(largest)], initial=0.0)
    single = before.type == pa.float32()
    part = FITTED_PART if table.startswith(FITTED) else ULPS * 2.0**-23 if single else PART
    with np.errstate(invalid="ignore"):
        wrong = (np.abs(one - other) > part * largest + CANCELLED * scale) & (one != other)
    if not wrong.any():
        return None
    with np.errstate(invalid="ignore"):  # of 0 and 0
        worst = int(np.nanargmax(np.where(wrong, np.abs(one - other) / largest, -1)))
    return f"differs in {wrong.sum():,} of {len(one):,}, most {one[worst]:.9g} → {other[worst]:.9g}"


def main(what: str, first: str, second: str, *studies: str) -> int:
    """The command line; return the exit status."""
    if what == "save":
        save(Path(first), Path(second), list(studies))
        return 0
    found = compare(Path(first), Path(second))
    sys.stdout.write("\n".join(found or ["equal"]) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
