"""Local corpora as files: which files a path stands for, and their hash.

Holds the kinds of files that are read and finding them. What does not belong here: the documents in them
(``extract.readers``), and hub datasets (``extract.streams``). Importing this module loads no library of tables.

No file is opened that is not a regular file, after links have been followed.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from extract.hub import local_path, one_line
from extract.settings import EMBEDDED, CorpusSettings
from storage.errors import UserError

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
    root = local_path(corpus.id)
    with readable(corpus.id):
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
    if local_path(corpus.id).is_file():
        return _hash(found[0])
    digest = hashlib.sha256()
    for file in found:
        digest.update(os.fsencode(file.relative) + f" {_hash(file)}\n".encode())
    return digest.hexdigest()


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
        found += [path for path in paths if path.is_file() or not path.exists()]  # a broken link is an error
    if not found:
        msg = f"The corpus directory '{corpus.id}' has no {KINDS} in it; put text there, or convert what is there"
        raise UserError(msg)
    relative = {path.relative_to(root).as_posix(): path for path in found}
    return [TextFile(path, f"{corpus.id.rstrip('/')}/{name}", name) for name, path in sorted(relative.items())]


def _fail(error: OSError) -> None:
    """Make ``os.walk`` raise where it would leave out a directory that cannot be read."""
    raise error


@contextmanager
def readable(name: str, errors: tuple[type[Exception], ...] = (OSError,)) -> Iterator[None]:
    """Raise what the system, or the format of the file ``name``, objects to as a ``UserError``."""
    try:
        yield
    except errors as error:
        number, place = getattr(error, "errno", None), getattr(error, "filename", None)
        reason = os.strerror(number) if number else one_line(error)
        what = "is no readable Parquet file" if name.endswith(".parquet") else "cannot be read"
        msg = f"The corpus file '{place or name}' {what} ({reason}); check its permissions, or write it again"
        raise UserError(msg) from error


def _hash(file: TextFile) -> str:
    """SHA-256 of a file as it lies on disk."""
    with readable(file.name), file.path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
