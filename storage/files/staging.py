"""Writing aside: what is made beside its place and renamed, so that what stands there is always whole.

Holds the names of what is unfinished, or about to be replaced, and its removal after a killed process. What does not
belong here: any writing.
"""

import shutil
from pathlib import Path
from uuid import uuid4

HEXADECIMAL = "[0-9a-f]" * 32


def beside(path: Path) -> Path:
    """A name of its own beside ``path``, for what is to be renamed to it."""
    return path.with_name(f"{path.name}.{uuid4().hex}.partial")


def set_aside(path: Path) -> Path:
    """Rename what stands at ``path``, to be put back if nothing comes in its place; returns where it is now."""
    return path.rename(path.with_name(f"{path.name}.{uuid4().hex}.replaced"))


def discard(path: Path) -> None:
    """Remove what was set aside of ``path``, now or by a killed process; call it once what replaces it is whole."""
    for old in path.parent.glob(f"{path.name}.{HEXADECIMAL}.replaced"):
        shutil.rmtree(old)


def sweep(path: Path) -> None:
    """Remove what killed processes left beside ``path``; call it while no other process writes there."""
    for leftover in path.parent.glob(f"{path.name}.{HEXADECIMAL}.partial*"):
        if leftover.is_dir():
            shutil.rmtree(leftover)
        else:
            leftover.unlink()
