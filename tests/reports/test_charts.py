"""Every chart on its own: a valid specification that says what it shows, and holds the numbers of the rows."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import altair as alt
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from reports import theme
from reports.charts import attention as attention_charts
from reports.charts import bounds as bounds_charts
from reports.charts import chance as chance_charts
from reports.charts import elements, head_map
from reports.charts import recovery as recovery_charts
from reports.charts import separation as separation_charts
from reports.charts import values as values_charts
from reports.charts.bounds import COVERAGES
from reports.charts.elements import BARS, SEPARATION, edges, histogram
from reports.queries import ask
from tests.made_up import MadeUp, warehouse
from tests.reports.conftest import DEGENERATE, SMALL
from tests.reports.drawings import assert_described, drawn, of_query, of_shown, of_study, parts

Draw = Callable[[duckdb.DuckDBPyConnection, MadeUp], alt.LayerChart]


def curves(connection: duckdb.DuckDBPyConnection, study: MadeUp) -> Any:
    return ask(connection, "curves_by_n", study=study.study, query=study.query).table


def heads(connection: duckdb.DuckDBPyConnection, study: MadeUp, n: int) -> Any:
    return ask(connection, "heads_at_n", study=study.study, query=study.query, n=n).table


def positions(connection: duckdb.DuckDBPyConnection, study: MadeUp) -> Any:
    return ask(connection, "attention_over_heads", study=study.study, query=study.query).table


def only(table: pa.Table, column: str, value: str | int) -> pa.Table:
    return table.filter(pc.equal(table[column], value))


def attention(connection: duckdb.DuckDBPyConnection, study: MadeUp) -> alt.LayerChart:
    curve, fits = (of_query(connection, study, name) for name in ("weights_fit_curve", "assumption_weights_model"))
    return attention_charts.attention(
        positions(connection, study), curve, query=study.query, fit=next(iter(fits.to_pylist()), None)
    )


def margins(connection: duckdb.DuckDBPyConnection, study: MadeUp) -> alt.LayerChart:
    curve = only(of_shown(connection, study, "bounds_by_n"), "family", "printed")
    return bounds_charts.margins(only(curve, "metric", "recall"), of_query(connection, study, "regimes_of_model"))


PLANTED = {"parameter": "beta", "layer": 0, "head": 0, "planted": 1.0}
PLANTED |= {"fitted": 1.1, "difference": 0.1, "low": 0.9, "high": 1.3}
"""A row of ``planted_recovery``."""

CHARTS: dict[str, Draw] = {
    "precision_bounds": lambda c, s: separation_charts.metric_bounds(
        of_shown(c, s, "bounds_by_n"), metric="precision", elbow_n=2
    ),
    "f_r_min_bounds": lambda c, s: separation_charts.metric_bounds(
        of_shown(c, s, "bounds_by_n"), metric="f_r_min", elbow_n=None
    ),
    "precision_recall": lambda c, s: separation_charts.precision_recall(curves(c, s), marked_n=1),
    "elbows": lambda c, s: separation_charts.elbows(of_query(c, s, "elbow_by_head")),
    "precision_map": lambda c, s: separation_charts.metric_map(heads(c, s, 1), metric="precision", n=1),
    "recall_map": lambda c, s: separation_charts.metric_map(heads(c, s, 1), metric="recall", n=1),
    "auc": lambda c, s: chance_charts.chance(of_query(c, s, "separability_by_n"), measure="auc"),
    "auc_map": lambda c, s: chance_charts.chance_map(
        ask(c, "separability_at_n", study=s.study, query=s.query, measure="auc", n=min(4, s.query)).table,
        null="shuffled_values",
    ),
    "separation_curves": lambda c, s: chance_charts.separation_curves(of_query(c, s, "separation_curves")),
    "coverage": lambda c, s: bounds_charts.coverage(of_query(c, s, "coverage")),
    "width": lambda c, s: bounds_charts.width(of_query(c, s, "coverage")),
    "value_norm": lambda c, s: values_charts.value_norm(of_study(c, s, "value_norm_over_heads")),
    "norm_variation": lambda c, s: values_charts.norm_variation(of_study(c, s, "norm_variation_by_head")),
    "similarity_errors": lambda c, s: values_charts.similarity_errors(of_study(c, s, "similarity_fit_by_head")),
    "similarity": lambda c, s: values_charts.similarity(
        only(of_study(c, s, "similarity_curves"), "which", "worst"), title="Worst", domain=(0, 1)
    ),
    "attention": attention,
    "weight_variants": lambda c, s: attention_charts.weight_variants(of_query(c, s, "assumption_weights")),
    "sink_by_layer": lambda c, s: attention_charts.sink_by_layer(
        of_query(c, s, "sink_by_head"), of_study(c, s, "layer_profiles")
    ),
    "sink_map": lambda c, s: attention_charts.sink_map(of_query(c, s, "sink_by_head")),
    "margins": margins,
    "head_map": lambda c, s: head_map.head_map(of_query(c, s, "head_map"), of_study(c, s, "head_map_axes")),
    "gaps": lambda c, s: bounds_charts.gaps(
        only(of_study(c, s, "monte_carlo_grid"), "family", "printed"), metric="precision", title="Precision"
    ),
    "recovery": lambda *_: recovery_charts.recovery(pa.Table.from_pylist([PLANTED]), parameter="beta"),
}
NOTHING_OF = {
    "least": {
        "gaps",
        "head_map",
        "norm_variation",
        "separation_curves",
        "elbows",
        "coverage",
        "width",
        "similarity_errors",
        "similarity",
        "margins",
    },
    "one head": {"gaps", "elbows", "head_map"},
}
"""Charts that a study with one selection, or none of whose heads has an elbow, has no rows for; its report says so."""


@pytest.mark.one_case
@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_says_what_it_shows_each_time_in_colours_of_the_theme(
    small: duckdb.DuckDBPyConnection, name: str
) -> None:
    assert_described(lambda: CHARTS[name](small, SMALL))


@pytest.mark.slow
@pytest.mark.parametrize("key", ["least", "one head"])
def test_charts_of_very_little_are_valid(key: str) -> None:
    study = DEGENERATE[key]
    with warehouse(study) as connection:
        for name in set(CHARTS) - NOTHING_OF.get(key, {"gaps"}):
            assert drawn(CHARTS[name](connection, study)), name


HEAD = "layer = 1 AND head = 2"
ONE = f"{HEAD} AND sequence = 1"
OF_NULL = "measure = 'auc' AND null_model = 'shuffled_values'"


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("precision_bounds", "UPDATE selection_means_model SET precision_low = 0.01 WHERE n = 5"),
        (
            "precision_bounds",
            "UPDATE bound_means SET precision_lower = 0.5 WHERE n = 5 AND family = 'printed' AND " + HEAD,
        ),
        (
            "f_r_min_bounds",
            "UPDATE bound_means SET f_r_min_lower = 0.5 WHERE n = 5 AND family = 'scale_free' AND " + HEAD,
        ),
        ("precision_recall", f"UPDATE selection_means SET recall = 0 WHERE n = 1 AND {HEAD}"),
        ("elbows", f"UPDATE elbows SET elbow_n = 19 WHERE {HEAD}"),
        ("precision_bounds", f"UPDATE attention_rows SET n_keys = 12 WHERE {ONE}"),
        ("precision_recall", f"UPDATE attention_rows SET n_keys = 12 WHERE {ONE}"),
        ("auc", f"UPDATE separability_model SET null_value = 0.1 WHERE n = 4 AND {OF_NULL}"),
        ("auc", f"UPDATE separability_model SET difference_high = 0.9 WHERE n = 4 AND {OF_NULL}"),
        ("auc_map", f"UPDATE separability SET difference_low = -1 WHERE n = 4 AND {OF_NULL} AND {HEAD}"),
        (
            "separation_curves",
            "UPDATE separation_curves SET recall = 0.9 WHERE n = 16 AND auc_rank = 'median' AND point = 5",
        ),
        ("coverage", f"UPDATE bound_means SET recall_lower = 0.99 WHERE n = 5 AND family = 'printed' AND {HEAD}"),
        ("width", f"UPDATE bound_means SET recall_lower = 0.5 WHERE n = 5 AND family = 'printed' AND {HEAD}"),
        ("norm_variation", "UPDATE assumption_norms SET cv_of_mean_norm = 0.5 WHERE layer = 1 AND kv_head = 0"),
        ("similarity_errors", "UPDATE assumption_similarity SET mae = 0.055 WHERE layer = 1 AND kv_head = 0"),
        (
            "similarity",
            "UPDATE cosine_by_distance SET mean_cosine = 0.9 WHERE distance = 3 AND layer = 2 AND kv_head = 1",
        ),
        ("attention", "UPDATE assumption_weights_model SET p_base = 0.5"),
        ("weight_variants", f"UPDATE assumption_weights SET variant = 'tied' WHERE variant <> 'tied' AND {HEAD}"),
        ("margins", f"UPDATE bound_means SET margin = 0.5 WHERE n = 5 AND family = 'printed' AND {HEAD}"),
        (
            "gaps",
            "UPDATE monte_carlo SET precision_gap = -1 WHERE scale = 'raw' AND n = 4 AND head_dim = 8 AND beta = 'inf'",
        ),
        ("precision_map", f"UPDATE selection_means SET precision = 0.5 WHERE n = 1 AND {HEAD}"),
        ("recall_map", f"UPDATE selection_means SET recall = 0 WHERE n = 1 AND {HEAD}"),
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
    assert before != after


def test_charts_hold_the_rows(small: duckdb.DuckDBPyConnection) -> None:
    """Six significant digits of every number of the table."""
    table = curves(small, SMALL)
    shown_rows = drawn(separation_charts.precision_recall(table, marked_n=4))
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
        chart = separation_charts.metric_map(heads(connection, study, 5), metric="recall", n=5)
    assert len(drawn(chart)) == 2 * study.heads
    scales = [part["encoding"]["y"]["scale"]["domain"] for part in parts(chart.to_dict()) if "encoding" in part]
    assert all(domain == [0, 1, 2] for domain in scales)


def test_weights_that_underflow_stay_on_the_log_axis(small: duckdb.DuckDBPyConnection) -> None:
    table = positions(small, SMALL)
    zero = [{**row, "p10": 0.0} for row in table.to_pylist()]
    none = pa.table({"first_position": pa.array([], pa.int32()), "fitted": pa.array([], pa.float64())})
    spec = attention_charts.attention(pa.Table.from_pylist(zero), none, query=SMALL.query, fit=None).to_dict()
    domains = [
        part["encoding"]["y"]["scale"]["domain"]
        for part in parts(spec)
        if "encoding" in part and "scale" in part["encoding"].get("y", {})
    ]
    assert domains
    assert all(0 < low < high == 1 for low, high in domains)


def test_a_mean_outside_its_bounds_is_marked(small: duckdb.DuckDBPyConnection) -> None:
    table = of_shown(small, SMALL, "bounds_by_n")
    rows = [row | {"inside": None if row["inside"] is None else True} for row in table.to_pylist()]
    assert not any(
        row["outside"]
        for row in drawn(separation_charts.metric_bounds(pa.Table.from_pylist(rows), metric="recall", elbow_n=1))
    )
    for family in ("printed", "scale_free"):
        moved = [row | {"inside": False} if (row["family"], row["n"]) == (family, 6) else row for row in rows]
        chart = separation_charts.metric_bounds(pa.Table.from_pylist(moved), metric="recall", elbow_n=1)
        assert [row["n"] for row in drawn(chart) if row["outside"]] == [6]
        filters = [part["filter"] for part in parts(chart.to_dict()) if "filter" in part]
        assert "datum.outside" in filters


def test_bounds_are_told_apart_without_colour(small: duckdb.DuckDBPyConnection) -> None:
    spec = CHARTS["precision_bounds"](small, SMALL).to_dict()
    dashes = {
        str(part["encoding"]["strokeDash"]["scale"]["range"])
        for part in parts(spec)
        if "strokeDash" in part.get("encoding", {})
    }
    assert dashes == {"[[1, 0], [1, 5], [7, 4], [9, 4, 1, 4]]"}


def test_coverage_draws_no_line_for_what_no_row_has(small: duckdb.DuckDBPyConnection) -> None:
    """A line without any value would leave its axis without an extent, which Vega-Lite warns of."""
    rows = of_query(small, SMALL, "coverage").to_pylist()

    def lines(**changed: Any) -> list[str]:
        spec = bounds_charts.coverage(pa.Table.from_pylist([row | changed for row in rows])).to_dict()
        dashes = [part["encoding"]["strokeDash"] for part in parts(spec) if "strokeDash" in part.get("encoding", {})]
        domain: list[str] = dashes[0]["scale"]["domain"]
        return domain

    assert lines() == list(COVERAGES.values())
    assert lines(precision_coverage_premise=None, recall_coverage_premise=None) == list(COVERAGES.values())[:2]


def test_histograms_count_everything_once() -> None:
    values = [0.0, 0.01, 0.02, 0.02, 0.31]
    bars = histogram(values, edges(values))
    assert sum(bar["number"] for bar in bars) == len(values)
    for bar in bars:
        inside = [value for value in values if bar["low"] <= value < bar["high"] or value == bar["high"] == max(values)]
        assert bar["number"] == len(inside)
    steps = {round(bar["high"] - bar["low"], 9) for bar in bars}
    assert steps == {0.02}


@pytest.mark.parametrize("values", [[0.3], [0.3, 0.3], [1e-9, 5.0], [2.0, 2.5]])
def test_edges_hold_their_values(values: list[float]) -> None:
    for marks in (edges(values), edges(values, log=True)):
        assert all(low < high for low, high in pairwise(marks))
        assert len(marks) <= 2 * BARS
        assert sum(bar["number"] for bar in histogram(values, marks)) == len(values)


def test_elbows_far_out_share_bars() -> None:
    rows = [{"elbow_n": n, "status": "ok"} for n in (1, 4, 5, 8, 9, 300)] + [{"elbow_n": None, "status": "no_decline"}]
    bars = drawn(separation_charts.elbows(pa.Table.from_pylist(rows)))
    assert {bar["bin"]: bar["heads"] for bar in bars} == {"1": 1, "4": 1, "5–8": 2, "9–16": 1, "257–512": 1}
    assert len({bar["range"] for bar in bars[:2]}) == 1
    assert {bar["range"] for bar in bars[2:]}.isdisjoint({bar["range"] for bar in bars[:2]})


def test_phases_are_marked_where_there_are_some(small: duckdb.DuckDBPyConnection) -> None:
    table, curve = positions(small, SMALL), of_query(small, SMALL, "weights_fit_curve")

    def notes(**fit: Any) -> list[str]:
        spec = attention_charts.attention(table, curve, query=SMALL.query, fit=fit).to_dict()
        return [row["note"] for rows in spec["datasets"].values() for row in rows if "note" in row]

    assert notes(variant="tied", t_1=6, t_2=18) == ["uniform", "T₁ = 6", "T₂ = 18"]
    assert notes(variant="growth", t_1=6, t_2=6) == ["uniform", "T₁ = T₂ = 6"]
    assert notes(variant="plateau", t_1=22, t_2=22) == notes(variant=None, t_1=None, t_2=None) == ["uniform"]


@pytest.mark.parametrize("name", ["similarity", "precision_recall"])
def test_labels_of_a_log_axis_stay_apart(small: duckdb.DuckDBPyConnection, name: str) -> None:
    axes = [part["x"]["axis"] for part in parts(CHARTS[name](small, SMALL).to_dict()) if "axis" in part.get("x", {})]
    assert axes
    assert {(axis["labelOverlap"], axis["labelSeparation"]) for axis in axes} == {("greedy", SEPARATION)}


def test_tooltips_of_fits_are_titled_in_words() -> None:
    chart = recovery_charts.recovery(pa.Table.from_pylist([PLANTED]), parameter="beta").to_dict()
    (tooltip,) = [part["tooltip"] for part in parts(chart) if "tooltip" in part]
    assert {line["field"]: line["title"] for line in tooltip}.items() >= {("planted", "Planted"), ("fitted", "Fitted")}


def test_numbers_that_are_not_finite_are_left_out() -> None:
    rows = [PLANTED, PLANTED | {"planted": float("inf")}]
    assert len(drawn(recovery_charts.recovery(pa.Table.from_pylist(rows), parameter="beta"))) == 1


def test_the_palettes_are_distinct_and_monotone() -> None:
    def lightness(colour: str) -> float:
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    for palette, sign in ((theme.LIGHT, -1), (theme.DARK, 1)):
        steps = [lightness(colour) for colour in palette.ramp]
        assert all(sign * (after - before) > 0 for before, after in pairwise(steps))
        assert abs(lightness(palette.ink) - lightness(palette.surface)) > 150
        assert abs(lightness(palette.muted) - lightness(palette.surface)) > 90


def test_copies_of_a_chart_share_its_rows_and_have_the_same_channels() -> None:
    chart = elements.layer_chart([{"n": 1, "share": 0.5}], "Title", "Description", elements.level(0.5, "half"))
    assert chart.copy().data.values is chart.data.values
    assert chart.properties(height=9).to_dict()["layer"] == chart.to_dict()["layer"]
    rule, name = chart.to_dict()["layer"][0]["layer"]
    assert rule["encoding"] == {"y": {"field": "share", "type": "quantitative"}}
    assert name["encoding"]["x"] == {"value": "width"}
