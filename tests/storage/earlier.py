"""A study as version 0.1.0 landed it."""

from pathlib import Path

import duckdb

import sql

KEPT = (
    "studies",
    "heads",
    "tokens",
    "selection_counts",
    "attention_by_position",
    "value_norm_by_position",
)
"""Tables that version 0.1.0 had."""


NEW = sorted(set(sql.names("schema")) - set(KEPT))


def make_older(path: Path) -> None:
    """Take out of a study's file what version 0.1.0 did not land."""
    with duckdb.connect(path) as connection:
        for relation in reversed(list(sql.in_order("macros", "views"))):
            kind = "VIEW" if relation.kind == "views" else "MACRO TABLE" if "AS TABLE" in relation.text else "MACRO"
            connection.execute(f"DROP {kind} {relation.name}")
        for table in NEW:
            connection.execute(f"DROP TABLE {table}")
        for column in ("a_0", "s_in", "a_min_in", "a_max_in", "a_max_out", "rho_out", "distance_rest"):
            connection.execute(f"ALTER TABLE selection_counts DROP COLUMN {column}")
        for metric in ("precision", "recall"):
            connection.execute(f"ALTER TABLE selection_counts DROP COLUMN {metric}_lower_scale_free")
        connection.execute("ALTER TABLE heads DROP COLUMN head_dim")
