"""Results of a long computation, kept piece by piece until all of them are there.

A piece is a JSON file, written atomically; numbers come back as they were. What does not belong here: tables
(``storage.files.tables``), which are made of all pieces together.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from storage.files.staging import delete, staged

_IDENTITY = "made_from"


class Pieces:
    """Named pieces in a folder; those made from something else are removed when it is opened."""

    def __init__(self, folder: Path, made_from: Mapping[str, Any]) -> None:
        """Open the folder, or make it; call it while no other process works in there.

        Parameters
        ----------
        folder
            Where the pieces are.
        made_from
            What decides them, as JSON.
        """
        self.folder = folder
        if self._read(_IDENTITY) != json.loads(json.dumps(made_from)):
            delete(folder)
            folder.mkdir(parents=True)
            self.write(_IDENTITY, made_from)
        for leftover in folder.glob("*.partial"):
            delete(leftover)

    def names(self) -> set[str]:
        """The pieces that are there."""
        return {path.stem for path in self.folder.glob("*.json")} - {_IDENTITY}

    def read(self, name: str) -> Any:
        """The content of a piece that is there."""
        return json.loads((self.folder / f"{name}.json").read_bytes())

    def write(self, name: str, content: Any) -> None:
        """Write a piece atomically."""
        with staged(self.folder / f"{name}.json") as partial:
            partial.write_text(json.dumps(content), encoding="utf-8")

    def remove(self) -> None:
        """Remove all of them."""
        delete(self.folder)

    def _read(self, name: str) -> Any:
        """A piece; None if there is none that can be read."""
        try:
            return self.read(name)
        except (OSError, ValueError):
            return None
