"""What is asked of a made-up study, and what a chart of it holds."""

from collections.abc import Iterator
from typing import Any

import altair as alt
import duckdb

from reports.queries import ask
from tests.made_up import MadeUp


def of_query(connection: duckdb.DuckDBPyConnection, study: MadeUp, name: str) -> Any:
    return ask(connection, name, study=study.study, query=study.query).table


def of_study(connection: duckdb.DuckDBPyConnection, study: MadeUp, name: str) -> Any:
    return ask(connection, name, study=study.study).table


def drawn(chart: alt.LayerChart) -> list[dict[str, Any]]:
    """The rows embedded in a chart."""
    spec = chart.to_dict()
    rows: list[dict[str, Any]] = spec["datasets"][spec["data"]["name"]]
    return rows


def parts(spec: Any) -> Iterator[dict[str, Any]]:
    """Every object inside a specification."""
    if isinstance(spec, dict):
        yield spec
        for value in spec.values():
            yield from parts(value)
    elif isinstance(spec, list):
        for value in spec:
            yield from parts(value)
