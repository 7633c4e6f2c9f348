"""Small tables of a study between the asset that computes them and the landing: one Parquet file each.

Every file records in its metadata what it was made from, so that an asset can check whether the file is current, and a
landing whether its inputs belong together.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from storage.errors import UserError
from storage.files.staging import stage_file
from storage.files.user_paths import open_regular_file

_PROVENANCE, _LIBRARIES, _DIGESTS = b"provenance", b"libraries", b"digests"

_ROW_GROUP = 2**15
"""Rows from which on batches are written, as one group: small groups take twice as long to write and to read."""

_BLANK = "0" * 128
"""Placeholder in the metadata for two SHA-256 digests, of the rows and of the footer, until the file is written."""


def write_tables(
    paths: Mapping[str, Path],
    rows: Iterable[tuple[str, pa.RecordBatch]],
    provenance: Mapping[str, Any],
    libraries: Mapping[str, str],
) -> dict[str, int]:
    """Write several tables from one stream of rows, each atomically, once the whole stream has been read.

    Parameters
    ----------
    paths
        The Parquet file of each table; missing folders are created. A table without rows has no columns.
    rows
        The name of a table with each batch of its rows; batches of one table have one schema.
    provenance
        What the rows were made from, as JSON.
    libraries
        Versions of the libraries that computed them; stored apart from the provenance, because a table that another
        version computed is equally valid.

    Returns
    -------
    dict
        The number of rows of each table.

    Raises
    ------
    KeyError
        If ``rows`` contains a table that is not among ``paths``.
    """
    metadata = {
        key: json.dumps(value, sort_keys=True).encode()
        for key, value in {_PROVENANCE: provenance, _LIBRARIES: libraries}.items()
    }
    counts = dict.fromkeys(paths, 0)
    with ExitStack() as stack:
        for path in paths.values():
            path.parent.mkdir(parents=True, exist_ok=True)
        partial = {table: stack.enter_context(stage_file(path)) for table, path in paths.items()}
        with ExitStack() as open_files:
            writers: dict[str, parquet.ParquetWriter] = {}

            def open_writer(table: str, schema: pa.Schema) -> parquet.ParquetWriter:
                if table not in writers:
                    described = schema.with_metadata(metadata)
                    writers[table] = open_files.enter_context(_create_writer(partial[table], described))
                return writers[table]

            for table, group in _group_rows(rows):
                open_writer(table, group.schema).write_table(group)
                counts[table] += group.num_rows
            for table in paths:
                open_writer(table, pa.schema([])).add_key_value_metadata({_DIGESTS: _BLANK})
        for path in partial.values():
            _seal(path)
    return counts


def _group_rows(rows: Iterable[tuple[str, pa.RecordBatch]]) -> Iterator[tuple[str, pa.Table]]:
    """The same rows, those of each table in the same order, at least ``_ROW_GROUP`` of it together but for the last."""
    held: dict[str, list[pa.RecordBatch]] = {}
    for table, batch in rows:
        held.setdefault(table, []).append(batch)
        if sum(map(len, held[table])) >= _ROW_GROUP:
            yield table, pa.Table.from_batches(held.pop(table))
    yield from ((table, pa.Table.from_batches(batches)) for table, batches in held.items())


def _create_writer(path: Path, schema: pa.Schema) -> parquet.ParquetWriter:
    """A new file. Only texts get a dictionary: numbers LZ4 makes nearly as small by itself, in two thirds of the time.

    Nothing reads statistics of columns, and checksums of pages would repeat the digest of all rows.

    With the bytes of floats side by side, LZ4 makes them smaller than Zstandard does as they are, in half the time.
    """
    floats = [field.name for field in schema if pa.types.is_floating(field.type)]
    return parquet.ParquetWriter(
        path,
        schema,
        compression="lz4",
        use_dictionary=[field.name for field in schema if not pa.types.is_primitive(field.type)],
        use_byte_stream_split=floats,
        write_statistics=False,
    )


def _seal(path: Path) -> None:
    """Write the digests of a file that was just written into its footer, in place of the placeholder."""
    start, footer = _read_footer(path)
    digest = _hash_rows(path, start) + hashlib.sha256(footer).hexdigest()
    with path.open("r+b") as file:
        file.seek(start + footer.index(_BLANK.encode()))
        file.write(digest.encode())


def _read_footer(path: Path) -> tuple[int, bytes]:
    """Offset and bytes of the footer of a Parquet file; its last bytes contain its length."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 8, 0))
        length = int.from_bytes(file.read(4), "little")
        start = max(size - 8 - length, 0)
        file.seek(start)
        return start, file.read()


def _hash_rows(path: Path, start: int) -> str:
    """SHA-256 of the bytes before the footer."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while start and (part := file.read(min(start, 2**20))):
            digest.update(part)
            start -= len(part)
    return digest.hexdigest()


def _check_digests(path: Path, *, rows: bool) -> None:
    """Compare the footer of a table, and optionally its rows, with their digests; earlier versions wrote none.

    Raises
    ------
    OSError
        If it cannot be read, or is not a regular file: Arrow would wait for a pipe.
    pa.ArrowInvalid
        If they have changed since they were written.
    """
    with open_regular_file(path):
        pass
    recorded = (parquet.read_metadata(path).metadata or {}).get(_DIGESTS, b"")
    start, footer = _read_footer(path)
    if not recorded and _DIGESTS not in footer:
        return
    of_rows, of_footer = recorded[:64], recorded[64:]
    blank = footer.replace(recorded, _BLANK.encode())
    if hashlib.sha256(blank).hexdigest().encode() != of_footer:
        msg = "its footer has changed since it was written"
        raise pa.ArrowInvalid(msg)
    if rows and _hash_rows(path, start).encode() != of_rows:
        msg = "its rows have changed since they were written"
        raise pa.ArrowInvalid(msg)


def read_table_provenance(path: Path) -> dict[str, Any] | None:
    """What the table at ``path`` was made from; None if the file does not exist or cannot be read."""
    return _read_metadata(path, _PROVENANCE)


def read_table_libraries(path: Path) -> dict[str, Any] | None:
    """Versions of the libraries that made the table at ``path``; None as for ``read_table_provenance``."""
    return _read_metadata(path, _LIBRARIES)


def _read_metadata(path: Path, key: bytes) -> dict[str, Any] | None:
    try:
        _check_digests(path, rows=False)
        document = json.loads((parquet.read_schema(path).metadata or {})[key])
    except (OSError, KeyError, ValueError, pa.ArrowException):
        return None
    return document if isinstance(document, dict) else None


def count_rows(path: Path) -> int:
    """The number of rows of a table that exists."""
    return int(parquet.read_metadata(path).num_rows)


def read_table(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a table, batch by batch; none for a table without rows.

    Raises
    ------
    UserError
        If the file is missing or damaged.
    """
    try:
        _check_digests(path, rows=True)
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            for batch in file.iter_batches():
                yield batch.replace_schema_metadata()
    except (OSError, ValueError, pa.ArrowException) as error:
        why = " ".join(str(error).split())
        msg = f"The table {path} cannot be read ({why}); delete it and run the study again"
        raise UserError(msg) from error
