"""Small tables of a study between the asset that computes them and the landing: one Parquet file each.

Every file says in its metadata what it was made from, so that an asset knows whether it is current, and a landing
whether what it is given belongs together.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from storage.errors import UserError
from storage.files.staging import staged

_PROVENANCE, _LIBRARIES = b"provenance", b"libraries"


def write_tables(
    paths: Mapping[str, Path],
    rows: Iterable[tuple[str, pa.RecordBatch]],
    provenance: Mapping[str, Any],
    libraries: Mapping[str, str],
) -> dict[str, int]:
    """Write several tables from one stream of rows, each atomically, once all of the stream has been taken.

    Parameters
    ----------
    paths
        The Parquet file of each table; their folders are made. A table without rows has no columns.
    rows
        The name of a table with each batch of its rows; batches of one table have one schema.
    provenance
        What the rows were made from, as JSON.
    libraries
        Versions of what computed them; kept beside the provenance, for a table by another version is as good.

    Returns
    -------
    dict
        The number of rows of each table.

    Raises
    ------
    KeyError
        If rows of a table come that is not among ``paths``.
    """
    metadata = {
        key: json.dumps(value, sort_keys=True).encode()
        for key, value in {_PROVENANCE: provenance, _LIBRARIES: libraries}.items()
    }
    counts = dict.fromkeys(paths, 0)
    with ExitStack() as stack:
        for path in paths.values():
            path.parent.mkdir(parents=True, exist_ok=True)
        partial = {table: stack.enter_context(staged(path)) for table, path in paths.items()}
        with ExitStack() as open_files:
            writers: dict[str, parquet.ParquetWriter] = {}

            def writer(table: str, schema: pa.Schema) -> parquet.ParquetWriter:
                if table not in writers:
                    described = schema.with_metadata(metadata)
                    writers[table] = open_files.enter_context(
                        parquet.ParquetWriter(partial[table], described, compression="zstd", write_page_checksum=True)
                    )
                return writers[table]

            for table, batch in rows:
                writer(table, batch.schema).write_batch(batch.replace_schema_metadata(metadata))
                counts[table] += batch.num_rows
            for table in paths:
                writer(table, pa.schema([]))
    return counts


def made_from(path: Path) -> dict[str, Any] | None:
    """What the table at ``path`` was made from; None if there is none, or it cannot be read."""
    return _metadata(path, _PROVENANCE)


def made_by(path: Path) -> dict[str, Any] | None:
    """Versions of the libraries that made the table at ``path``; None as for ``made_from``."""
    return _metadata(path, _LIBRARIES)


def _metadata(path: Path, key: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads((parquet.read_schema(path).metadata or {})[key])
    except (OSError, KeyError, ValueError, pa.ArrowInvalid):
        return None
    return found if isinstance(found, dict) else None


def count_rows(path: Path) -> int:
    """The number of rows of a table that exists."""
    return int(parquet.read_metadata(path).num_rows)


def read_table(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a table, batch by batch; nothing for one without rows.

    Raises
    ------
    UserError
        If the file is missing or damaged.
    """
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            for batch in file.iter_batches():
                yield batch.replace_schema_metadata()
    except (OSError, pa.ArrowInvalid) as error:
        why = " ".join(str(error).split())
        msg = f"The table {path} cannot be read ({why}); delete it and run the study again"
        raise UserError(msg) from error
