"""Replace rows in the published database of a study without landing all of it again.

A temporary copy of the database in the same folder is changed, checked and renamed, so that readers see either the old
or the new one.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

import sql
from storage.errors import UserError
from storage.files.locks import hold_lock
from storage.files.staging import make_staging_path, remove_leftovers, synchronise
from storage.warehouse.connection import ForeignError, locate_database, open_database
from storage.warehouse.landing import LOCK_WAIT, translate_space_errors
from storage.warehouse.relations import find_tables_read, quote_literal


@contextmanager
def replace_rows(folder: Path, study: str, table: str, rows: pa.Table) -> Iterator[None]:
    """Replace all rows of a table in the published database of a study.

    The new database is complete and checked when the context is entered, and published when it is left without error.

    Parameters
    ----------
    folder
        The warehouse.
    study
        Name of a study that has landed.
    table
        A table of ``sql/schema`` that no other table is derived from.
    rows
        Its rows, without the column ``study``.

    Raises
    ------
    UserError
        If the study has not landed, or by an earlier version that lacks the table; if the rows break a check,
        another process is landing the study, the disk is full or memory is too small.
    """
    path = locate_database(folder, study)
    aside = make_staging_path(folder / study)
    with hold_lock(folder / f"{study}.lock", f"the tables of study '{study}'", wait=LOCK_WAIT):
        remove_leftovers(folder / study)
        if not path.is_file():
            msg = f"The warehouse holds nothing of the study '{study}'; run it first: attention-geometry run {study}"
            raise UserError(msg)
        try:
            with translate_space_errors(folder, study):
                shutil.copyfile(path, aside)
                with open_database(aside):
                    pass
                _replace(aside, study, table, rows)
                synchronise(aside)
                yield
                aside.replace(path)
        except ForeignError as error:
            msg = f"{path} was not changed: {error}; rebuild it: attention-geometry run {study}"
            raise UserError(msg) from error
        except duckdb.CatalogException as error:
            msg = f"The study '{study}' was landed by an earlier version; run it again: attention-geometry run {study}"
            raise UserError(msg) from error
        finally:
            remove_leftovers(folder / study)


def _replace(path: Path, study: str, table: str, rows: pa.Table) -> None:
    """Replace the rows of a table in a database that is not published."""
    with duckdb.connect(config={"temp_directory": f"{path}.tmp"}) as connection:
        connection.execute(f"ATTACH {quote_literal(os.fspath(path))} AS aside (RECOVERY_MODE no_wal_writes)")
        connection.execute("SET enable_external_access = false")  # the checks call macros that are stored in the file
        connection.execute("USE aside")
        connection.register("incoming", rows)
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 (of sql/schema)
        connection.execute(f"INSERT INTO {table} BY NAME SELECT $study AS study, * FROM incoming", {"study": study})  # noqa: S608
        for check in _select_checks(table):
            if broken := connection.execute(check.text, {"study": study}).fetchall():
                msg = f"The rows of {table} break the check {check.name}: {broken[0]}"
                raise UserError(msg)
        connection.execute("CHECKPOINT aside")


def _select_checks(table: str) -> Iterable[sql.Statement]:
    """The checks that read a table."""
    statements = (sql.read_statement("checks", name) for name in sql.list_names("checks"))
    return [check for check in statements if table in find_tables_read(check)]
