"""Local corpora: the documents in the files of a path.

Reads ``.txt``, ``.jsonl`` and ``.parquet`` files, the first two compressed or not. The files of a path and their hash
are found in ``extract.text_files``; hub datasets are read by ``extract.texts.streams``.

Everything is read as a stream. Memory at any time: one document, or one block of ``BLOCK`` to 2 ``BLOCK`` characters of
a ``.txt`` file, or ``ROWS`` rows of a column. A line of a ``.jsonl`` file has at most ``LONGEST_LINE`` characters after
decompression; a longer one is refused once that many have been read, which needs at most 8 bytes per character, 2 if
they are ASCII.
"""

import io
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from extract.settings import CorpusSettings
from extract.text_files import COMPRESSIONS, TextFile, find_files, translate_errors
from storage.errors import UserError

LONGEST_LINE = 2**26
"""Most characters of a line of a ``.jsonl`` file."""

BLOCK = 2**20
"""Characters of a ``.txt`` file that form one document, extended to the next line end."""

ROWS = 256
"""Rows read at a time from a Parquet file."""


def read_documents(corpus: CorpusSettings) -> Iterator[str]:
    """The documents of a local corpus, file by file, in the order of each file."""
    files = find_files(corpus)
    return (text for file in files for text in _read_file(file, corpus.column))


def select_text(record: dict[str, Any], column: str, name: str, where: str) -> str:
    """The text in the column of one record of the corpus ``name``; a null is read as an empty text."""
    if column not in record:
        raise UserError(describe_missing_column(column, list(record), name, where))
    text = record[column]
    if text is not None and not isinstance(text, str):
        raise UserError(
            f"The column '{column}' of the corpus '{name}' holds {type(text).__name__} in {where}; "
            f"set column to one that holds text: {', '.join(record)}"
        )
    try:
        (text or "").encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"The corpus '{name}' has text that is not Unicode in {where}: half of a surrogate pair, "
            f"\\u{ord(error.object[error.start]):04x}, at character {error.start}; fix or remove it"
        ) from error
    return text or ""


def describe_missing_column(column: str, names: list[str], name: str, where: str) -> str:
    """The error message for a missing column."""
    return (
        f"The corpus '{name}' has no column '{column}' in {where}; "
        f"set column to one of: {', '.join(names) or '(there are none)'}"
    )


def _read_file(file: TextFile, column: str) -> Iterator[str]:
    kind = Path(file.path.stem).suffix if file.path.suffix in COMPRESSIONS else file.path.suffix
    if kind == ".parquet":
        read = _read_parquet(file, column)
    else:
        read = _read_jsonl(file, column) if kind == ".jsonl" else _read_blocks(file)
    with translate_errors(file.name, (pa.ArrowException, OSError)):
        try:
            yield from read
        except UnicodeDecodeError as error:
            raise UserError(_describe_encoding_error(file)) from error


def _open_text(file: TextFile) -> io.TextIOWrapper:
    return io.TextIOWrapper(pa.input_stream(str(file.path), compression="detect"), encoding="utf-8-sig")


def _read_blocks(file: TextFile) -> Iterator[str]:
    """A text file in blocks that end at line ends."""
    with _open_text(file) as text:
        while block := text.read(BLOCK) + text.readline(BLOCK):
            yield block


def _read_jsonl(file: TextFile, column: str) -> Iterator[str]:
    """The documents of a file, none of whose lines is longer than ``LONGEST_LINE``."""
    with _open_text(file) as text:
        for number in count(1):
            if not (line := text.readline(LONGEST_LINE + 1)):
                return
            if len(line) > LONGEST_LINE:
                raise UserError(
                    f"The corpus '{file.name}' has a line of more than {LONGEST_LINE} characters: line {number}; "
                    "write one document per line, or split it into several"
                )
            if line.strip():
                yield select_text(_parse_json_object(file, line, number), column, file.name, f"line {number}")


def _parse_json_object(file: TextFile, line: str, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"The corpus '{file.name}' has a line that is not JSON: line {number}, {error}; fix or remove it"
        ) from error
    if not isinstance(record, dict):
        raise UserError(
            f"The corpus '{file.name}' has a line that is not a JSON object: line {number}; write one object per line"
        )
    return record


def _read_parquet(file: TextFile, column: str) -> Iterator[str]:
    """The column ``column`` of a Parquet file, ``ROWS`` rows at a time; no other column is read."""
    with pq.ParquetFile(file.path) as opened:
        if column not in opened.schema_arrow.names:
            raise UserError(describe_missing_column(column, opened.schema_arrow.names, file.name, "it"))
        for batch in opened.iter_batches(batch_size=ROWS, columns=[column]):
            for record in batch.to_pylist():
                yield select_text(record, column, file.name, "a row")


def _describe_encoding_error(file: TextFile) -> str:
    if file.name.endswith(".parquet"):
        return f"The corpus '{file.name}' has a row whose text is not UTF-8; write it again"
    position = 0
    with pa.input_stream(str(file.path), compression="detect") as opened:
        for line in io.BufferedReader(opened):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                position += error.start
                break
            position += len(line)
    return f"The corpus '{file.name}' is not UTF-8 at byte {position}; convert it with iconv -t UTF-8"
