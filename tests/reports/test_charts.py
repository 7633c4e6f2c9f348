"""Every chart on its own: a valid specification that says what it shows, and holds the numbers of the rows."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import altair as alt
import duckdb
import pytest

from reports import charts, theme
from reports.queries import ask
from tests.reports.conftest import DEGENERATE, SMALL
from tests.reports.synthetic import Synthetic, warehouse

Draw = Callable[[duckdb.DuckDBPyConnection, Synthetic], alt.LayerChart]


def curves(connection: duckdb.DuckDBPyConnection, study: Synthetic) -> Any:
    return ask(connection, "curves_by_n", study=study.study, query=study.query).table


def heads(connection: duckdb.DuckDBPyConnection, study: Synthetic, n: int) -> Any:
    return ask(connection, "heads_at_n", study=study.study, query=study.query, n=n).table


def positions(connection: duckdb.DuckDBPyConnection, study: Synthetic) -> Any:
    return ask(connection, "attention_over_heads", study=study.study, query=study.query).table


CHARTS: dict[str, Draw] = {
    "precision_recall": lambda c, s: charts.precision_recall(curves(c, s), marked_n=1),
    "f_scores": lambda c, s: charts.f_scores(curves(c, s), marked_n=1),
    "precision_map": lambda c, s: charts.precision_map(heads(c, s, 1), n=1),
    "recall_map": lambda c, s: charts.recall_map(heads(c, s, 1), n=1),
    "value_norm": lambda c, s: charts.value_norm(ask(c, "value_norm_over_heads", study=s.study).table),
    "attention": lambda c, s: charts.attention(positions(c, s), query=s.query),
    "sink_by_layer": lambda c, s: charts.sink_by_layer(ask(c, "sink_by_head", study=s.study, query=s.query).table),
}


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


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_says_what_it_shows(small: duckdb.DuckDBPyConnection, name: str) -> None:
    spec = CHARTS[name](small, SMALL).to_dict()
    assert spec["title"]
    assert spec["description"].endswith(".")
    encodings = [part["encoding"] for part in parts(spec) if "encoding" in part]
    for axis in ("x", "y"):
        assert any(encoding[axis].get("title") for encoding in encodings if axis in encoding)
    tooltips = [encoding["tooltip"] for encoding in encodings if "tooltip" in encoding]
    assert tooltips
    assert all(line.get("title") for tooltip in tooltips for line in tooltip)


@pytest.mark.parametrize("name", CHARTS)
def test_colours_come_from_the_theme_alone(small: duckdb.DuckDBPyConnection, name: str) -> None:
    spec = CHARTS[name](small, SMALL).to_dict()
    assert spec.pop("config") == theme.config(theme.LIGHT)
    assert "#" not in str({key: value for key, value in spec.items() if key != "$schema"})


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_is_the_same_each_time(small: duckdb.DuckDBPyConnection, name: str) -> None:
    assert CHARTS[name](small, SMALL).to_dict() == CHARTS[name](small, SMALL).to_dict()


@pytest.mark.parametrize("study", [study for key, study in DEGENERATE.items() if "one" in key or key == "least"])
@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_of_very_little_is_valid(study: Synthetic, name: str) -> None:
    with warehouse(study) as connection:
        assert drawn(CHARTS[name](connection, study))


ONE = "layer = 1 AND head = 2 AND sequence = 1"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("precision_recall", f"UPDATE selection_counts SET k_in = 0 WHERE n = 1 AND {ONE}"),
        ("f_scores", f"UPDATE selection_counts SET k_out = k_out + 1 WHERE n = 4 AND {ONE}"),
        ("precision_map", f"UPDATE selection_counts SET k_out = k_out + 1 WHERE n = 1 AND {ONE}"),
        ("recall_map", f"UPDATE selection_counts SET k_in = 0 WHERE n = 1 AND {ONE}"),
        (
            "value_norm",
            "UPDATE value_norm_by_position SET mean_norm = 9 WHERE position = 3 AND layer = 1 AND kv_head = 0",
        ),
        (
            "attention",
            "UPDATE attention_by_position SET mean_weight = 0.5 WHERE position = 3 AND layer = 1 AND head = 2",
        ),
        (
            "sink_by_layer",
            "UPDATE attention_by_position SET mean_weight = 0.5 WHERE position = 0 AND layer = 1 AND head = 2",
        ),
    ],
)
def test_one_changed_row_changes_the_chart(name: str, change: str) -> None:
    with warehouse(SMALL) as connection:
        before = drawn(CHARTS[name](connection, SMALL))
        assert connection.execute(change).fetchall() == [(1,)]
        after = drawn(CHARTS[name](connection, SMALL))
    assert len(before) == len(after)
    assert before != after


def test_charts_hold_the_rows(small: duckdb.DuckDBPyConnection) -> None:
    """Six significant digits of every number of the table."""
    table = curves(small, SMALL)
    shown_rows = drawn(charts.precision_recall(table, marked_n=4))
    expected = [row for row in table.to_pylist() if row["metric"] in {"precision", "recall"}]
    assert len(shown_rows) == len(expected)
    for shown, row in zip(shown_rows, expected, strict=True):
        assert {name: shown[name] for name in row} == {
            name: pytest.approx(value, rel=1e-5) if isinstance(value, float) else value for name, value in row.items()
        }
        assert shown[row["metric"]] == shown["mean"]


def test_maps_hold_every_head_that_has_a_value() -> None:
    study = DEGENERATE["window"]
    with warehouse(study) as connection:
        chart = charts.recall_map(heads(connection, study, 5), n=5)
    assert len(drawn(chart)) == 2 * study.heads
    scales = [part["encoding"]["y"]["scale"]["domain"] for part in parts(chart.to_dict()) if "encoding" in part]
    assert all(domain == [0, 1, 2] for domain in scales)


def test_weights_that_underflow_stay_on_the_log_axis(small: duckdb.DuckDBPyConnection) -> None:
    table = positions(small, SMALL)
    zero = [{**row, "p10": 0.0} for row in table.to_pylist()]
    spec = charts.attention(type(table).from_pylist(zero), query=SMALL.query).to_dict()
    domains = [
        part["encoding"]["y"]["scale"]["domain"]
        for part in parts(spec)
        if "encoding" in part and "scale" in part["encoding"].get("y", {})
    ]
    assert domains
    assert all(0 < low < high == 1 for low, high in domains)


def test_the_palettes_are_distinct_and_monotone() -> None:
    def lightness(colour: str) -> float:
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    for palette, sign in ((theme.LIGHT, -1), (theme.DARK, 1)):
        steps = [lightness(colour) for colour in palette.ramp]
        assert all(sign * (after - before) > 0 for before, after in pairwise(steps))
        assert abs(lightness(palette.ink) - lightness(palette.surface)) > 150
        assert abs(lightness(palette.muted) - lightness(palette.surface)) > 90
