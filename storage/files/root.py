"""The data root: the folder that contains all data of the product."""

import os
from pathlib import Path

from storage.files.user_paths import resolve_path

HOME_VARIABLE = "ATTENTION_GEOMETRY_HOME"
"""Environment variable that names the data root."""

DEFAULT_HOME = "data"
"""The data root without that variable, below the current folder."""


def data_root(given: Path | str | None = None) -> Path:
    """The data root: the one given, else the one that ``ATTENTION_GEOMETRY_HOME`` names, else ``./data``; absolute.

    ``UserError`` if it is not a path that can be used.
    """
    return resolve_path(given or os.environ.get(HOME_VARIABLE) or DEFAULT_HOME)


def warehouse_of(root: Path) -> Path:
    """The folder of a data root's published databases, one per study."""
    return root / "warehouse"
