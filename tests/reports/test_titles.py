"""Numbers of figures: whatever the paper has a figure or table for stands on the page with that number beside it.

What does not belong here: what figures show (the other modules of this folder).
"""

import re

import duckdb
import pytest

from reports.comparison import page as across
from reports.figures import find_source
from reports.rendering import iterate_figures
from reports.sections import sections
from tests.reports.conftest import THREE

STUDY = THREE
PAPER = {*(f"Figure {number}" for number in range(1, 12)), "Table 1", "Table 2"}
NAMES = re.compile(r"(?:Figure|Table) \d+")


@pytest.mark.slow
def test_every_figure_and_table_of_the_paper_has_its_like(three: duckdb.DuckDBPyConnection) -> None:
    shown = [
        figure for figure in iterate_figures(sections(find_source(three, STUDY.study, map_n=4))) if not figure.empty
    ]
    assert {name for figure in shown for name in NAMES.findall(figure.paper)} == PAPER
    for figure in shown:
        assert not NAMES.search(figure.title)
        assert not [chart for chart in figure.charts if NAMES.search(str(chart.to_dict().get("title", "")))]


def test_a_comparison_names_them_once(three: duckdb.DuckDBPyConnection) -> None:
    source = find_source(three, STUDY.study, map_n=4)
    shown = list(iterate_figures(across.build_sections([source, source])))
    assert [figure.paper for figure in shown] == ["Figure 5, left", "Figure 5, right", "Figure 6", "Figure 8"]
