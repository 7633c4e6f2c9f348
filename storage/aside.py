"""Writing aside: what is made beside its place and renamed, so that what stands there is always whole.

Holds the names of what is unfinished, and its removal after a killed process. What does not belong here: any writing.
"""

import shutil
from pathlib import Path
from uuid import uuid4

HEXADECIMAL = "[0-9a-f]" * 32


def beside(path: Path) -> Path:
    """A name of its own beside ``path``, for what is to be renamed to it."""
    return path.with_name(f"{path.name}.{uuid4().hex}.partial")


def sweep(path: Path) -> None:
    """Remove what killed processes left beside ``path``; call it while no other process writes there."""
    for leftover in path.parent.glob(f"{path.name}.{HEXADECIMAL}.partial*"):
        if leftover.is_dir():
            shutil.rmtree(leftover)
        else:
            leftover.unlink()
