"""Parts: the rows of tables of a study between what computes them and the landing, as Parquet.

What one step computes lies in the folder ``STEP-DIGEST``, a file for each table, where DIGEST is that of its inputs:
settings, versions, the provenance of the tensors. So a listing says whether it is current. The inputs lie beside the
parts as JSON, which is written last; without it nothing is there. It has a digest of the end of each part: a part that
has changed, or lies in the place of another, is noticed, and the rows before are noticed by checksums of their pages.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
from pyarrow import parquet

from storage.errors import UserError
from storage.files.places import OF_PARTS, Place

ROW_GROUP = 2**15
"""Rows from which on batches are written, as one group: small groups take twice as long to write and to read."""

_END = 2**20
"""Bytes at the end of a part, or its footer if that is longer, of which the digest is kept: all of a small part."""

INPUTS = "inputs.json"
"""The file beside the parts of a step that says what they were made from, and the libraries that computed them."""

STEP = "step"
"""The field of the inputs that names the step."""


def compute_digest(inputs: Mapping[str, Any]) -> str:
    """12 hexadecimal digits of the SHA-256 of a JSON document."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:12]


def locate_parts(folder: Place, inputs: Mapping[str, Any]) -> Place:
    """The folder of the parts made from these inputs, in that of a study's parts."""
    return folder.join(f"{inputs[STEP]}-{compute_digest(inputs)}")


def locate_part(folder: Place, table: str, inputs: Mapping[str, Any]) -> Place:
    """The part of a table made from these inputs, in the folder of a study's parts."""
    return locate_parts(folder, inputs).join(f"{table}.parquet")


def list_made(folder: Place, step: str) -> list[Place]:
    """The folders of a step's parts, whatever they were made from."""
    return [folder.join(name) for name in folder.list_folders() if OF_PARTS.sub("", name) == step != name]


def list_parts(folder: Place) -> list[Place]:
    """The parts in the folder of a step, as its inputs name them; none if these are lost or have changed."""
    made = read_inputs(folder)
    return [folder.join(f"{table}.parquet") for table in made["ends"]] if made else []


def write_parts(
    folder: Place,
    tables: Iterable[str],
    rows: Iterable[tuple[str, pa.RecordBatch]],
    inputs: Mapping[str, Any],
    libraries: Mapping[str, str],
) -> Place:
    """Write the parts of a step from one stream of rows, each atomically, once the whole stream has been read.

    ``rows`` are names of ``tables``, each with a batch of its rows; batches of one table have one schema, and a table
    without rows has no columns. ``inputs``, as JSON, have the name of the step as ``step``. The versions of
    ``libraries`` are no inputs: what another version computed is as valid. The folder of the step's parts is returned.
    """
    made = locate_parts(folder, inputs)
    with ExitStack() as stack:
        partial = {table: stack.enter_context(made.stage(f"{table}.parquet")) for table in tables}
        _write_rows(partial, rows, f"{made.name}/")
        ends = {}
        for table, path in partial.items():
            with path.open("rb") as file:
                ends[table] = _hash_end(file)
    document = {"inputs": inputs, "libraries": libraries, "ends": ends}
    text = json.dumps({**document, "digest": compute_digest(document)}, indent=1, sort_keys=True)
    made.write(INPUTS, text.encode())
    return made


def remove_others(folder: Place, inputs: Mapping[str, Any]) -> None:
    """Remove the parts of this step that were made from other inputs, and what killed processes left."""
    current = locate_parts(folder, inputs)
    for other in list_made(folder, inputs[STEP]):
        if other != current:
            other.remove()
    current.remove_leftovers()


def _write_rows(files: Mapping[str, Path], rows: Iterable[tuple[str, pa.RecordBatch]], place: str) -> None:
    """Write the rows of each table to its file, which records its place."""
    with ExitStack() as stack:
        writers: dict[str, parquet.ParquetWriter] = {}

        def create(table: str, schema: pa.Schema) -> parquet.ParquetWriter:
            here = schema.with_metadata({"place": f"{place}{table}"})
            return stack.enter_context(_create_writer(files[table], here))

        for table, group in _group_rows(rows):
            if table not in writers:
                writers[table] = create(table, group.schema)
            writers[table].write_table(group.replace_schema_metadata(writers[table].schema.metadata))
        for table in files.keys() - writers.keys():
            create(table, pa.schema([]))


def _group_rows(rows: Iterable[tuple[str, pa.RecordBatch]]) -> Iterator[tuple[str, pa.Table]]:
    """The same rows, those of each table in the same order, at least ``ROW_GROUP`` of it together but for the last."""
    held: dict[str, list[pa.RecordBatch]] = {}
    for table, batch in rows:
        held.setdefault(table, []).append(batch)
        if sum(map(len, held[table])) >= ROW_GROUP:
            yield table, pa.Table.from_batches(held.pop(table))
    yield from ((table, pa.Table.from_batches(batches)) for table, batches in held.items())


def _create_writer(path: Path, schema: pa.Schema) -> parquet.ParquetWriter:
    """A new file. Only texts get a dictionary: numbers LZ4 makes nearly as small by itself, in two thirds of the time.

    Nothing reads statistics of columns. With the bytes of floats side by side, LZ4 makes them smaller than Zstandard
    does as they are, in half the time.
    """
    floats = [field.name for field in schema if pa.types.is_floating(field.type)]
    return parquet.ParquetWriter(
        path,
        schema,
        compression="lz4",
        use_dictionary=[field.name for field in schema if not pa.types.is_primitive(field.type)],
        use_byte_stream_split=floats,
        write_statistics=False,
        write_page_checksum=True,
    )


def _hash_end(file: BinaryIO) -> str:
    """Digest of the length of a part and of its end."""
    length = file.seek(0, 2)
    file.seek(max(0, length - 8))
    footer = int.from_bytes(file.read(4), "little") + 8
    file.seek(max(0, length - max(_END, footer)))
    return hashlib.sha256(b"%d\n" % length + file.read()).hexdigest()


@contextmanager
def open_part(part: Place, metadata: parquet.FileMetaData | None = None) -> Iterator[parquet.ParquetFile]:
    """Open a part to read its rows with their checksums; with ``metadata`` of an earlier time nothing else is checked.

    ``OSError``, ``ValueError`` or ``ArrowException`` if it is lost, has changed, or was written for another table or
    other inputs.
    """
    with part.parent.open(part.name) as file:
        if metadata is None:
            if (made := read_inputs(part.parent)) is None:
                raise ValueError(f"its {INPUTS} is lost or has changed")
            if _hash_end(file) != made["ends"].get(part.name.removesuffix(".parquet")):
                raise ValueError("it is not the file that was written here")
        yield parquet.ParquetFile(file, metadata=metadata, page_checksum_verification=True)


def is_whole(part: Place) -> bool:
    """Whether a part is there, and its end is what was written."""
    try:
        with open_part(part):
            return True
    except (OSError, ValueError, pa.ArrowException):
        return False


def read_inputs(folder: Place) -> dict[str, Any] | None:
    """The ``inputs``, ``libraries`` and ends of the parts in a folder; None if they are lost, or another folder's."""
    try:
        made: dict[str, Any] = json.loads(folder.read(INPUTS))
        whole = made.pop("digest") == compute_digest(made)
        here = folder.name == f"{made['inputs'][STEP]}-{compute_digest(made['inputs'])}"
    except (OSError, AttributeError, KeyError, TypeError, ValueError):
        return None
    return made if whole and here else None


def count_rows(part: Place) -> int:
    """The number of rows of a part that exists."""
    with open_part(part) as file:
        return int(file.metadata.num_rows)


def read_part(part: Place, damaged: type[UserError] = UserError) -> Iterator[pa.RecordBatch]:
    """The rows of a part, batch by batch; none for a table without rows.

    The error ``damaged`` if the file is missing, damaged, or another part.
    """
    try:
        with open_part(part) as file:
            left = file.metadata.num_rows
            for batch in file.iter_batches():
                left -= len(batch)
                yield batch.replace_schema_metadata()
            if left:  # of a damaged header of a page, which has no checksum
                raise ValueError(f"{left} of its rows are lost")  # noqa: TRY301 (one way out)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise explain_damage(part, error, damaged) from error


def explain_damage(part: Place, error: Exception, damaged: type[UserError]) -> UserError:
    """The error of a part that cannot be read."""
    why = " ".join(str(error).split())
    return damaged(f"The table {part} cannot be read ({why}); delete its folder and run the study again")
