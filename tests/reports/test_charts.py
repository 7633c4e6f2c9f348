"""Single charts: valid, described, to scale, holding the rows, and marking what is outside, missing or far away."""

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, pairwise
from typing import Any

import altair as alt
import duckdb
import numpy as np
import pytest
import vl_convert
from numpy.typing import NDArray

from dagster_project.analysis.claims.judging import CLAIMS
from geometry.selection.example import build_intuition
from reports import elements, theme
from reports.assumptions import figures as assumptions
from reports.bounds import figures as bounds
from reports.bounds.figures import COVERAGES
from reports.contexts import figures as contexts
from reports.contexts.figures import APART
from reports.elements import BARS, edges, equal_scales, histogram, layer_chart, tooltips
from reports.families import charts as family_charts
from reports.families import figures as families
from reports.families.figures import tabulate_onsets
from reports.figures import NOTHING_SELECTED, Figure
from reports.findings.numbers import Row
from reports.head_geometry import figures as head_geometry
from reports.head_geometry.figures import project_vectors
from reports.intuition import figures as example
from reports.kinds import labels as kind_labels
from reports.page import _build_kinds, _build_separation
from reports.separation import figures as separation
from reports.sink import figures as sink
from tests.made_up import MadeUp, warehouse
from tests.reports.conftest import DEGENERATE, SMALL, THREE
from tests.reports.drawings import assert_described, build_figures, changed, drawn, of_query, of_shown, parts


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


STUDY = THREE

Charts = dict[str, alt.LayerChart]

SHOWN = {
    *("sink-effect", "sink-by-layer", "kinds-by-layer", "kinds-plane", "kinds-sensitivity", "kinds-curves"),
    *("kinds-patterns", "context-metrics", "context-elbows", "context-kinds", "contexts-none"),
}
"""The figures that these tests are about."""

BUILDERS = (assumptions.build_sinks, _build_separation, _build_kinds, sink.build_section)
"""What builds their sections."""


@pytest.fixture(scope="module")
def charts(three: duckdb.DuckDBPyConnection) -> Charts:
    """The charts of the study of three context sizes, by their keys on the page."""
    built = build_figures(three, THREE, *BUILDERS)
    shown = {key: built[key] for key in SHOWN - {"contexts-none"}}
    assert not [key for key, figure in shown.items() if figure.empty]
    return dict(chart for figure in shown.values() for chart in figure.drawn)


def test_segments_stand_on_each_other_with_a_letter_where_there_is_room() -> None:
    shares = zip((0, 1), ((0.5, 0.04, 0.36, 0.1), (0.0, 0.75, 0.0, 0.25)), strict=True)
    rows = [
        {"layer": layer, "label": label, "share": share}
        for layer, found in shares
        for label, share in reversed(list(zip(kind_labels.LABELS, found, strict=True)))
    ]
    segments = {(row["layer"], row["label"]): row for row in kind_labels.stack_shares(rows, "layer")}
    assert {label for _, label in segments} == {*kind_labels.KINDS}, "what meets no rule is the room that is left"
    assert [segments[0, kind]["low"] for kind in kind_labels.KINDS] == pytest.approx([0, 0.5, 0.54])
    assert [segments[0, kind]["high"] for kind in kind_labels.KINDS] == pytest.approx([0.5, 0.54, 0.9])
    assert [segments[0, kind]["letter"] for kind in kind_labels.KINDS] == ["T", "", "R"]
    assert [segments[1, kind]["letter"] for kind in kind_labels.KINDS] == ["", "M", ""]
    assert segments[0, "Reset"]["middle"] == pytest.approx(0.72)
    many = [{"layer": layer, "label": "Mixer", "share": 1.0} for layer in range(kind_labels.LETTERED + 1)]
    assert {row["letter"] for row in kind_labels.stack_shares(many, "layer")} == {""}


def test_kinds_are_told_apart_without_colour(charts: Charts) -> None:
    for marks in (kind_labels.DASHES, kind_labels.SHAPES, kind_labels.LETTERS):
        assert list(marks) == list(kind_labels.LABELS)
        assert len({str(mark) for mark in marks.values()}) == 4
    for name, channel, marks in (
        ("kinds-curves-2", "strokeDash", kind_labels.DASHES),
        ("kinds-plane", "shape", kind_labels.SHAPES),
    ):
        encodings = [part["encoding"] for part in parts(charts[name].to_dict()) if "encoding" in part]
        scales = [encoding[channel]["scale"] for encoding in encodings if channel in encoding]
        assert scales == [{"domain": list(kind_labels.LABELS), "range": list(marks.values())}] * len(scales) != []


def test_heads_that_meet_no_rule_look_different() -> None:
    """They are faint or hollow, without a letter, in the colour of the nearest kind."""
    rows = [
        {"label": "Mixer", "nearest": "Mixer"},
        {"label": "Other", "nearest": "Reset"},
        {"label": "Other", "nearest": None},
    ]
    found = [(row["near"], row["met"], row["letter"]) for row in kind_labels.add_nearest(rows)]
    assert found == [("Mixer", True, "M"), ("Reset", False, ""), ("Other", False, "")]
    hollow, filled = (
        layer.to_dict()["mark"]["filled"] for layer in kind_labels.dots(rows, alt.X("x:Q"), alt.Y("y:Q"), [])
    )
    assert (hollow, filled) == (False, True)


def test_borders_of_the_rules_stand_at_the_thresholds(three: duckdb.DuckDBPyConnection, charts: Charts) -> None:
    thresholds = of_query(three, STUDY, "taxonomy_thresholds")
    values = {row["threshold"]: row["value"] for row in thresholds}
    spec = charts["kinds-plane"].to_dict()
    rules = [layer for layer in spec["layer"] if layer["mark"]["type"] == "rule"]
    (reset,), (mixer,) = (spec["datasets"][rule["data"]["name"]] for rule in rules)
    assert reset["y"] == values["last_weak"]
    assert mixer == {"x": values["last_rises"]}
    assert [{"y", "x2"} <= set(rules[0]["encoding"]), "y" in rules[1]["encoding"]] == [True, False]


ALONE = {"low": None, "high": None}
"""Ends of the interval of one sequence: there is none."""


def test_names_of_lines_stay_apart_and_within_the_chart() -> None:
    means = [0.0, 0.001, 0.002, 0.5, 0.999, 1.0, 1.0]
    rows = [
        {"query": query, "n_keys": 8, "metric": "recall", "n": 2**index, "heads": 1, "mean": mean, **ALONE}
        for query in (7, 15)
        for index, mean in enumerate(means, start=1)
    ]
    rows = [row | {"metric": "precision"} for row in rows]
    chart = contexts.draw_context_metric(rows, metric="precision").to_dict()
    ends = next(rows for rows in chart["datasets"].values() if "place" in rows[0])
    places = [row["place"] for row in ends]
    assert {row["note"]: row["end"] for row in ends} == {
        f"N = {2**index}": mean for index, mean in enumerate(means, start=1)
    }
    assert np.diff(places).min() >= APART / theme.HEIGHT - 1e-9
    assert max(places) <= 1
    assert places[3] == 0.5


def test_recall_against_context_size_fills_the_axis_and_leaves_out_what_is_trivial() -> None:
    means = {1: 1.0, 2: 0.2, 4: 0.1}
    rows = [
        {"query": query, "n_keys": 8, "metric": "recall", "n": n, "heads": 1, "mean": mean, **ALONE}
        for query in (7, 15)
        for n, mean in means.items()
    ]
    chart = contexts.draw_context_metric(rows, metric="recall")
    assert {row["n"] for row in drawn(chart)} == {2, 4}
    spec = chart.to_dict()
    domains = [part["y"]["scale"]["domain"] for part in parts(spec) if "scale" in part.get("y", {})]
    assert {tuple(domain) for domain in domains} == {(0, 0.2)}
    (dash,) = (part["strokeDash"]["scale"] for part in parts(spec) if isinstance(part.get("strokeDash"), dict))
    assert len({str(style) for style in dash["range"]}) == len(dash["domain"]) == 2
    alone = contexts.draw_context_metric([row for row in rows if row["n"] == 1], metric="recall")
    assert {row["n"] for row in drawn(alone)} == {1}


def test_shares_are_drawn_where_two_contexts_have_them() -> None:
    rows = [
        {"query": query, "n_keys": query + 1, "metric": "recall", "n": n, "heads": 1, "mean": 0.5, **ALONE}
        for query in (7, 15, 16)
        for n in (1, 2, 4, 8)
    ]
    chart = contexts.draw_context_metric(rows, metric="recall", same="share")
    assert {(row["context"], row["n"], row["share"]) for row in drawn(chart)} == {
        *((8, 2, 4), (8, 4, 2), (16, 4, 4), (16, 8, 2))
    }
    ends = next(rows for rows in chart.to_dict()["datasets"].values() if "place" in rows[0])
    assert {row["note"] for row in ends} == {"1/2", "1/4"}
    apart = [row for row in rows if row["query"] != 15]
    assert not contexts.has_shares(apart)


NO_LABELS = {"kinds-patterns": "no head looks at a known place as only some do"}
HIDDEN = {"sink-by-layer": "hides position 0 from every head"}
SELECTED = {"sink-effect": NOTHING_SELECTED, "kinds-plane": "two keys", "kinds-curves": NOTHING_SELECTED}
EMPTY = {
    "least": {"sink-effect": "needs 3 heads", **NO_LABELS},
    "hidden sink": {"sink-effect": "a sliding window hides the sink", **HIDDEN},
    "only itself": {**SELECTED, **HIDDEN, **NO_LABELS},
}
"""What some studies cannot show, and why; besides, all of them name one query."""


@pytest.mark.one_case
@pytest.mark.parametrize("key", EMPTY)
def test_what_cannot_be_shown_says_why(key: str) -> None:
    with warehouse(DEGENERATE[key]) as connection:
        found = build_figures(connection, DEGENERATE[key], *BUILDERS)
    shown = {name: figure for name, figure in found.items() if name in SHOWN}
    empty = {name: figure.finding for name, figure in shown.items() if figure.empty}
    assert "queries: [63, 127, 255, 511]" in empty.pop("contexts-none")
    assert set(empty) == set(EMPTY[key])
    assert all(why in empty[name] for name, why in EMPTY[key].items())


def linear(colour: str) -> NDArray[np.float64]:
    """Red, green and blue in proportion to light (sRGB)."""
    channels = np.array([int(colour[index : index + 2], 16) for index in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """Ratio of contrast after WCAG 2."""
    low, high = sorted(float(linear(colour) @ (0.2126, 0.7152, 0.0722)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


BLINDNESS = {
    "none": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
"""What is left of light without one kind of cone (Machado, Oliveira and Fernandes 2009, severity 1)."""


def lab(colour: str, kind: str) -> NDArray[np.float64]:
    """Colour as it is seen, in CIELAB, where equal distances look about equally different."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(to_xyz @ np.clip(np.array(BLINDNESS[kind]) @ linear(colour), 1e-4, 1) / (0.9505, 1, 1.089))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def nearest(colours: tuple[str, ...], kind: str) -> float:
    return min(float(np.linalg.norm(lab(one, kind) - lab(other, kind))) for one, other in combinations(colours, 2))


@pytest.mark.parametrize("palette", [theme.LIGHT, theme.DARK], ids=["light", "dark"])
def test_colours_stay_apart_for_every_eye_and_stand_out(palette: theme.Palette) -> None:
    """Those of either sign run from a middle to two ends."""
    for kind in BLINDNESS:
        assert nearest(palette.series, kind) > 20
        assert nearest((palette.diverging[0], palette.diverging[-1]), kind) > 20
    assert nearest(("#c2560c", "#3d7a34"), "protan") < 20  # orange and green, which do not

    def stand_out(colours: Iterable[str]) -> float:
        return min(contrast(colour, palette.surface) for colour in colours)

    assert stand_out(palette.series[: len(kind_labels.LABELS)]) >= 4.5  # letters on segments and cells
    assert stand_out((*palette.series, *palette.ramp[theme.FIRST_SEEN :])) >= 3
    assert stand_out(palette.diverging) >= 2
    outwards = [contrast(colour, palette.surface) for colour in palette.diverging]
    middle = len(outwards) // 2
    for side in (outwards[middle::-1], outwards[middle:]):
        assert side == sorted(side)


KEYS = ("diagnostics", "contributions", "spheres", "effective-dimension")


def figures(connection: duckdb.DuckDBPyConnection, study: MadeUp) -> dict[str, Figure]:
    """The figures of the heads of a study."""
    return build_figures(connection, study, head_geometry.build_section)


@pytest.fixture(scope="module")
def toy() -> Figure:
    return example.build_example()


def scales(spec: Any, channel: str) -> list[Any]:
    """The scales of a channel in all layers."""
    encodings = [part["encoding"] for part in parts(spec) if "encoding" in part]
    return [encoding[channel]["scale"] for encoding in encodings if "scale" in encoding.get(channel, {})]


def contribution(query: int, position: int, norm: float, cosine: float | None = 0.5) -> dict[str, Any]:
    role = "last" if position == query else "sink" if position == 0 else "other"
    return {"query": query, "position": position, "role": role, "mean_norm_y": norm, "mean_cos_last": cosine}


def scattered(rows: list[dict[str, Any]]) -> alt.LayerChart:
    return head_geometry.draw_contributions(rows, title="a", largest=0.5)


def test_contributions_stand_in_columns_from_first_to_last() -> None:
    rows = [contribution(query, position, 0.1 + position) for query in (4, 8) for position in range(query + 1)]
    shown = drawn(scattered(rows))
    assert [(row["context"], row["share"]) for row in shown] == [
        (row["query"] + 1, row["position"] / row["query"]) for row in rows
    ]
    assert [row["norm"] for row in shown] == [pytest.approx(row["mean_norm_y"]) for row in rows]
    assert {row["kind"] for row in shown if row["marked"]} == {"sink", "last token"}


def test_signs_are_seen_without_colour() -> None:
    rows = [
        contribution(4, 0, 1.0),
        contribution(4, 1, 1.0, -0.1),
        contribution(4, 2, 1.0, 0.1),
        contribution(4, 4, 1.0),
    ]
    chart = scattered(rows)
    assert [row["kind"] for row in drawn(chart)] == ["sink", "other, cosine below 0", "other key", "last token"]
    (shapes, *_) = scales(chart.to_dict(), "shape")
    assert len(set(shapes["range"])) == len(shapes["domain"]) == 4
    assert all(scale["domain"] == [-0.5, 0, 0.5] for scale in scales(chart.to_dict(), "color"))


def test_the_log_axis_holds_what_is_drawn_and_nothing_that_is_0() -> None:
    chart = scattered([contribution(4, position, norm) for position, norm in enumerate([0.0, 3e-9, 3e-4, 0.2, 30.0])])
    norms = [row["norm"] for row in drawn(chart)]
    assert norms == [3e-4, 0.2, 30.0]
    domains = [scale["domain"] for scale in scales(chart.to_dict(), "y")]
    assert domains
    assert all(0 < low <= 3e-4 and high >= 30 for low, high in domains)
    (single,) = drawn(scattered([contribution(0, 0, 0.1)]))
    assert single["norm"] == 0.1


def direction(position: int, x: float, y: float, z: float, *, rank: int | None = None) -> dict[str, Any]:
    role = {0: "sink", 9: "last"}.get(position, "other")
    row = {"position": position, "x": x, "y": y, "z": z, "mean_weight": None if rank is None else 1 / rank}
    return row | {"role": role, "selected_rank": rank}


def ball(points: list[dict[str, Any]], n: int = 2) -> alt.LayerChart:
    shares = {"share_1": 0.16, "share_2": 0.05, "share_3": 0.04, "effective_dimension": 9.0, "head_dim": 16}
    return head_geometry.draw_sphere(points, title="a", of_kv_head=shares, n=n)


def test_the_view_is_a_rotation() -> None:
    turned = project_vectors(np.eye(3))
    np.testing.assert_allclose(turned @ turned.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(turned) == pytest.approx(1)
    assert turned[0, 2] == turned[:, 2].max()  # the first direction comes towards the reader


def test_points_are_seen_where_they_lie_and_by_their_depth() -> None:
    points = [direction(1, 1.0, 0.0, 0.0, rank=1), direction(2, -1.0, 0.0, 0.0, rank=3), direction(0, 0.0, 0.6, 0.0)]
    shown = {row["position"]: row for row in drawn(ball(points))}
    for point in points:
        row = shown[point["position"]]
        np.testing.assert_allclose(
            [row["x"], row["y"], row["depth"]], project_vectors(np.array([point[axis] for axis in "xyz"])), atol=1e-4
        )
    assert shown[1]["size"] > shown[2]["size"]
    assert shown[1]["strength"] > shown[2]["strength"]
    assert [row["position"] for row in drawn(ball(points))] == [2, 1, 0]  # from behind, the marked ones in front of all
    assert shown[0]["length"] == pytest.approx(0.6)


def rings(chart: alt.LayerChart) -> list[tuple[np.ndarray, float]]:
    """Center and radius of every closed polygon of a chart."""
    found = []
    for rows in chart.to_dict()["datasets"].values():
        corners = np.array([[row["x"], row["y"]] for row in rows if "order" in row and "line" not in row])
        if len(corners):
            center = (corners.min(axis=0) + corners.max(axis=0)) / 2
            radii = np.linalg.norm(corners - center, axis=1)
            np.testing.assert_allclose(radii, radii[0], atol=2e-4)
            found.append((center, float(radii[0])))
    return sorted(found, key=lambda ring: ring[1])


def test_units_are_as_long_on_both_axes_whatever_the_size() -> None:
    scales = [scale.to_dict()["domain"] for scale in equal_scales((2.0, -1.0), 0.5)]

    def ends(width: float, height: float) -> list[list[float]]:
        known = {"width": width, "height": height, "max": max}
        return [[eval(end["expr"], {"__builtins__": {}}, known) for end in domain] for domain in scales]

    for width, height in ((300, 250), (250, 250), (200, 250), (0, 250)):
        (left, right), (low, high) = ends(width, height)
        assert (right - left) / max(width, 1) == pytest.approx((high - low) / height)
        assert min(right - left, high - low) == pytest.approx(1)
        assert ((left + right) / 2, (low + high) / 2) == (pytest.approx(2), pytest.approx(-1))


def test_the_balls_are_drawn_to_scale_around_s(toy: Figure) -> None:
    found = build_intuition()
    inner, outer = rings(toy.charts[2])
    for (center, radius), expected in ((inner, found.r_min), (outer, found.r_max)):
        np.testing.assert_allclose(center, found.s, atol=2e-4)
        assert radius == pytest.approx(expected, abs=2e-4)


def test_the_example_is_that_of_geometry(toy: Figure) -> None:
    found, rows = build_intuition(), toy.table.to_pylist()
    assert [row["selected"] for row in rows] == found.selected.tolist()
    assert sum(row["selected"] and row["within"] for row in rows) == found.k_in
    assert sum(not row["selected"] and row["within"] for row in rows) == found.k_out
    assert "Recall is 2/3" in toy.finding
    assert "Precision is 3/8" in toy.finding
    for chart, places in zip(toy.charts, (found.values, found.scaled, found.scaled), strict=True):
        np.testing.assert_allclose([[row["x"], row["y"]] for row in drawn(chart)], places, atol=1e-5)
    for row, y in zip(rows, found.scaled, strict=True):
        assert row["distance"] == pytest.approx(float(np.linalg.norm(y - found.s)))


@pytest.mark.slow
def test_a_hidden_sink_leaves_its_lines_out_and_is_told() -> None:
    with warehouse(DEGENERATE["hidden sink"]) as connection:
        found = figures(connection, DEGENERATE["hidden sink"])
    specs = [chart.to_dict() for chart in found["diagnostics"].charts]
    assert any("A window hides the sink." in spec["description"] for spec in specs)
    shown = {name for scale in scales(specs, "strokeDash") for name in scale["domain"]}
    assert shown == {"the sum", "without last", "last token"}
    assert "A window hides the sink." in found["contributions"].finding


def test_vectors_of_norm_0_are_told(three: duckdb.DuckDBPyConnection) -> None:
    changes = (
        "UPDATE principal_directions SET status = 'zero', share_1 = NULL, effective_dimension = NULL",
        "UPDATE attention_by_position SET mean_norm_y = 0",
        "UPDATE selection_means SET cos_sink = NULL, cos_last = NULL",
    )
    with changed(three, *changes):
        found = figures(three, THREE)
    assert "norm 0" in found["spheres"].finding
    assert "norm 0" in found["effective-dimension"].finding
    assert found["contributions"].finding == "No key contributes anything."
    assert all(found[key].empty for key in KEYS[1:])
    assert not found["diagnostics"].stacked
    assert "No cos(s_N, v_L)" in found["diagnostics"].finding


STATEMENTS = {claim.name: claim.statement for claim in CLAIMS}


def list_values(spec: dict, column: str) -> list[dict]:
    """The rows of the chart's data that have a column."""
    return next(rows for rows in spec["datasets"].values() if column in rows[0])


def test_the_map_of_verdicts_has_the_words_of_every_claim() -> None:
    rows = [
        {"claim": claim, "statement": words, "study": label, "member": member, "label": label, "verdict": verdict}
        for claim, words in STATEMENTS.items()
        for member, (label, verdict) in enumerate({"step0": "undecided", "step1": None}.items())
    ]
    spec = family_charts.verdicts([{**row, "p_holm": 0.5} for row in rows]).to_dict()
    written = {row["claim"]: row["words"] for row in list_values(spec, "words")}
    assert {claim: " ".join(lines) for claim, lines in written.items()} == STATEMENTS
    assert max(len(line) for lines in written.values() for line in lines) <= family_charts.CLAIM_WIDTH
    (text,) = (layer for layer in spec["layer"] if layer["encoding"].get("text", {}).get("field") == "words")
    assert text["encoding"]["y"]["axis"] is None
    lines = max(len(lines) for lines in written.values())
    assert spec["height"] >= len(written) * (lines * family_charts.CLAIM_LINE + family_charts.CLAIM_CELLS)


@pytest.mark.parametrize("ordered", [True, False])
def test_lines_and_points_beside_chance_differ_by_more_than_colour(*, ordered: bool) -> None:
    rows = [
        {"label": label, "member": member, "quantity": f"recall{end}", "value": 0.5, "value_low": 0.4, "value_high": 1}
        for member, label in enumerate(("one", "two"))
        for end in family_charts.BESIDE
    ]
    spec = family_charts.separation_and_chance(rows, "recall", "Recall", ordered=ordered).to_dict()
    channel = "strokeDash" if ordered else "shape"
    scales = [layer["encoding"][channel]["scale"] for layer in spec["layer"] if channel in layer["encoding"]]
    assert len(scales) >= len(family_charts.BESIDE)
    for scale in scales:
        assert scale["domain"] == list(family_charts.BESIDE.values())
        assert len({str(drawn) for drawn in scale["range"]}) == len(family_charts.BESIDE)


@pytest.mark.parametrize(("members", "axis", "title"), [(4, None, "Study"), (40, "context_length", "Context length")])
def test_the_axis_is_named_and_so_is_each_of_few_members(members: int, axis: str | None, title: str) -> None:
    x = family_charts.member_axis(
        [{"label": f"a{member}", "member": member, "axis": axis} for member in range(members)]
    ).to_dict()
    assert (x["title"], x["axis"]["labelOverlap"]) == (title, members > family_charts.MOST_LABELS)


def test_onsets_between_the_same_members_are_one_row_that_names_their_heads() -> None:
    onset = {"quantity": "sink_weight", "threshold": 0.3, "last_below": "a", "first_above": "b"}
    places = [(None, None), (1, None), (0, 2), (1, 0)]
    rows = [{**onset, "layer": layer, "head": head} for layer, head in places]
    listing = tabulate_onsets([*rows, {**onset, "first_above": "c", "layer": 3, "head": 1}])
    assert [row[-1] for row in listing.rows] == ["model, layer 1, 0.2, 1.0", "3.1"]


def test_claims_that_no_member_can_test_are_counted() -> None:
    assert families.describe_untested(set()) == ""
    assert families.describe_untested({"a"}) == "1 claim that no study can test is left out."
    assert families.describe_untested({"a", "b"}) == "2 claims that no study can test are left out."


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


def test_verdicts_that_differ_are_told_and_others_counted() -> None:
    verdicts = {
        "same": ("supported", "supported"),
        "open": ("undecided", "supported"),
        "turns": ("supported", "not supported"),
    }
    rows = [
        {"claim": claim, "statement": f"So {claim}", "label": label, "verdict": verdict}
        for claim, own in verdicts.items()
        for label, verdict in zip(("step0", "step9"), own, strict=True)
    ]
    assert families.tell_differences([], TRENDS, rows) == ["‘So turns’ is supported in step0, and not in step9."]


def test_the_largest_lines_are_named_where_their_names_have_room() -> None:
    ends = {"value_low": None, "value_high": None}
    rows = [
        {"member": member, "label": f"step{member}", "layer": 0, "head": head, "value": member * value, **ends}
        | {"appears": value > 0.3}
        for member in (0, 1)
        for head, value in enumerate((0.9, 0.89, 0.5, 0.2))
    ]
    spec = family_charts.traces(rows, "Sink", threshold=0.3).to_dict()
    assert '["0.0", "0.2"]' in str(spec["layer"]), "0.1 has no room, and 0.3 does not come to exceed the threshold"
    assert "'share': 0.3" in str(spec["datasets"])
