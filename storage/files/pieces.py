"""Results of a long computation, stored piece by piece until it is complete.

A piece is a JSON file, written atomically; numbers are read back exactly. Tables (``storage.files.tables``) are built
from all pieces together.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from storage.files.staging import delete, stage_file

_IDENTITY = "made_from"


class Pieces:
    """Named pieces in a folder; pieces made from other inputs are removed when it is opened."""

    def __init__(self, folder: Path, made_from: Mapping[str, Any]) -> None:
        """Open or create the folder; no other process may use it at the same time.

        Parameters
        ----------
        folder
            Folder of the pieces.
        made_from
            Inputs that determine the pieces, as JSON.
        """
        self.folder = folder
        if self._read(_IDENTITY) != json.loads(json.dumps(made_from)):
            delete(folder)
            folder.mkdir(parents=True)
            self.write(_IDENTITY, made_from)
        for leftover in folder.glob("*.partial"):
            delete(leftover)

    def list_names(self) -> set[str]:
        """The names of the existing pieces."""
        return {path.stem for path in self.folder.glob("*.json")} - {_IDENTITY}

    def read(self, name: str) -> Any:
        """The content of an existing piece."""
        return json.loads((self.folder / f"{name}.json").read_bytes())

    def write(self, name: str, content: Any) -> None:
        """Write a piece atomically."""
        with stage_file(self.folder / f"{name}.json") as partial:
            partial.write_text(json.dumps(content), encoding="utf-8")

    def remove(self) -> None:
        """Remove all pieces and the folder."""
        delete(self.folder)

    def _read(self, name: str) -> Any:
        """The content of a piece; None if it is missing or cannot be read."""
        try:
            return self.read(name)
        except (OSError, ValueError):
            return None
