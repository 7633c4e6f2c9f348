"""Stores of a study: tensors and metrics in Zarr, tables in DuckDB; the only package that touches their files.

From Python and notebooks, ``connect`` opens the tables of all published studies.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from storage.errors import UserError
from storage.files.root import HOME_VARIABLE, data_root, warehouse_of

if TYPE_CHECKING:
    import duckdb


def connect(
    root: Path | str | None = None, *, unlocked: bool = False, files: Mapping[str, Path | str] | None = None
) -> "duckdb.DuckDBPyConnection":
    """Open the warehouse for reading: every published study, united, as tables, views and macros with comments.

    Parameters
    ----------
    root
        The data root; by default the folder that ``ATTENTION_GEOMETRY_HOME`` names, else ``./data``.
    unlocked
        Whether the connection may reach other files and the network: ``COPY … TO``, ``read_parquet``, ``ATTACH``,
        and a folder ``.tmp`` for results that do not fit in memory. The published databases are attached read-only in
        either case, but a ``COPY … TO`` that names one of their files replaces it. If it is False, SQL cannot open any
        file, and a query that does not fit in memory raises ``duckdb.OutOfMemoryException``.
    files
        Your own files of CSV, JSON or Parquet by the names of the tables that they become, such as
        ``{"mine": "scores.csv"}``. They are read once; the connection can read no other file because of them.

    Returns
    -------
    duckdb.DuckDBPyConnection
        The studies as they are published now, each complete; the connection keeps these versions while studies land
        again. It holds no lock that a landing would wait for. Use it in one thread; other threads need a
        ``connection.cursor()`` each.

    Raises
    ------
    UserError
        If the data root does not exist, or a file cannot be read.
    """
    from storage.warehouse.connection import connect as connect_folder

    root_path = data_root(root)
    if not root_path.is_dir():
        raise UserError(f"There is no data root {root_path}; name it: storage.connect('DIR'), or set {HOME_VARIABLE}")
    return connect_folder(warehouse_of(root_path), unlocked=unlocked, files=files)
