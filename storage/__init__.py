"""Stores of a study: tensors and metrics in Zarr, tables in DuckDB; the only package that touches files.

Holds the way in from Python and notebooks (``connect``).
"""

from pathlib import Path
from typing import TYPE_CHECKING

from storage.errors import UserError
from storage.files.root import HOME_VARIABLE, data_root, warehouse_of

if TYPE_CHECKING:
    import duckdb


def connect(root: Path | str | None = None, *, unlocked: bool = False) -> "duckdb.DuckDBPyConnection":
    """Open the warehouse for reading: every published study, united, as tables, views and macros with comments.

    Parameters
    ----------
    root
        The data root; by default the one that ``ATTENTION_GEOMETRY_HOME`` names, else ``./data``.
    unlocked
        Whether the connection may reach other files and the network: ``COPY … TO``, ``read_parquet``, ``ATTACH``,
        and a folder ``.tmp`` for what does not fit in memory. The published databases are attached for reading only,
        either way; but a ``COPY … TO`` that names such a file replaces it. Without it no SQL opens any file, and what
        does not fit in memory is a ``duckdb.OutOfMemoryException``.

    Returns
    -------
    duckdb.DuckDBPyConnection
        The studies as they are published now, each whole; it keeps them while others land. It holds no lock that a
        landing would wait for. One connection serves one thread; others take ``connection.cursor()``.

    Raises
    ------
    UserError
        If there is no such data root.
    """
    from storage.warehouse.connection import connect as connect_folder

    found = data_root(root)
    if not found.is_dir():
        msg = f"There is no data root {found}; name it: storage.connect('DIR'), or set {HOME_VARIABLE}"
        raise UserError(msg)
    return connect_folder(warehouse_of(found), unlocked=unlocked)
