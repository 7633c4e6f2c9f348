"""Titles of figures: whatever the paper has a figure or table for bears its name where it is seen.

What does not belong here: what figures show (the other modules of this folder).
"""

import re
from collections.abc import Iterator

import duckdb
import pytest

from reports.figures import Figure, across, find_source, sections
from reports.rendering import figures
from tests.reports.synthetic import Synthetic, warehouse

STUDY = Synthetic("all", queries=(11, 23))
PAPER = {*(f"Figure {number}" for number in range(1, 12)), "Table 1", "Table 2"}
NAMES = re.compile(r"(?:Figure|Table) \d+")


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """A warehouse with a study that can show everything, only read."""
    with warehouse(STUDY) as found:
        yield found


def seen(figure: Figure) -> str:
    """The title that a reader sees above a figure: its own, or that of its one chart."""
    if figure.headed:
        return figure.title
    (chart,) = figure.charts
    return str(chart.title)


def test_every_figure_and_table_of_the_paper_is_named_in_a_title_that_is_seen(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    shown = [figure for figure in figures(sections(find_source(connection, STUDY.study, map_n=4))) if not figure.empty]
    assert {name for figure in shown for name in NAMES.findall(seen(figure))} == PAPER
    for figure in shown:
        assert NAMES.findall(figure.title) == NAMES.findall(seen(figure))
        assert len(NAMES.findall(figure.title)) <= 1
        if figure.headed:
            assert not [chart for chart in figure.charts if NAMES.search(str(chart.to_dict().get("title", "")))]


def test_a_comparison_names_them_once(connection: duckdb.DuckDBPyConnection) -> None:
    source = find_source(connection, STUDY.study, map_n=4)
    shown = list(figures(across.sections([source, source])))
    assert [NAMES.findall(seen(figure)) for figure in shown] == [["Figure 5"], ["Figure 5"], ["Figure 6"], ["Figure 8"]]
