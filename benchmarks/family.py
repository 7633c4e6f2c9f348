"""Queries on the tables of a large family: 154 members of 1,024 heads in one database, as for Pythia's checkpoints.

Holds the benchmark ``family`` and its made-up tables.
"""

import re
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import numpy as np

import sql
from benchmarks.measure import Benchmark, Result, alternate, compare
from dagster_project.analysis.families import ONSETS, QUANTITIES, SHARED
from reports.figures.families import BY_MEMBER, MOST_CELLS, OVERLAP_N
from storage.warehouse.connection import connect, locate_database
from storage.warehouse.relations import create_tables

FAMILY = "large"

LIMIT = 1.0
"""Seconds of all threads within which a query of the page should finish."""

CLAIMS = 30

_ROWS = {
    "family_members": "SELECT {study}, m AS member, 'revision' AS axis, 'step' || m AS value, true AS landed, "
    "8 AS sequences, true AS alike, 'made' AS origin FROM range({members}) AS one (m)",
    "family_trends": "SELECT {study}, {quantity}, {place}, 8 AS sequences, {value} FROM {members_by_heads}",
    "family_trends_model": "SELECT {study}, {quantity}, {layer}, 8 AS sequences, {value} FROM {members_by_layers}",
    "family_differences": "SELECT {study}, {reference}, {quantity}, {place}, {difference} FROM {members_by_heads} "
    "CROSS JOIN (VALUES (0), (1)) AS two (r)",
    "family_differences_model": "SELECT {study}, {reference}, {quantity}, {layer}, {difference} "
    "FROM {members_by_layers} CROSS JOIN (VALUES (0), (1)) AS two (r)",
    "family_overlaps": "SELECT {study}, '{family}-' || (m - 1) AS reference, {place}, unnest({counts}) AS n, "
    "8 AS sequences, h % 8 AS alike, 0.5 AS shared, 0.4 AS shared_low, 0.6 AS shared_high "
    "FROM range(1, {members}) AS one (m), range({layers}) AS two (l), range({heads}) AS three (h)",
    "onsets": "SELECT unnest({onsets}) AS quantity, {place}, 0.3 AS threshold, "
    "['appears', 'never', 'undecided'][1 + h % 3] AS state, '{family}-3' AS study, '{family}-1' AS last_below, "
    "'{family}-4' AS first_above FROM range({layers}) AS one (l), range({heads}) AS two (h)",
    "family_claims": "SELECT {study}, 'claim ' || c AS claim, 'what it says' AS statement, 'supported' AS verdict, "
    "0.01 AS p_holm FROM range({members}) AS one (m), range({claims}) AS two (c)",
}
"""The SELECT of the rows of each table, with the parts of ``_list_parts``."""


def measure_family(*, members: int, layers: int, heads: int, repeats: int) -> list[Result]:
    """Every query of the page of a family, and every question of the tour about families, on a family of this size."""
    with TemporaryDirectory() as name:
        rows = fill(locate_database(Path(name), FAMILY), members=members, layers=layers, heads=heads)
        with closing(connect(Path(name))) as connection:
            seconds = {
                label: alternate(partial(_ask, connection, text), repeats=repeats, clock=time.process_time)[:, 0]
                for label, text in _list_questions().items()
            }
    limit, sizes = np.full(repeats, LIMIT), {"members": members, "layers": layers, "heads": heads, "rows": rows}
    return [
        compare(
            f"family.{label}",
            "cost",
            (label, taken),
            (f"{LIMIT:g} s of all threads", limit),
            sizes=sizes,
            target=1.0,
        )
        for label, taken in sorted(seconds.items(), key=lambda one: -float(np.median(one[1])))
    ]


def fill(path: Path, *, members: int, layers: int, heads: int) -> int:
    """Write the database of a made-up family; return its number of rows."""
    sizes = {"members": str(members), "layers": str(layers), "heads": str(heads)}
    parts = _list_parts()
    rows = 0
    with duckdb.connect(path) as connection:
        create_tables(connection, "families")
        for table, select in _ROWS.items():
            text = select
            for _ in range(2):  # parts have sizes in them
                text = text.format_map(parts | sizes)
            made = f"INSERT INTO {table} BY NAME SELECT '{FAMILY}' AS family, * FROM ({text})"
            rows += connection.execute(made).fetchall()[0][0]
    return rows


def _list_parts() -> dict[str, str]:
    """Parts of the statements that make rows: columns and what they are selected from."""
    interval = "m / 1000 + h / 10000 AS {0}, {0} - 0.01 AS {0}_low, {0} + 0.01 AS {0}_high"
    measured = sorted({*QUANTITIES, *BY_MEMBER})
    return {
        "family": FAMILY,
        "claims": str(CLAIMS),
        "counts": str(SHARED.tolist()),
        "onsets": str([name for name in ONSETS if name in QUANTITIES]),
        "study": f"'{FAMILY}-' || m AS study",
        "reference": f"'{FAMILY}-' || if(r = 0, 0, m - 1) AS reference, r = 0 AS is_first, r = 1 AS is_previous, "
        "true AS paired",
        "quantity": "q AS quantity",
        "place": "l AS layer, h AS head",
        "layer": "if(l < 0, NULL, l) AS layer",
        "value": interval.format("value"),
        "difference": interval.format("difference"),
        "members_by_heads": f"range({{members}}) AS one (m), (SELECT unnest({list(QUANTITIES)}) AS q), "
        "range({layers}) AS two (l), range({heads}) AS three (h)",
        "members_by_layers": f"(SELECT m, 0 AS h FROM range({{members}}) AS one (m)), "
        f"(SELECT unnest({measured}) AS q), range(-1, {{layers}}) AS two (l)",
    }


def _list_questions() -> dict[str, str]:
    """The queries about families, with their parameters as literals."""
    given = {
        "family": f"'{FAMILY}'",
        "quantity": "'sink_weight'",
        "most": str(MOST_CELLS),
        "n": str(OVERLAP_N),
        "heads": "3",
    }
    texts = {name: sql.read_statement("queries", name).code for name in sql.list_names("queries")}
    statements = {name: text for name, text in texts.items() if name.startswith("family_")}
    examples = {name: sql.read_statement("tour", name) for name in sql.list_names("tour")}
    about = {name: example.code for name, example in examples.items() if "$study" not in example.code}
    families = {*sql.list_names("families")}
    tour = {f"tour.{name}": text for name, text in about.items() if families & set(re.findall(r"\w+", text))}
    return {
        label: re.sub(r"\$(\w+)", lambda match: given[match[1]], text) for label, text in (statements | tour).items()
    }


def _ask(connection: duckdb.DuckDBPyConnection, text: str) -> object:
    return connection.sql(text).to_arrow_table()


BENCHMARK = Benchmark(
    "family",
    full=partial(measure_family, members=154, layers=32, heads=32, repeats=3),
    small=partial(measure_family, members=5, layers=2, heads=2, repeats=2),
)
