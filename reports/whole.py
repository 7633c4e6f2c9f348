"""Files that are whole or not there: written aside and renamed.

Holds ``replace``.
"""

import os
from contextlib import suppress
from glob import escape
from pathlib import Path

from storage.errors import UserError


def replace(path: Path, content: bytes, *, remedy: str) -> int:
    """Write a file aside and rename it, so that it is always a whole one; return its bytes.

    What killed processes left beside it is removed.

    Parameters
    ----------
    path
        The file; its folder is made.
    content
        What it is to hold.
    remedy
        What to do if it cannot be written.

    Raises
    ------
    UserError
        If it cannot be written; what stands there stays.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        aside.write_bytes(content)
        aside.replace(path)
    except OSError as error:
        msg = f"{path} cannot be written: {error.strerror or error}; {remedy}"
        raise UserError(msg) from error
    finally:
        with suppress(OSError):
            aside.unlink()
    return len(content)


def _sweep(path: Path) -> None:
    """Remove what processes that live no more left beside ``path``."""
    for leftover in path.parent.glob(f".{escape(path.name)}.*.partial"):
        process = leftover.name.split(".")[-2]
        if process.isdigit() and not lives(int(process)):
            leftover.unlink(missing_ok=True)


def lives(process: int) -> bool:
    """Whether there is a process of this number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
