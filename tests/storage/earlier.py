"""Stores as earlier versions described them."""

import json
from pathlib import Path
from typing import Any

from storage.zarr.sequences import DIGEST, DOCUMENTS


def rewrite(store: Path, **attributes: object) -> None:
    """Let the document of a store say something else, as that of an earlier version, which has no digests."""
    document = json.loads((store / "zarr.json").read_text(encoding="utf-8"))
    kept = {name: value for name, value in document["attributes"].items() if name not in {DIGEST, DOCUMENTS}}
    document["attributes"] = kept | attributes
    (store / "zarr.json").write_text(json.dumps(document), encoding="utf-8")


def recorded(store: Path) -> dict[str, Any]:
    """The provenance that the document of a store has."""
    found: dict[str, Any] = json.loads((store / "zarr.json").read_text(encoding="utf-8"))["attributes"]["provenance"]
    return found
