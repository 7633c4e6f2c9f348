"""Single charts: valid, described, to scale, holding the rows, and marking what is outside, missing or far away."""

from itertools import pairwise

import altair as alt
import duckdb
import numpy as np
import pytest
import vl_convert

from reports import elements
from reports.assumptions import figures as assumptions
from reports.elements import BARS, edges, histogram, layer_chart, tooltips
from reports.families import figures as families
from reports.intuition import figures as example
from reports.separation import figures as separation
from tests.reports.conftest import SMALL
from tests.reports.drawings import drawn, of_query, of_shown, parts


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


def test_the_example_is_that_of_the_paper() -> None:
    toy = example.build_example()
    rows = toy.table.to_pylist()
    assert sum(row["selected"] and row["within"] for row in rows) == 2
    assert sum(not row["selected"] and row["within"] for row in rows) == 5
    assert "Recall is 2/3" in toy.finding
    assert "Precision is 3/8" in toy.finding
    for chart, of in zip(toy.charts, "vyy", strict=True):
        places = [[row[f"{of}_x"], row[f"{of}_y"]] for row in rows]
        np.testing.assert_allclose([[row["x"], row["y"]] for row in drawn(chart)], places, atol=1e-5)


def differ(quantity: str, difference: float, half: float) -> dict[str, object]:
    """A row of ``family_differences`` between two studies of 8 sequences."""
    ends = {"difference_low": difference - half, "difference_high": difference + half}
    return {"study": "b", "reference": "a", "quantity": quantity, "difference": difference, **ends}


TRENDS = [
    {"study": study, "label": label, "quantity": quantity, "value": value, "sequences": 8}
    for study, label, value in (("a", "step0", 0.25), ("b", "step9", 0.75))
    for quantity in families.NAMES
]


def test_differences_that_are_told_survive_the_correction_for_their_number() -> None:
    """An interval that barely excludes 0 is told alone, and not beside 17 others without a difference."""
    barely = differ("sink_weight", 1.1, 1.0)
    assert families.find_apart([barely], TRENDS) == [barely]
    others = [differ(quantity, 0.0, 1.0) for quantity in families.NAMES if quantity != "sink_weight"]
    assert families.find_apart([barely, *others], TRENDS) == []
    clear = differ("recall[4]", 5.0, 0.5)
    assert families.find_apart([barely, *others[:5], clear], TRENDS) == [clear]
    told = families.tell_differences([barely, *others[:5], clear], TRENDS, [])
    assert told[0] == "Recall at N = 4: 0.25 in step0, 0.75 in step9 (difference 5, 4.5 to 5.5)."
    assert told[1].startswith("Of 7 quantities of the model, 1 differs between step0 and step9")
    assert told[2].startswith("No claim of the paper is supported in one study and not")
