"""Local corpora: the files that a path stands for, their hash, and the documents in them.

Holds reading ``.txt``, ``.jsonl`` and ``.parquet`` files, the first two compressed or not, and directories of them.
What does not belong here: hub datasets (``extract.streams``) and choosing windows (``extract.corpora``).

Everything is read as a stream. In memory at a time are one document, or one block of ``BLOCK`` to 2 ``BLOCK``
characters of a ``.txt`` file, or ``ROWS`` rows of a column.
"""

import codecs
import hashlib
import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from extract.hub import one_line
from extract.settings import EMBEDDED, CorpusSettings
from storage.errors import UserError

BLOCK = 2**20
"""Characters of a ``.txt`` file that make one document, up to the next line end."""

ROWS = 256
"""Rows read at a time from a Parquet file."""

COMPRESSIONS = (".gz", ".bz2", ".zst")
"""Endings behind ``.txt`` and ``.jsonl`` that are opened on the fly."""

PLAIN = (".txt", ".jsonl", ".parquet")
SUFFIXES = (*PLAIN, *(kind + packed for kind in (".txt", ".jsonl") for packed in COMPRESSIONS))
KINDS = f"{'/'.join(PLAIN)} file"


@dataclass(frozen=True)
class TextFile:
    """One file of a corpus."""

    path: Path
    name: str
    """Where it is, as the user would write it."""
    relative: str
    """Where it is below the directory that was given; its own name for a file that was given."""


def files(corpus: CorpusSettings) -> list[TextFile]:
    """The file that the id stands for, or those below a directory, at any depth, in order of their relative paths.

    In a directory, files of other kinds and hidden files and directories are left out. Links to files are read
    wherever they lead, as snapshots in the hub's cache are made of such links; links to directories are not entered.

    Raises
    ------
    UserError
        If there is no such file or directory, it cannot be read or is of an unknown kind, or there is no text in it.
    """
    root = Path(corpus.id).expanduser()
    with _readable(corpus.id):
        if not root.exists():
            msg = f"There is no corpus file '{corpus.id}'; give a {KINDS}, a directory, a hub dataset, or '{EMBEDDED}'"
            raise UserError(msg)
        found = _below(corpus, root) if root.is_dir() else [_single(corpus, root)]
        if not any(file.path.stat().st_size for file in found):
            msg = f"The corpus '{corpus.id}' is empty; give one with text in it"
            raise UserError(msg)
    return found


def sha256(corpus: CorpusSettings) -> str:
    """SHA-256 of the file that the id stands for; for a directory, over the names and hashes of its files, in order.

    Raises
    ------
    UserError
        As ``files``.
    """
    found = files(corpus)
    if Path(corpus.id).expanduser().is_file():
        return _hash(found[0])
    digest = hashlib.sha256()
    for file in found:
        digest.update(os.fsencode(file.relative) + f" {_hash(file)}\n".encode())
    return digest.hexdigest()


def documents(corpus: CorpusSettings) -> Iterator[str]:
    """The documents of a local corpus, file by file, each in the order of the file.

    Raises
    ------
    UserError
        As ``files``, at once; and as soon as a file turns out not to be what its name says.
    """
    found = files(corpus)
    return (text for file in found for text in _documents(file, corpus.column))


def text_of(record: dict[str, Any], column: str, name: str, where: str) -> str:
    """The text in the column of one record of the corpus ``name``; a null reads as no text.

    Raises
    ------
    UserError
        If there is no such column in it, naming those there are, or it holds something else than text.
    """
    if column not in record:
        raise UserError(no_column(column, list(record), name, where))
    text = record[column]
    if text is not None and not isinstance(text, str):
        msg = (
            f"The column '{column}' of the corpus '{name}' holds {type(text).__name__} in {where}; "
            f"set column to one that holds text: {', '.join(record)}"
        )
        raise UserError(msg)
    return text or ""


def no_column(column: str, names: list[str], name: str, where: str) -> str:
    """What to say when the column is lacking."""
    return (
        f"The corpus '{name}' has no column '{column}' in {where}; "
        f"set column to one of: {', '.join(names) or '(there are none)'}"
    )


def _single(corpus: CorpusSettings, path: Path) -> TextFile:
    """A file of a known kind."""
    if not path.name.endswith(SUFFIXES) or not path.is_file():
        msg = f"The corpus '{corpus.id}' is no {KINDS}; convert it to one of these"
        raise UserError(msg)
    return TextFile(path, corpus.id, path.name)


def _below(corpus: CorpusSettings, root: Path) -> list[TextFile]:
    """The files of known kinds below a directory, in order of their relative paths."""
    found: list[Path] = []
    for folder, folders, names in os.walk(root, onerror=_fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = [Path(folder, name) for name in names if name.endswith(SUFFIXES) and not name.startswith(".")]
        found += [path for path in paths if path.is_file() or path.is_symlink()]  # no pipes; a broken link is an error
    if not found:
        msg = f"The corpus directory '{corpus.id}' has no {KINDS} in it; put text there, or convert what is there"
        raise UserError(msg)
    relative = {path.relative_to(root).as_posix(): path for path in found}
    return [TextFile(path, f"{corpus.id.rstrip('/')}/{name}", name) for name, path in sorted(relative.items())]


def _fail(error: OSError) -> None:
    """Make ``os.walk`` raise where it would leave out a directory that cannot be read."""
    raise error


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Raise what the system or the file's format objects to as a ``UserError``."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        number, place = getattr(error, "errno", None), getattr(error, "filename", None)
        reason = os.strerror(number) if number else one_line(error)
        what = "is no readable Parquet file" if name.endswith(".parquet") else "cannot be read"
        msg = f"The corpus file '{place or name}' {what} ({reason}); check its permissions, or write it again"
        raise UserError(msg) from error


def _hash(file: TextFile) -> str:
    """SHA-256 of a file as it lies on disk."""
    with _readable(file.name), file.path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _documents(file: TextFile, column: str) -> Iterator[str]:
    """The documents of one file."""
    kind = Path(file.path.stem).suffix if file.path.suffix in COMPRESSIONS else file.path.suffix
    if kind == ".parquet":
        read = _parquet(file, column)
    else:
        read = _jsonl(file, column) if kind == ".jsonl" else _text_blocks(file)
    with _readable(file.name):
        try:
            yield from read
        except UnicodeDecodeError as error:
            raise UserError(_not_utf8(file)) from error


def _opened(file: TextFile) -> io.TextIOWrapper:
    """A text file, decompressed as its ending says."""
    return io.TextIOWrapper(pa.input_stream(str(file.path), compression="detect"), encoding="utf-8-sig")


def _text_blocks(file: TextFile) -> Iterator[str]:
    """A text file in blocks that end at line ends."""
    with _opened(file) as text:
        while block := text.read(BLOCK) + text.readline(BLOCK):
            yield block


def _jsonl(file: TextFile, column: str) -> Iterator[str]:
    """The field ``column`` of each line of a JSON Lines file."""
    with _opened(file) as text:
        for number, line in enumerate(text, start=1):
            if line.strip():
                yield text_of(_json_object(file, line, number), column, file.name, f"line {number}")


def _json_object(file: TextFile, line: str, number: int) -> dict[str, Any]:
    """One line as a JSON object."""
    try:
        record = json.loads(line)
    except ValueError as error:
        msg = f"The corpus '{file.name}' has a line that is no JSON: line {number}, {error}; mend or remove it"
        raise UserError(msg) from error
    if not isinstance(record, dict):
        msg = f"The corpus '{file.name}' has a line that is no JSON object: line {number}; write one object a line"
        raise UserError(msg)
    return record


def _parquet(file: TextFile, column: str) -> Iterator[str]:
    """The column ``column`` of a Parquet file, ``ROWS`` rows at a time; no other column is read."""
    with pq.ParquetFile(file.path) as opened:
        if column not in opened.schema_arrow.names:
            raise UserError(no_column(column, opened.schema_arrow.names, file.name, "it"))
        for batch in opened.iter_batches(batch_size=ROWS, columns=[column]):
            for record in batch.to_pylist():
                yield text_of(record, column, file.name, "a row")


def _not_utf8(file: TextFile) -> str:
    """What to say when a file is not UTF-8, with the place of the first wrong byte."""
    decoder, position = codecs.getincrementaldecoder("utf-8")(), 0
    with pa.input_stream(str(file.path), compression="detect") as opened:
        while True:
            chunk = opened.read(BLOCK)
            pending = len(decoder.getstate()[0])
            try:
                decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                offset = position - pending + error.start
                return f"The corpus '{file.name}' is not UTF-8 at byte {offset}; convert it with iconv -t UTF-8"
            position += len(chunk)
