"""Queries on a study of 100 million selections, compared with a bare scan of the rows and columns that each reads.

Holds the benchmark ``queries`` and its artificial database.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import numpy as np

import sql
from benchmarks.measure import Benchmark, Result, alternate, compare
from storage.warehouse.connection import FORMAT_VERSION, connect, locate_database
from storage.warehouse.relations import create_tables

STUDY = "large"
KAPPAS = (0.005, 0.05, 0.5, 5.0, 50.0)

THREADS = 2

LIMIT = 2.0
"""Seconds within which a query should finish if its bare scan does."""

EMPTY = {"upper_bounds", "monte_carlo", "planted_assumptions", "coverage_by_sequence"}
"""Tables that no query reads after a landing, or that are empty for studies of a model."""

CALLS = {
    "best_n": "FROM best_n('harmonic_mean') WHERE study = $study",
    "heads_by_regime": "FROM heads_by_regime(8) WHERE study = $study",
    "compare_studies": "FROM compare_studies($study, $study)",
    "bounds_at": "FROM bounds_at(0.2) WHERE study = $study AND layer = 1 AND head = 1",
    "lower_bounds": "FROM lower_bounds(0.2, 'raw') WHERE study = $study AND layer = 1 AND head = 1 AND sequence = 1",
    "taxonomy": "FROM taxonomy(last_high := 0.6) WHERE study = $study",
}
"""Typical calls of the table macros with parameters."""

_AXES = re.compile(r"one row per \(?(?P<axes>[a-z_, ]+)")


def measure_queries(
    *, layers: int, heads: int, kv_heads: int, context: int, sequences: int, repeats: int
) -> list[Result]:
    """Every query of the tour and of the reports, and every macro, on a study of this size."""
    sizes = {"layer": layers, "head": heads, "kv_head": kv_heads, "position": context, "sequence": sequences}
    rows = layers * heads * (context - 1) * sequences
    with TemporaryDirectory() as name:
        fill(locate_database(Path(name), STUDY), sizes)
        with closing(connect(Path(name), unlocked=True)) as connection:
            connection.execute(f"SET threads = {THREADS}")
            measured = {
                label: _measure_question(connection, *question, repeats)
                for label, question in _list_questions(context).items()
            }
    in_reach = {label: seconds for label, seconds in measured.items() if np.median(seconds[:, 1]) <= LIMIT}
    slowest = max(in_reach or measured, key=lambda label: float(np.median(measured[label][:, 0])))
    ours, limit = measured[slowest][:, 0], np.full(repeats, LIMIT)
    beyond = ", ".join(sorted(measured.keys() - in_reach.keys())) or "none"
    size = {"rows": rows, "layers": layers, "heads": heads, "context": context, "sequences": sequences}
    whole = compare(
        "queries",
        "cost",
        (f"the slowest, {slowest}", ours),
        (f"{LIMIT:g} s", limit),
        sizes=size,
        target=1.0,
        note=f"excluded, since their bare scan takes longer than {LIMIT:g} s: {beyond}",
    )
    bare = "bare scan: sums of the columns it reads, over the rows that its filters leave"
    return [whole] + [
        compare(f"queries.{label}", "cost", (label, seconds[:, 0]), (bare, seconds[:, 1]), sizes={"rows": rows})
        for label, seconds in measured.items()
    ]


def fill(path: Path, sizes: Mapping[str, int]) -> None:
    """Write the database of an artificial study: tables of realistic length with random numbers."""
    with duckdb.connect(path) as connection:
        connection.execute("SET memory_limit = '10GB'")
        create_tables(connection)
        for name in sql.list_names("schema"):
            if name not in EMPTY:
                connection.execute(_build_insert(name, connection.table(name), sizes))


def _build_insert(name: str, table: duckdb.DuckDBPyRelation, sizes: Mapping[str, int]) -> str:
    """The statement that fills one table, in the order of its grain."""
    grain = _AXES.search(sql.read_statement("schema", name).grain)
    axes, rows = {}, 1
    for axis in reversed(grain["axes"].split(", ") if grain else []):
        if axis in (spans := _list_axes(sizes)):
            size, place = spans[axis]
            axes[axis] = place.format(f"(i // {rows} % {size})")
            rows *= size
    placed = ", ".join(["i", "hash(i) AS h", *(f"{value} AS {axis}" for axis, value in axes.items())])
    made = _list_constants(sizes) | {axis: axis for axis in axes}
    columns = ", ".join(
        f"({made.get(column) or _build_random(str(kind), place)})::{kind} AS {column}"
        for place, (column, kind) in enumerate(zip(table.columns, table.types, strict=True))
    )
    return f"INSERT INTO {name} BY NAME SELECT {columns} FROM (SELECT {placed} FROM range({rows}) AS r (i))"


def _list_axes(sizes: Mapping[str, int]) -> dict[str, tuple[int, str]]:
    """Number of values of each free column of a grain, and the SQL for the value at each position."""
    context = sizes["position"]
    return {axis: (size, "{}") for axis, size in sizes.items()} | {
        "query": (1, f"{{}} + {context - 1}"),
        "n": (context - 1, "{} + 1"),
        "distance": (context - 2, "{} + 1"),
        "kappa": (len(KAPPAS) + 1, f"[{', '.join(map(str, KAPPAS))}, NULL][{{}}::INTEGER + 1]"),
        "regime": (5, "['I', 'II', 'III', 'IV', 'V'][{}::INTEGER + 1]"),
        "threshold": (2, "['last_leads', 'last_high'][{}::INTEGER + 1]"),
        "factor": (2, "[0.9, 1.1][{}::INTEGER + 1]"),
        "parameter": (3, "['d', 'L', 'N'][{}::INTEGER + 1]"),
    }


def _list_constants(sizes: Mapping[str, int]) -> dict[str, str]:
    """SQL for the columns that are the same in every row, or follow from others."""
    return {
        "study": f"'{STUDY}'",
        "family": "CASE WHEN kappa IS NULL THEN 'scale_free' ELSE 'printed' END",
        "kv_head": f"head // {sizes['head'] // sizes['kv_head']}",
        "n_keys": str(sizes["position"]),
        "sequences": str(sizes["sequence"]),
        "layers": str(sizes["layer"]),
        "heads": str(sizes["head"]),
        "kv_heads": str(sizes["kv_head"]),
        "head_dim": "128",
        "k_in": "1 + h % n",
        "k_out": "h % (n_keys - n)",
        "first_n": "1",
        "label": "['Retriever', 'Mixer', 'Reset', 'Other'][1 + (h % 4)::INTEGER]",
        "scale": "CASE WHEN kappa IS NOT NULL THEN 'unit' END",
        "variant": "'untied'",
        "preferred": "'floor'",
        "token": "'token' || h % 1000",
        "provenance": "'{}'",
        "format_version": str(FORMAT_VERSION),
    }


def _build_random(kind: str, place: int) -> str:
    """SQL for a value of a column's type, from the bits of the row's hash."""
    match kind:
        case "FLOAT" | "DOUBLE":
            return f"((h >> {place * 43 // 40}) & 1048575) / 1048576"
        case "VARCHAR":
            return "'ok'"
        case "BOOLEAN":
            return "h % 2 = 0"
        case _ if kind.endswith("[]"):
            return "[]"
    return f"h % {97 + place}"


def _list_questions(context: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """Text and parameters of every query."""
    given = {"study": STUDY, "query": context - 1, "layer": 1, "head": 1, "n": 4, "sequences": 3, "positions": 20}
    given["kappa"] = KAPPAS[0]
    texts = {f"tour.{name}": sql.read_statement("tour", name).code for name in sql.list_names("tour")}
    texts |= {f"queries.{name}": sql.read_statement("queries", name).code for name in sql.list_names("queries")}
    texts |= {f"macros.{name}": text for name, text in CALLS.items()}
    return {
        label: (text, {name: given.get(name) for name in re.findall(r"\$(\w+)", text)}) for label, text in texts.items()
    }


def _measure_question(
    connection: duckdb.DuckDBPyConnection, text: str, parameters: dict[str, Any], repeats: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Seconds of a query and of the bare scans of its inputs, (repeats, 2)."""
    scans = [
        _build_scan(connection, *scan, columns) for scan, columns in _find_columns(connection, text, parameters).items()
    ]

    def scan() -> None:
        for bare in scans or ["SELECT 1"]:
            connection.execute(bare).fetchall()

    ask: Callable[[], object] = lambda: connection.sql(text, params=parameters).to_arrow_table()  # noqa: E731
    return alternate(ask, scan, repeats=repeats)


def _build_scan(connection: duckdb.DuckDBPyConnection, table: str, filters: tuple[str, ...], columns: set[str]) -> str:
    """The statement that only reads every value: sums of numbers, maxima of text and lists."""
    kinds = {name: str(kind) for name, kind, *_ in connection.execute(f"DESCRIBE FROM {table}").fetchall()}
    others = {name for name, kind in kinds.items() if kind in {"VARCHAR", "BOOLEAN", "JSON"} or kind.endswith("[]")}
    sums = (f"{'max' if column in others else 'sum'}({column})" for column in sorted(columns))
    return f"SELECT {', '.join(['count(*)', *sums])} FROM {table} WHERE {' AND '.join(['true', *filters])}"


def _find_columns(
    connection: duckdb.DuckDBPyConnection, text: str, parameters: dict[str, Any]
) -> dict[tuple[str, tuple[str, ...]], set[str]]:
    """The stored columns that a statement reads, by table and filters of the scan, from DuckDB's plan.

    Filters that DuckDB finds at run time are not included.
    """
    (_, plan), *_ = connection.execute(f"EXPLAIN (FORMAT json) {text}", parameters).fetchall()
    columns: dict[tuple[str, tuple[str, ...]], set[str]] = {}
    for scan in _iterate_scans(json.loads(plan)):
        filters = [text.removeprefix("optional: ") for text in _make_list(scan.get("Filters", []))]
        stated = tuple(text for text in filters if text and not text.startswith("Dynamic Filter"))
        columns.setdefault((str(scan["Table"]), stated), set()).update(_make_list(scan.get("Projections", [])))
    return columns


def _make_list(said: str | Sequence[str]) -> Sequence[str]:
    """A value of a plan as a sequence, whether it is a single one or a list."""
    return [said] if isinstance(said, str) else said


def _iterate_scans(nodes: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The details of each table scan of a plan."""
    for node in nodes:
        if "Table" in node.get("extra_info", {}):
            yield node["extra_info"]
        yield from _iterate_scans(node.get("children", []))


BENCHMARK = Benchmark(
    "queries",
    full=partial(measure_queries, layers=32, heads=32, kv_heads=8, context=1024, sequences=96, repeats=3),
    small=partial(measure_queries, layers=2, heads=4, kv_heads=2, context=128, sequences=4, repeats=3),
)
