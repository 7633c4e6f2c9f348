"""A study as version 0.1.0 landed it, and stores as earlier versions described them."""

import json
from pathlib import Path
from typing import Any

import duckdb

import sql
from storage.zarr.sequences import DIGEST, DOCUMENTS

KEPT = (
    "studies",
    "heads",
    "tokens",
    "selection_counts",
    "attention_by_position",
    "value_norm_by_position",
)
"""Tables that version 0.1.0 had."""


NEW = sorted(set(sql.list_names("schema")) - set(KEPT))


def make_older(path: Path) -> None:
    """Take out of a study's file what version 0.1.0 did not land."""
    with duckdb.connect(path) as connection:
        for relation in reversed(list(sql.sort_statements("macros", "views"))):
            kind = "VIEW" if relation.kind == "views" else "MACRO TABLE" if "AS TABLE" in relation.text else "MACRO"
            connection.execute(f"DROP {kind} {relation.name}")
        for table in NEW:
            connection.execute(f"DROP TABLE {table}")
        for column in ("a_0", "s_in", "a_min_in", "a_max_in", "a_max_out", "rho_out", "distance_rest"):
            connection.execute(f"ALTER TABLE selection_counts DROP COLUMN {column}")
        for metric in ("precision", "recall"):
            connection.execute(f"ALTER TABLE selection_counts DROP COLUMN {metric}_lower_scale_free")
        connection.execute("ALTER TABLE heads DROP COLUMN head_dim")


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
