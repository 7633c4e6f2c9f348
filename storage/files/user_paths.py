"""Files and folders that a user names: paths that can be used, bounded reads, and nothing overwritten unasked."""

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from storage.errors import UserError

MEBIBYTE = 2**20

LONGEST = 255
"""Most bytes of the name of a file or folder that file systems allow."""


def resolve_path(given: Path | str) -> Path:
    """The absolute path that a user means, with ``~`` and links resolved; nothing needs to exist there.

    ``UserError`` if there is no such user, the links form a loop, or a name is longer than the file system allows.
    """
    try:
        path = Path(given).expanduser().resolve()
        with suppress(FileNotFoundError, NotADirectoryError):
            path.stat()  # from Python 3.13 on, ``resolve`` accepts a loop of links
    except (OSError, RuntimeError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error).rstrip(".")
        raise _make_path_error(given, why) from error
    if any(len(os.fsencode(name)) > LONGEST for name in path.parts):
        raise _make_path_error(given, os.strerror(errno.ENAMETOOLONG))
    return path


def _make_path_error(given: Path | str, why: str) -> UserError:
    text = str(given)
    shown = text if len(text) <= 100 else f"{text[:99]}…"
    return UserError(f"The path {shown} cannot be used ({why}); name another")


@contextmanager
def open_regular_file(path: Path, *, follow: bool = True) -> Iterator[BufferedReader]:
    """Open a file for reading that is neither a device, a pipe nor a folder, nor, unless ``follow``, a link.

    ``OSError`` if it cannot be read, or is something else (``EINVAL``; a link: ``ELOOP``).
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)  # a pipe without a writer must not block
    handle = os.open(path, flags)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        with open(handle, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(handle)


def read_regular_file(path: Path, most: int, *, follow: bool = True) -> bytes:
    """All bytes of a file that ``open_regular_file`` opens; memory is bounded by ``most`` bytes, whatever it holds.

    ``OSError`` as there, or if it is larger (``EFBIG``).
    """
    with open_regular_file(path, follow=follow) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most // MEBIBYTE} MiB", str(path))
    return content


def hash_regular_file(path: Path, *, follow: bool = True) -> str:
    """SHA-256 of a file that ``open_regular_file`` opens; ``OSError`` as there."""
    with open_regular_file(path, follow=follow) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def refuse_existing(paths: Iterable[Path], *, overwrite: bool) -> None:
    """Refuse files to write (``UserError``) if one exists already, unless it is a regular file and may be overwritten.

    Nothing has been written then.
    """
    for path in paths:
        try:
            mode = path.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise UserError(f"{path} cannot be written ({error.strerror}); name another place") from error
        if not stat.S_ISREG(mode):
            raise UserError(f"{path} is not a regular file, and is not replaced; name another place")
        if not overwrite:
            raise UserError(f"{path} exists already; add --overwrite to replace it, or name another place")
