"""A user's own files as tables of a connection: read once, before it is locked."""

import re
from collections.abc import Mapping
from pathlib import Path

import duckdb

import sql
from storage.errors import UserError
from storage.files.user_paths import open_regular_file, resolve_path
from storage.warehouse.relations import quote_identifier, quote_literal

READERS = {
    "csv": "read_csv({}, header = true, hive_partitioning = false)",
    "json": "read_json({}, hive_partitioning = false)",
    "parquet": "read_parquet({}, hive_partitioning = false)",
}
"""How DuckDB reads a file of each kind."""

KINDS = {
    **dict.fromkeys((".csv", ".csv.gz", ".tsv"), "csv"),
    **dict.fromkeys((".json", ".json.gz", ".jsonl", ".ndjson"), "json"),
    ".parquet": "parquet",
}
"""Kinds of files by the ends of their names."""

_KINDS_OF_RELATIONS: tuple[sql.StatementKind, ...] = ("schema", "families", "views", "macros")

_NAME = re.compile(r"[A-Za-z_]\w{0,99}", re.ASCII)

_PATTERN = re.compile(r"[*?\[]")
"""Characters by which DuckDB takes a path for a pattern of several files."""


def create_user_tables(connection: duckdb.DuckDBPyConnection, files: Mapping[str, Path | str]) -> None:
    """Create a table in the memory of a connection, which may still read files, from each file, by name.

    Files of CSV with a heading, JSON or Parquet; all rows are read into memory, within the limit of the connection.
    ``UserError`` if a name is none, or that of something in the warehouse; if a file cannot be read or is of another
    kind.
    """
    taken = {name for kind in _KINDS_OF_RELATIONS for name in sql.list_names(kind)}
    for name, given in files.items():
        if not _NAME.fullmatch(name) or name.lower() in taken:
            raise UserError(
                f"A file cannot be named '{name}' in SQL; choose a name of letters and digits that no table has"
            )
        path = resolve_path(given)
        kind = next((kind for end, kind in KINDS.items() if path.name.lower().endswith(end)), None)
        if kind is None:
            raise UserError(f"The file {path} is none that can be a table; name one that ends with {', '.join(KINDS)}")
        _create_table(connection, name, path, READERS[kind])


def _create_table(connection: duckdb.DuckDBPyConnection, name: str, path: Path, reader: str) -> None:
    """Create a table from one file."""
    source = reader.format(quote_literal(_PATTERN.sub(r"[\g<0>]", str(path))))
    try:
        with open_regular_file(path):
            connection.execute(f"CREATE TABLE {quote_identifier(name)} AS FROM {source}")
    except OSError as error:
        raise UserError(
            f"The file {path} cannot be read ({error.strerror}); name a file of CSV, JSON or Parquet"
        ) from error
    except duckdb.Error as error:
        why = str(error).splitlines()[0]
        raise UserError(f"The file {path} cannot be read as '{name}' ({why}); mend it, or write it again") from error
