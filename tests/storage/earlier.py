"""Stores and parts as other versions described them."""

import json
from pathlib import Path
from typing import Any

from storage.files.parts import INPUTS, compute_digest
from storage.zarr.sequences import _seal_attributes


def rewrite(store: Path, **attributes: object) -> None:
    """Let the document of a store say something else, as that of another version."""
    document = json.loads((store / "zarr.json").read_text(encoding="utf-8"))
    document["attributes"] = _seal_attributes(document["attributes"] | attributes)
    (store / "zarr.json").write_text(json.dumps(document), encoding="utf-8")


def recorded(store: Path) -> dict[str, Any]:
    """The provenance that the document of a store has."""
    found: dict[str, Any] = json.loads((store / "zarr.json").read_text(encoding="utf-8"))["attributes"]["provenance"]
    return found


def rewrite_inputs(folder: Path, **changes: object) -> None:
    """Let all parts in the folders below this one say that they were made of something else."""
    for made in sorted(folder.iterdir()):
        document = json.loads((made / INPUTS).read_text(encoding="utf-8"))
        del document["digest"]
        document["inputs"] |= changes
        (made / INPUTS).write_text(json.dumps(document | {"digest": compute_digest(document)}), encoding="utf-8")
        made.rename(made.with_name(f"{made.name[:-12]}{compute_digest(document['inputs'])}"))
