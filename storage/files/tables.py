"""Small tables of a study between the step that computes them and the landing: one Parquet file each.

Holds their writing, whole or not at all, and their reading.

Every file says in its metadata what it was made from, so that a step knows whether it has anything to do, and a landing
whether it is given what belongs together.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from storage.errors import UserError
from storage.files.staging import beside

_PROVENANCE, _LIBRARIES = b"provenance", b"libraries"


def write_summary(
    path: Path, batches: Iterable[pa.RecordBatch], provenance: Mapping[str, Any], libraries: Mapping[str, str]
) -> int:
    """Write a table aside and rename it, so that a file at ``path`` is always a whole one.

    Parameters
    ----------
    path
        The Parquet file; its folder is made.
    batches
        The rows, as a stream; all of one schema. None at all make a table without columns.
    provenance
        What the rows were made from, as JSON.
    libraries
        Versions of what computed them; kept beside the provenance, for a table by another version is as good.

    Returns
    -------
    int
        The number of rows.
    """
    stream = iter(batches)
    first = next(stream, pa.RecordBatch.from_pylist([], schema=pa.schema([])))
    metadata = {_PROVENANCE: provenance, _LIBRARIES: libraries}
    schema = first.schema.with_metadata(
        {key: json.dumps(value, sort_keys=True).encode() for key, value in metadata.items()}
    )
    aside = beside(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = 0
    try:
        with parquet.ParquetWriter(aside, schema, compression="zstd", write_page_checksum=True) as writer:
            for batch in chain([first], stream):
                writer.write_batch(batch.replace_schema_metadata(schema.metadata))
                rows += batch.num_rows
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    return rows


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


def rows_of(path: Path) -> int:
    """The number of rows of a table that is there."""
    return int(parquet.read_metadata(path).num_rows)


def read_summary(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a table, batch by batch; nothing for one without rows.

    Raises
    ------
    UserError
        If the file is not there or damaged.
    """
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            for batch in file.iter_batches():
                yield batch.replace_schema_metadata()
    except (OSError, pa.ArrowInvalid) as error:
        why = " ".join(str(error).split())
        msg = f"The table {path} cannot be read ({why}); delete it and run the study again"
        raise UserError(msg) from error
