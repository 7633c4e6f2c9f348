"""Charts of the sink effect, the kinds of heads and context sizes: valid, described, and holding the rows."""

from itertools import combinations

import altair as alt
import duckdb
import numpy as np
import pytest
from numpy.typing import NDArray

from reports import theme
from reports.contexts import figures as contexts
from reports.contexts.figures import APART
from reports.figures import NOTHING_SELECTED, Figure
from reports.kinds import labels as kind_labels
from tests.made_up import warehouse
from tests.reports.conftest import DEGENERATE, THREE, Build
from tests.reports.drawings import build_figures, drawn, of_query, parts

STUDY = THREE

Charts = dict[str, alt.LayerChart]

SHOWN = {
    *("sink-effect", "sink-by-layer", "kinds-by-layer", "kinds-plane", "kinds-sensitivity", "kinds-curves"),
    *("kinds-patterns", "context-metrics", "context-elbows", "context-kinds", "contexts-none"),
}
"""The figures that these tests are about."""


@pytest.fixture(scope="module")
def charts(figures_of_three: dict[str, tuple[Build, Figure]]) -> Charts:
    """The charts of the study of three context sizes, by their keys on the page."""
    shown = {key: figures_of_three[key][1] for key in SHOWN - {"contexts-none"}}
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
def test_what_cannot_be_shown_says_why(figures_of_three: dict[str, tuple[Build, Figure]], key: str) -> None:
    builders = {build for name, (build, _) in figures_of_three.items() if name in SHOWN}
    with warehouse(DEGENERATE[key]) as connection:
        found = build_figures(connection, DEGENERATE[key], *builders)
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


@pytest.mark.parametrize("kind", BLINDNESS)
@pytest.mark.parametrize("palette", [theme.LIGHT, theme.DARK], ids=["light", "dark"])
def test_series_stay_apart_for_every_eye(palette: theme.Palette, kind: str) -> None:
    assert nearest(palette.series, kind) > 20
    assert nearest(("#c2560c", "#3d7a34"), "protan") < 20  # orange and green, which do not


@pytest.mark.parametrize("palette", [theme.LIGHT, theme.DARK], ids=["light", "dark"])
def test_marks_and_letters_stand_out(palette: theme.Palette) -> None:
    kinds = palette.series[: len(kind_labels.LABELS)]
    assert min(contrast(colour, palette.surface) for colour in kinds) >= 4.5  # letters on segments and cells
    assert min(contrast(colour, palette.surface) for colour in palette.series) >= 3
    assert min(contrast(colour, palette.surface) for colour in palette.ramp[theme.FIRST_SEEN :]) >= 3
    assert min(contrast(colour, palette.surface) for colour in palette.diverging) >= 2


@pytest.mark.parametrize("kind", BLINDNESS)
@pytest.mark.parametrize("palette", [theme.LIGHT, theme.DARK], ids=["light", "dark"])
def test_the_diverging_colours_run_from_a_middle_to_two_ends(palette: theme.Palette, kind: str) -> None:
    middle, outwards = len(palette.diverging) // 2, [contrast(colour, palette.surface) for colour in palette.diverging]
    assert len(outwards) == 2 * middle + 1
    for side in (outwards[middle::-1], outwards[middle:]):
        assert side == sorted(side)
    assert nearest((palette.diverging[0], palette.diverging[-1]), kind) > 20
