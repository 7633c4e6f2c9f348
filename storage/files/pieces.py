"""Results of a long computation, stored piece by piece until it is complete.

A piece is a file with the SHA-256 of its name and content in the first line and the content as JSON in the second,
written atomically; numbers are read back exactly. Tables (``storage.files.parts``) are built from all pieces together.
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from storage.errors import UserError
from storage.files.staging import delete, stage_file

logger = logging.getLogger(__name__)

SUFFIX = ".piece"

_IDENTITY = "made_from"


class Pieces:
    """Named pieces in a folder; pieces made from other inputs, or damaged, are removed when it is opened."""

    def __init__(self, folder: Path, made_from: Mapping[str, Any]) -> None:
        """Open or create the folder, which no other process may use at the same time; ``made_from`` determines the
        pieces.
        """
        self.folder = folder
        if self._read(_IDENTITY) != json.loads(json.dumps(made_from)):
            delete(folder)
            folder.mkdir(parents=True)
            self.write(_IDENTITY, made_from)
        for path, damage in find_damaged_pieces(folder):
            logger.warning("%s %s; computing it again", path, damage)
            delete(path)
        for leftover in folder.glob("*.partial"):
            delete(leftover)

    def list_names(self) -> set[str]:
        """The names of the existing pieces."""
        return {path.stem for path in self.folder.glob(f"*{SUFFIX}")} - {_IDENTITY}

    def read(self, name: str) -> Any:
        """The content of an existing piece; ``UserError`` if it has changed since it was written."""
        path = self.folder / f"{name}{SUFFIX}"
        try:
            return _read_piece(path)
        except ValueError as error:
            raise UserError(f"{path} {error}; run again, which computes it again") from error

    def write(self, name: str, content: Any) -> None:
        """Write a piece atomically."""
        path, text = self.folder / f"{name}{SUFFIX}", json.dumps(content)
        with stage_file(path) as partial:
            partial.write_text(f"{_digest(path, text)}\n{text}", encoding="utf-8")

    def remove(self) -> None:
        """Remove all pieces and the folder."""
        delete(self.folder)

    def _read(self, name: str) -> Any:
        """The content of a piece; None if it is missing or cannot be read."""
        try:
            return self.read(name)
        except (OSError, UserError):
            return None


def find_damaged_pieces(folder: Path) -> Iterator[tuple[Path, str]]:
    """The pieces of a folder that have changed since they were written, each with what is wrong with it."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            _read_piece(path)
        except (OSError, ValueError) as error:
            yield path, str(error)


def _read_piece(path: Path) -> Any:
    """The content of a piece; ``ValueError`` if it has changed since it was written."""
    digest, _, text = path.read_bytes().decode(errors="replace").partition("\n")
    if digest != _digest(path, text):
        raise ValueError("has changed since it was written")
    return json.loads(text)


def _digest(path: Path, text: str) -> str:
    """SHA-256 of the name and the content of a piece, so that none stands for another."""
    return hashlib.sha256(f"{path.stem}\n{text}".encode()).hexdigest()
