"""What is asked of a made-up study, and what a chart of it holds."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import altair as alt
import duckdb

from reports import theme
from reports.figures import Figure, Section, Source, find_source
from reports.findings.numbers import Row
from reports.page import BUILDERS
from reports.queries import ask
from tests.made_up import MadeUp

INTERVALS = {"From", "From position", "95 % interval from"}
"""Titles of tooltip lines that say what a line “to” ends."""


def of_query(connection: duckdb.DuckDBPyConnection, study: MadeUp, name: str, **others: Any) -> list[Row]:
    return ask(connection, name, study=study.study, query=study.query, **others).rows()


def of_shown(connection: duckdb.DuckDBPyConnection, study: MadeUp, name: str) -> list[Row]:
    """As ``of_query``, at the κ that figures show."""
    place = {"study": study.study, "query": study.query}
    shown = "SELECT kappa FROM coverage WHERE study = $study AND query = $query AND shown"
    return ask(connection, name, **place, kappa=connection.execute(shown, place).fetchall()[0][0]).rows()


@contextmanager
def changed(connection: duckdb.DuckDBPyConnection, *changes: str) -> Iterator[None]:
    """While it lasts, some rows are as the statements ``changes`` make them."""
    connection.begin()
    try:
        for change in changes:
            assert connection.execute(change).fetchall()[0][0] > 0
        yield
    finally:
        connection.rollback()


def drawn(chart: alt.LayerChart) -> list[dict[str, Any]]:
    """The rows embedded in a chart."""
    spec = chart.to_dict(validate=False)
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


def build_figures(
    connection: duckdb.DuckDBPyConnection,
    study: MadeUp,
    *builders: Callable[[Source], Section],
    map_n: int = 4,
) -> dict[str, Figure]:
    """The figures of a study by their keys: of all sections, or of those that are named."""
    source = find_source(connection, study.study, map_n=map_n)
    return {figure.key: figure for build in builders or BUILDERS for figure in build(source).figures}


def assert_described(spec: dict[str, Any], *, axes: bool = True) -> None:
    """A chart has a title, a description and named axes and tooltips, and the theme's colours alone."""
    assert spec["title"]
    assert spec["description"].endswith(".")
    encodings = [part["encoding"] for part in parts(spec) if "encoding" in part]
    for axis in ("x", "y") if axes else ():
        assert any(encoding[axis].get("title") for encoding in encodings if axis in encoding)
    tooltips = [encoding["tooltip"] for encoding in encodings if "tooltip" in encoding]
    assert tooltips
    for titles in ([line.get("title") for line in tooltip] for tooltip in tooltips):
        assert all(titles)
        assert len(set(titles)) == len(titles)  # of two lines with one title a reader sees the last
        assert {before for before, title in pairwise(titles) if title == "to"} <= INTERVALS
    assert spec.pop("config") == theme.make_config(theme.LIGHT)
    assert "#" not in str({key: value for key, value in spec.items() if key != "$schema"})
