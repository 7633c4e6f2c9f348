"""Local corpora as files: the files of a path, and their hash.

The documents in the files are read by ``extract.texts.readers``. Importing this module does not load pyarrow.

Only regular files are opened, after links have been followed.
"""

import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from extract.hub import expand_path, hash_file, summarise_error
from extract.settings import BUILT_IN, CorpusSettings
from storage.errors import UserError

logger = logging.getLogger(__name__)

COMPRESSIONS = (".gz", ".bz2", ".zst")
"""Suffixes after ``.txt`` and ``.jsonl`` of files that are decompressed while they are read."""

PLAIN = (".txt", ".jsonl", ".parquet")
SUFFIXES = (*PLAIN, *(kind + packed for kind in (".txt", ".jsonl") for packed in COMPRESSIONS))
KINDS = f"{'/'.join(PLAIN)} file"


@dataclass(frozen=True)
class TextFile:
    """One file of a corpus."""

    path: Path
    name: str
    """The path as the user would write it."""
    relative: str
    """The path relative to the given directory; for a given file, its name."""


def find_files(corpus: CorpusSettings) -> list[TextFile]:
    """Find the file of the id, or all files below a directory, at any depth, in order of their relative paths.

    In a directory, files of other kinds are left out with a warning; hidden ones are left out. Links to files are
    followed anywhere, because snapshots in the hub's cache consist of such links; links to directories are not.
    """
    root = expand_path(corpus.id)
    with translate_errors(corpus.id):
        if not root.exists():
            named = ", ".join(f"'{name}'" for name in BUILT_IN)
            raise UserError(
                f"There is no corpus file '{corpus.id}'; give a {KINDS}, a directory, a hub dataset, or {named}"
            )
        if not root.is_dir() and not (root.name.endswith(SUFFIXES) and root.is_file()):
            raise UserError(f"The corpus '{corpus.id}' is not a {KINDS}; convert it to one of these")
        files = _find_below(corpus, root) if root.is_dir() else [TextFile(root, corpus.id, root.name)]
        if not any(file.path.stat().st_size for file in files):
            raise UserError(f"The corpus '{corpus.id}' is empty; give one with text in it")
    return files


def hash_files(corpus: CorpusSettings) -> str:
    """SHA-256 of the file of the id; for a directory, over the names and hashes of its files, in order.

    Errors are those of ``find_files``.
    """
    hashed: list[tuple[str, str]] = []
    for file in find_files(corpus):
        with translate_errors(file.name):
            hashed.append((file.relative, hash_file(file.path)))
    if expand_path(corpus.id).is_file():
        return hashed[0][1]
    return hashlib.sha256(b"".join(os.fsencode(name) + f" {of}\n".encode() for name, of in hashed)).hexdigest()


def _find_below(corpus: CorpusSettings, root: Path) -> list[TextFile]:
    """The files of known kinds below a directory, in order of their relative paths."""
    paths_below: list[Path] = []
    others: list[str] = []
    for folder, folders, names in os.walk(root, onerror=_fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = [Path(folder, name) for name in names if name.endswith(SUFFIXES) and not name.startswith(".")]
        paths_below += [path for path in paths if path.is_file() or not path.exists()]  # a broken link is an error
        others += [name for name in names if not name.endswith(SUFFIXES) and not name.startswith(".")]
    if not paths_below:
        raise UserError(
            f"The corpus directory '{corpus.id}' has no {KINDS} in it; put text there, or convert the files in it"
        )
    if others:
        _warn_once(
            f"the corpus '{corpus.id}': {len(others)} of {len(others) + len(paths_below)} files are not read, since "
            f"their names end with none of {', '.join(SUFFIXES)}: {', '.join(sorted(others)[:5])}"
            f"{', …' if len(others) > 5 else ''}"
        )
    relative = {path.relative_to(root).as_posix(): path for path in paths_below}
    return [TextFile(path, f"{corpus.id.rstrip('/')}/{name}", name) for name, path in sorted(relative.items())]


@cache
def _warn_once(message: str) -> None:
    """Log a warning, once per process: a corpus is looked through several times."""
    logger.warning("%s", message)


def _fail(error: OSError) -> None:
    """Make ``os.walk`` raise an error instead of skipping a directory that cannot be read."""
    raise error


@contextmanager
def translate_errors(name: str, errors: tuple[type[Exception], ...] = (OSError,)) -> Iterator[None]:
    """Raise errors of the system, or of the format of the file ``name``, as a ``UserError``."""
    try:
        yield
    except errors as error:
        number, place = getattr(error, "errno", None), getattr(error, "filename", None)
        reason = os.strerror(number) if number else summarise_error(error)
        what = "is not a readable Parquet file" if name.endswith(".parquet") else "cannot be read"
        raise UserError(
            f"The corpus file '{place or name}' {what} ({reason}); check its permissions, or write it again"
        ) from error
