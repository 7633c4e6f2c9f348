"""Single charts: they hold the numbers of the rows, and mark what is outside, missing or far away."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import altair as alt
import duckdb
import pytest
import vl_convert

from reports import elements
from reports.assumptions import figures as assumptions
from reports.bounds import figures as bounds
from reports.bounds.figures import COVERAGES
from reports.elements import BARS, edges, histogram, layer_chart, tooltips
from reports.findings.numbers import Row
from reports.separation import figures as separation
from tests.reports.conftest import SMALL
from tests.reports.drawings import assert_described, changed, drawn, of_query, of_shown, parts


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("draw", "change"),
    [
        (bounds.draw_coverage, "bound_means SET recall_lower = 0.99 WHERE n = 5 AND layer = 1 AND head = 2"),
        (bounds.draw_width, "bound_means SET recall_lower = 0.5 WHERE n = 5 AND layer = 1 AND head = 2"),
    ],
)
def test_changed_bounds_change_the_charts_over_kappa(
    small: duckdb.DuckDBPyConnection, draw: Callable[[Sequence[Row]], alt.LayerChart], change: str
) -> None:
    """A page shows them where they depend on κ."""
    chart = draw(of_query(small, SMALL, "coverage"))
    assert_described(chart.to_dict())
    with changed(small, f"UPDATE {change}"):
        assert drawn(draw(of_query(small, SMALL, "coverage"))) != drawn(chart)


def test_weights_that_underflow_stay_on_the_log_axis(small: duckdb.DuckDBPyConnection) -> None:
    zero = [{**row, "p10": 0.0} for row in of_query(small, SMALL, "attention_over_heads")]
    spec = assumptions.draw_attention(zero, [], query=SMALL.query, fit=None).to_dict()
    domains = [
        part["encoding"]["y"]["scale"]["domain"]
        for part in parts(spec)
        if "encoding" in part and "scale" in part["encoding"].get("y", {})
    ]
    assert domains
    assert all(0 < low < high == 1 for low, high in domains)


def test_a_mean_outside_its_bounds_is_marked(small: duckdb.DuckDBPyConnection) -> None:
    known = of_shown(small, SMALL, "bounds_by_n")
    rows = [row | {"inside": None if row["inside"] is None else True} for row in known]
    assert not any(row["outside"] for row in drawn(separation.draw_metric_bounds(rows, metric="recall", elbow_n=1)))
    for family in ("printed", "scale_free"):
        moved = [row | {"inside": False} if (row["family"], row["n"]) == (family, 6) else row for row in rows]
        chart = separation.draw_metric_bounds(moved, metric="recall", elbow_n=1)
        assert [row["n"] for row in drawn(chart) if row["outside"]] == [6]
        filters = [part["filter"] for part in parts(chart.to_dict()) if "filter" in part]
        assert "datum.outside" in filters


def test_coverage_draws_no_line_for_what_no_row_has(small: duckdb.DuckDBPyConnection) -> None:
    """A line without any value would leave its axis without an extent, which Vega-Lite warns of."""
    rows = of_query(small, SMALL, "coverage")

    def lines(**changed: Any) -> list[str]:
        spec = bounds.draw_coverage([row | changed for row in rows]).to_dict()
        dashes = [part["encoding"]["strokeDash"] for part in parts(spec) if "strokeDash" in part.get("encoding", {})]
        domain: list[str] = dashes[0]["scale"]["domain"]
        return domain

    assert lines() == list(COVERAGES.values())
    assert lines(precision_coverage_premise=None, recall_coverage_premise=None) == list(COVERAGES.values())[:2]


@pytest.mark.parametrize("values", [[0.0, 0.01, 0.02, 0.02, 0.31], [0.3], [0.3, 0.3], [1e-9, 5.0], [2.0, 2.5]])
def test_histograms_count_everything_once(values: list[float]) -> None:
    for marks in (edges(values), *([edges(values, log=True)] if min(values) else [])):
        bars = histogram(values, marks)
        assert all(low < high for low, high in pairwise(marks))
        assert len(marks) <= 2 * BARS
        assert sum(bar["number"] for bar in bars) == len(values)
        last = max(bar["high"] for bar in bars)
        for bar in bars:
            inside = [value for value in values if bar["low"] <= value < bar["high"] or value == bar["high"] == last]
            assert bar["number"] == len(inside)


def test_elbows_far_out_share_bars() -> None:
    rows = [{"elbow_n": n, "status": "ok"} for n in (1, 4, 5, 8, 9, 300)] + [{"elbow_n": None, "status": "no_decline"}]
    bars = drawn(separation.draw_elbows(rows))
    assert {bar["bin"]: bar["heads"] for bar in bars} == {"1": 1, "4": 1, "5–8": 2, "9–16": 1, "257–512": 1}
    assert len({bar["range"] for bar in bars[:2]}) == 1
    assert {bar["range"] for bar in bars[2:]}.isdisjoint({bar["range"] for bar in bars[:2]})


def test_phases_are_marked_where_there_are_some(small: duckdb.DuckDBPyConnection) -> None:
    table, curve = (of_query(small, SMALL, name) for name in ("attention_over_heads", "weights_fit_curve"))

    def notes(**fit: Any) -> list[str]:
        spec = assumptions.draw_attention(table, curve, query=SMALL.query, fit=fit).to_dict()
        return [row["note"] for rows in spec["datasets"].values() for row in rows if "note" in row]

    assert notes(variant="tied", t_1=6, t_2=18) == ["uniform", "T₁ = 6", "T₂ = 18"]
    assert notes(variant="growth", t_1=6, t_2=6) == ["uniform", "T₁ = T₂ = 6"]
    assert notes(variant="plateau", t_1=22, t_2=22) == notes(variant=None, t_1=None, t_2=None) == ["uniform"]


@pytest.mark.parametrize(
    ("value", "written", "text"),
    [
        (1.22e-11, ".3~p", "below 0.0001 %"),
        (0.0000123, ".3~p", "0.00123 %"),
        (0.277, ".3~p", "27.7 %"),
        (0.99994, ".3~p", "over 99.9 %"),
        (1.0, ".3~p", "100 %"),
        (0.0, ".3~p", "0 %"),
        (None, ".3~p", "null"),  # the page writes a dash
        (None, ",d", "null"),
        (2.5, ".3~f", "2.5"),
    ],
)
def test_a_tooltip_writes_shares_for_readers_and_null_not_as_zero(value: float | None, written: str, text: str) -> None:
    """The text is drawn, since a picture shows no tooltip."""
    rows = [{"x": 1, "value": value}, {"x": 2, "value": None}]
    marks = alt.Chart().mark_point().encode(x=alt.X("x:Q"), tooltip=tooltips(written, value="Value"))
    spec = layer_chart(rows, "", "", marks).to_dict()
    (line,) = spec["layer"][0]["encoding"]["tooltip"]
    assert "format" not in line
    drawn = {"mark": "text", "encoding": {"text": {"field": line["field"], "type": "nominal"}}}
    spec["layer"] = [{**drawn, "transform": [{"filter": "datum.x == 1"}]}]
    assert f">{text}<" in vl_convert.vegalite_to_svg({**spec, "width": 99})


@pytest.mark.parametrize(("value", "text"), [(None, "NaN"), (0.25, "0.25")])
def test_the_nearest_point_writes_no_text_which_vega_lite_would_not_find(value: float | None, text: str) -> None:
    """The page writes a dash for NaN."""
    marks = elements.points(alt.Chart().encode(x=alt.X("x:Q"), tooltip=tooltips(".3~g", value="Value")))
    spec = layer_chart([{"x": 1, "value": value}, {"x": 2, "value": None}], "", "", marks).to_dict()
    (line,) = spec["layer"][0]["encoding"]["tooltip"]
    assert (line["type"], line["format"]) == ("quantitative", ".3~g")
    drawn = {"mark": "text", "encoding": {"text": line}}
    spec["layer"] = [{**drawn, "transform": [{"filter": "datum.x == 1"}]}]
    spec.pop("params", None)
    assert f">{text}<" in vl_convert.vegalite_to_svg({**spec, "width": 99})
