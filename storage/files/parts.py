"""Parts: the rows of one table of a study between the asset that computes them and the landing, as Parquet.

The part of a table is ``TABLE-DIGEST/TABLE.parquet``, where DIGEST is that of its inputs: settings, versions, the
provenance of the stores. So a listing says whether a table is current. The inputs lie beside it as JSON, with the
SHA-256 of the part: one that has changed, or lies in the place of another, is noticed.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from storage.errors import UserError
from storage.files.staging import delete, remove_leftovers, stage_file
from storage.files.user_paths import hash_regular_file

_ROW_GROUP = 2**15
"""Rows from which on batches are written, as one group: small groups take twice as long to write and to read."""

_HEXADECIMAL = "[0-9a-f]" * 12
"""Pattern of a digest of inputs."""

INPUTS = "inputs.json"
"""The file beside a part that says what it was made from, and the libraries that computed it."""


def compute_digest(inputs: Mapping[str, Any]) -> str:
    """12 hexadecimal digits of the SHA-256 of a JSON document."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:12]


def locate_part(folder: Path, table: str, inputs: Mapping[str, Any]) -> Path:
    """The part of a table made from these inputs, in the folder of a study's parts."""
    return folder / f"{table}-{compute_digest(inputs)}" / f"{table}.parquet"


def list_parts(folder: Path, table: str) -> list[Path]:
    """The stored parts of a table, whatever they were made from."""
    return sorted(folder.glob(f"{table}-{_HEXADECIMAL}/{table}.parquet"))


def write_parts(
    folder: Path,
    tables: Iterable[str],
    rows: Iterable[tuple[str, pa.RecordBatch]],
    inputs: Mapping[str, Any],
    libraries: Mapping[str, str],
) -> dict[str, Path]:
    """Write the parts of several tables from one stream of rows, each atomically, once the whole stream has been read.

    Parameters
    ----------
    folder
        The folder of the study's parts; missing folders are created.
    tables
        The tables; one without rows has no columns.
    rows
        The name of a table with each batch of its rows; batches of one table have one schema.
    inputs
        What the rows were made from, as JSON.
    libraries
        Versions of the libraries that computed them, which are no inputs: what another version computed is as valid.

    Returns
    -------
    dict
        The part of each table; parts that were made from other inputs are removed.

    Raises
    ------
    KeyError
        If ``rows`` contains a table that is not among ``tables``.
    """
    paths = {table: locate_part(folder, table, inputs) for table in tables}
    with ExitStack() as stack:
        for path in paths.values():
            path.parent.mkdir(parents=True, exist_ok=True)
            for place in (folder, path, path.parent / INPUTS):
                remove_leftovers(place)
        partial = {table: stack.enter_context(stage_file(path)) for table, path in paths.items()}
        _write_rows(partial, rows)
        for table, path in paths.items():
            made = {
                "table": table,
                "inputs": inputs,
                "libraries": libraries,
                "sha256": hash_regular_file(partial[table]),
            }
            text = json.dumps({**made, "digest": compute_digest(made)}, indent=1, sort_keys=True)
            stack.enter_context(stage_file(path.parent / INPUTS)).write_text(text, encoding="utf-8")
    for table, path in paths.items():
        for other in set(folder.glob(f"{table}-{_HEXADECIMAL}")) - {path.parent}:
            delete(other)
    return paths


def _write_rows(files: Mapping[str, Path], rows: Iterable[tuple[str, pa.RecordBatch]]) -> None:
    """Write the rows of each table to its file."""
    with ExitStack() as stack:
        writers: dict[str, parquet.ParquetWriter] = {}
        for table, group in _group_rows(rows):
            if table not in writers:
                writers[table] = stack.enter_context(_create_writer(files[table], group.schema))
            writers[table].write_table(group)
        for table in files.keys() - writers.keys():
            stack.enter_context(_create_writer(files[table], pa.schema([])))


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

    Nothing reads statistics of columns, and checksums of pages would repeat the digest of the file.

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


def _check_part(path: Path) -> None:
    """Raise OSError or ValueError if a part is lost, has changed, or was written for another table or other inputs."""
    digest, made = hash_regular_file(path), read_inputs(path)
    if made is None:
        msg = f"its {INPUTS} is lost or has changed"
        raise ValueError(msg)
    if digest != made["sha256"]:
        msg = "it is not the file that was written here"
        raise ValueError(msg)


def is_whole(path: Path) -> bool:
    """Whether a part is there, and is what was written."""
    try:
        _check_part(path)
    except (OSError, ValueError):
        return False
    return True


def read_inputs(path: Path) -> dict[str, Any] | None:
    """The ``inputs`` and ``libraries`` of a part; None if they are lost, or are not those its folder is named for."""
    try:
        made = json.loads((path.parent / INPUTS).read_text(encoding="utf-8"))
        whole = made.pop("digest") == compute_digest(made)
        here = path.parent.name == f"{made['table']}-{compute_digest(made['inputs'])}"
    except (OSError, AttributeError, KeyError, TypeError, ValueError):
        return None
    return made if whole and here else None


def count_rows(path: Path) -> int:
    """The number of rows of a part that exists."""
    return int(parquet.read_metadata(path).num_rows)


def read_part(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a part, batch by batch; none for a table without rows.

    Raises
    ------
    UserError
        If the file is missing, damaged, or another part.
    """
    try:
        _check_part(path)
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches():
                yield batch.replace_schema_metadata()
    except (OSError, ValueError, pa.ArrowException) as error:
        why = " ".join(str(error).split())
        msg = f"The table {path} cannot be read ({why}); delete it and run the study again"
        raise UserError(msg) from error
