"""Results of a long computation, kept piece by piece in one file until it is complete.

A line is the SHA-256 of a text of JSON and that text: the name of a piece with its content; the first says what all are
made from. Numbers are read back exactly. Tables (``storage.files.parts``) are built from all pieces together.
"""

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from storage.files.staging import delete, remove_leftovers, stage_file

logger = logging.getLogger(__name__)

_IDENTITY = "made_from"


class Pieces:
    """Named pieces in a file; those made from other inputs, or damaged, are left out when it is opened."""

    def __init__(self, path: Path, made_from: Mapping[str, Any]) -> None:
        """Open or create the file, which no other process may use at the same time; ``made_from`` determines the
        pieces.
        """
        self.path = path
        self.contents, damaged = read_pieces(path)
        if self.contents.pop(_IDENTITY, None) != json.loads(json.dumps(made_from)):
            self.contents = {}
        elif damaged:
            logger.warning("%s has changed since it was written; computing again what was lost", path)
        if path.is_dir():  # of an earlier version
            delete(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path)
        with stage_file(path) as partial:
            lines = [_format_line(*piece) for piece in ({_IDENTITY: made_from} | self.contents).items()]
            partial.write_bytes(b"".join(lines))

    def write(self, name: str, content: Any) -> None:
        """Add a piece; a line that a killed process has not ended does not count."""
        with self.path.open("ab") as file:
            file.write(_format_line(name, content))
            file.flush()
            os.fsync(file.fileno())
        self.contents[name] = content

    def remove(self) -> None:
        """Remove all pieces."""
        delete(self.path)


def read_pieces(path: Path) -> tuple[dict[str, Any], bool]:
    """The pieces of a file by name, and whether any have changed since they were written; none if it does not exist."""
    pieces, lines = {}, path.read_bytes().splitlines(keepends=True) if path.is_file() else []
    for line in lines:
        digest, _, text = line.partition(b" ")
        if digest == _hash(text):
            name, pieces[name] = json.loads(text)
    return pieces, len(pieces) < sum(line.endswith(b"\n") for line in lines)


def _format_line(name: str, content: Any) -> bytes:
    text = json.dumps([name, content]).encode() + b"\n"
    return _hash(text) + b" " + text


def _hash(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest().encode()
