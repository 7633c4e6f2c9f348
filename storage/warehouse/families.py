"""The database of a family of studies: built under a temporary name, checked, and published by an atomic rename."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

import sql
from storage.errors import UserError
from storage.files.locks import hold_lock
from storage.files.staging import make_staging_path, remove_leftovers
from storage.warehouse.connection import locate_database
from storage.warehouse.declared import list_conditions
from storage.warehouse.landing import LOCK_WAIT, DraftDatabase, publish, renew_script, translate_space_errors
from storage.warehouse.relations import create_tables, describe_table


def land_family(folder: Path, family: str, rows: Iterable[tuple[str, pa.RecordBatch]]) -> dict[str, int]:
    """Replace the database of a family in the warehouse atomically, or change nothing if its rows break a declaration.

    Parameters
    ----------
    folder
        The warehouse.
    family
        Name of the family; it becomes the column ``family`` of every row.
    rows
        Names of tables of ``sql/families``, each with a batch of its rows without the column ``family``.

    Returns
    -------
    dict
        The number of rows of each table.

    Raises
    ------
    UserError
        If a row breaks a declaration, another process writes the same family, the disk is full or memory is too small.
    """
    aside = make_staging_path(folder / family)
    with hold_lock(folder / f"{family}.lock", f"the tables of family '{family}'", wait=LOCK_WAIT):
        remove_leftovers(folder / family)
        try:
            with translate_space_errors(folder, family):
                counts = _build(aside, family, rows)
                publish(aside, locate_database(folder, family))
        finally:
            remove_leftovers(folder / family)
    renew_script(folder)
    return counts


def _build(path: Path, family: str, rows: Iterable[tuple[str, pa.RecordBatch]]) -> dict[str, int]:
    """Write the database of a family to ``path``; return the number of rows of each table."""
    counts = dict.fromkeys(sql.list_names("families"), 0)
    with DraftDatabase.create(path) as aside, aside.cursor() as cursor:
        create_tables(cursor, "families")
        for table, batch in rows:
            cursor.register("incoming", batch)
            cursor.execute(f"INSERT INTO {table} BY NAME SELECT $family AS family, * FROM incoming", {"family": family})  # noqa: S608
            counts[table] += batch.num_rows
        for name in counts:
            declared = sql.read_statement("families", name)
            for condition, statement in list_conditions(declared):
                if broken := cursor.execute(statement, {"study": family}).fetchone():
                    raise UserError(f"The tables of the family '{family}' break the check {condition}: {broken}")
            describe_table(cursor, name, "families")
    return counts
