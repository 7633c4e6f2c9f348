"""Charts of the sink effect, the kinds of heads and context sizes: valid, described, and holding the rows."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations
from typing import Any

import altair as alt
import duckdb
import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from reports import theme
from reports.charts import contexts as contexts_charts
from reports.charts import labels
from reports.charts import patterns as pattern_charts
from reports.charts import sink as sink_charts
from reports.charts import taxonomy as taxonomy_charts
from reports.charts.contexts import APART
from reports.figures import attention, contexts, sink, taxonomy
from reports.figures.parts import NOT_ANALYSED, NOTHING_SELECTED, Figure, Source
from reports.findings import taxonomy as findings
from tests.made_up import MadeUp, warehouse
from tests.reports.conftest import DEGENERATE, THREE
from tests.reports.drawings import assert_described, drawn, of_query, of_study, parts

STUDY = THREE

Draw = Callable[[duckdb.DuckDBPyConnection, MadeUp], alt.LayerChart]


def source(connection: duckdb.DuckDBPyConnection, study: MadeUp) -> Source:
    last = of_query(connection, study, "curves_by_n").to_pylist()
    last_n = max((row["n"] for row in last), default=0)
    return Source(connection, study.study, query=study.query, last_n=last_n, asked_n=4)


def sink_heads(connection: duckdb.DuckDBPyConnection, study: MadeUp) -> alt.LayerChart:
    return sink_charts.sink_heads(source(connection, study).ask_query("explorer_heads", n=2).table, n=2)


def several(connection: duckdb.DuckDBPyConnection, study: MadeUp) -> alt.LayerChart:
    rows = of_query(connection, study, "sink_effect").to_pylist()
    return sink_charts.sink_effects(
        pa.Table.from_pylist([{**row, "study": name} for name in ("a", "b'") for row in rows])
    )


CHARTS: dict[str, Draw] = {
    "sink_effect": lambda c, s: sink_charts.sink_effect(of_query(c, s, "sink_effect")),
    "sink_effects": several,
    "sink_heads": sink_heads,
    "kinds_by_layer": lambda c, s: taxonomy_charts.kinds_by_layer(
        of_query(c, s, "taxonomy_by_layer"), of_query(c, s, "taxonomy_of_heads")
    ),
    "kinds_map": lambda c, s: taxonomy_charts.kinds_map(of_query(c, s, "taxonomy_of_heads")),
    "kinds_plane": lambda c, s: taxonomy_charts.kinds_plane(
        of_query(c, s, "taxonomy_of_heads"), of_query(c, s, "taxonomy_thresholds")
    ),
    "kinds_precision": lambda c, s: taxonomy_charts.kind_curves(of_query(c, s, "curves_by_label"), metric="precision"),
    "label_differences": lambda c, s: pattern_charts.label_differences(
        of_study(c, s, "measures_by_label").to_pylist(), quantity="recall"
    ),
    "kinds_recall": lambda c, s: taxonomy_charts.kind_curves(of_query(c, s, "curves_by_label"), metric="recall"),
    "context_precision": lambda c, s: contexts_charts.context_metric(
        of_study(c, s, "metrics_by_query"), metric="precision"
    ),
    "context_recall": lambda c, s: contexts_charts.context_metric(of_study(c, s, "metrics_by_query"), metric="recall"),
    "context_elbows": lambda c, s: contexts_charts.context_elbows(of_study(c, s, "elbows_by_query")),
    "context_labels": lambda c, s: contexts_charts.context_labels(
        of_study(c, s, "labels_by_query"), of_study(c, s, "label_changes")
    ),
}


@pytest.fixture(scope="module")
def made_up() -> Iterator[duckdb.DuckDBPyConnection]:
    """A warehouse with the study of three context sizes, only read."""
    with warehouse(STUDY) as connection:
        yield connection


@pytest.mark.one_case
@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_says_what_it_shows_each_time_in_colours_of_the_theme(
    made_up: duckdb.DuckDBPyConnection, name: str
) -> None:
    assert_described(lambda: CHARTS[name](made_up, STUDY))


@contextmanager
def changed(connection: duckdb.DuckDBPyConnection, change: str, rows: int | None = 1) -> Iterator[None]:
    """While it lasts, so many rows are as ``change`` makes them (``None``: one or more)."""
    connection.begin()
    try:
        updated = connection.execute(change).fetchall()[0][0]
        assert updated == rows or (rows is None and updated > 0)
        yield
    finally:
        connection.rollback()


HEAD = "layer = 1 AND head = 2"


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("sink_effect", "sink_effect SET correlation_low = -0.9 WHERE n = 5 AND query = 23"),
        ("sink_effects", "sink_effect SET correlation = -0.9 WHERE n = 5 AND query = 23"),
        ("sink_heads", f"selection_means SET recall = 0.01 WHERE n = 2 AND query = 23 AND {HEAD}"),
        ("sink_heads", "value_scales SET rho_0 = 1 WHERE query = 23 AND sequence = 0 AND layer = 1 AND kv_head = 1"),
        ("kinds_map", f"head_taxonomy SET nearest = 'any' WHERE query = 23 AND {HEAD}"),
        ("kinds_map", f"head_taxonomy SET single_key = NOT single_key WHERE query = 23 AND {HEAD}"),
        ("kinds_plane", f"head_taxonomy SET cos_last_level = 0.99 WHERE query = 23 AND {HEAD}"),
        ("kinds_precision", f"selection_means SET precision = 0.01 WHERE n = 2 AND query = 23 AND {HEAD}"),
        ("label_differences", "measures SET value_low = -0.9 WHERE measure = 'recall_by_label[previous]'"),
        ("kinds_recall", f"selection_means SET recall = 0.01 WHERE n = 4 AND query = 23 AND {HEAD}"),
        ("context_precision", "selection_means_model SET precision = 0.01 WHERE n = 2 AND query = 5"),
        ("context_recall", "selection_means_model SET recall = 0.01 WHERE n = 2 AND query = 11"),
        ("context_elbows", "elbows_model SET elbow_n = 6 WHERE query = 5"),
    ],
)
def test_one_changed_row_changes_the_chart(made_up: duckdb.DuckDBPyConnection, name: str, change: str) -> None:
    before = drawn(CHARTS[name](made_up, STUDY))
    with changed(made_up, f"UPDATE {change}"):
        assert drawn(CHARTS[name](made_up, STUDY)) != before


@pytest.mark.parametrize("name", ["sink_heads", "kinds_by_layer", "kinds_map", "context_labels"])
def test_a_head_of_another_kind_changes_the_chart(made_up: duckdb.DuckDBPyConnection, name: str) -> None:
    before = drawn(CHARTS[name](made_up, STUDY))
    other = f"CASE label WHEN 'Mixer' THEN 'Reset' ELSE 'Mixer' END WHERE query = 23 AND {HEAD}"
    with changed(made_up, f"UPDATE head_taxonomy SET label = {other}"):
        assert drawn(CHARTS[name](made_up, STUDY)) != before


@pytest.mark.parametrize(
    ("name", "query", "columns"),
    [
        ("sink_effect", "sink_effect", ("n", "correlation", "correlation_low")),
        ("kinds_map", "taxonomy_of_heads", ("layer", "head", "label", "nearest", "single_key", "margin", "agreement")),
        ("kinds_plane", "taxonomy_of_heads", ("layer", "head", "label", "cos_last_level", "cos_last_change")),
    ],
)
def test_charts_hold_the_rows(
    made_up: duckdb.DuckDBPyConnection, name: str, query: str, columns: tuple[str, ...]
) -> None:
    rows = of_query(made_up, STUDY, query).to_pylist()
    shown = drawn(CHARTS[name](made_up, STUDY))
    assert len(shown) == len(rows) > 0
    for drawn_row, row in zip(shown, rows, strict=True):
        for column in columns:
            expected = pytest.approx(row[column], rel=1e-5) if isinstance(row[column], float) else row[column]
            assert drawn_row[column] == expected


def test_segments_stand_on_each_other_with_a_letter_where_there_is_room() -> None:
    shares = zip((0, 1), ((0.5, 0.04, 0.36, 0.1), (0.0, 0.75, 0.0, 0.25)), strict=True)
    rows = [
        {"layer": layer, "label": label, "share": share}
        for layer, found in shares
        for label, share in reversed(list(zip(findings.LABELS, found, strict=True)))
    ]
    segments = {(row["layer"], row["label"]): row for row in labels.stack_shares(rows, "layer")}
    assert [segments[0, label]["low"] for label in findings.LABELS] == pytest.approx([0, 0.5, 0.54, 0.9])
    assert [segments[0, label]["high"] for label in findings.LABELS] == pytest.approx([0.5, 0.54, 0.9, 1])
    assert [segments[0, label]["letter"] for label in findings.LABELS] == ["T", "", "R", ""]
    assert [segments[1, label]["letter"] for label in findings.LABELS] == ["", "M", "", ""]
    assert segments[0, "Reset"]["middle"] == pytest.approx(0.72)
    many = [{"layer": layer, "label": "Mixer", "share": 1.0} for layer in range(labels.LETTERED + 1)]
    assert {row["letter"] for row in labels.stack_shares(many, "layer")} == {""}


def test_kinds_are_told_apart_without_colour(made_up: duckdb.DuckDBPyConnection) -> None:
    def ranges(name: str, channel: str) -> list[Any]:
        encodings = [part["encoding"] for part in parts(CHARTS[name](made_up, STUDY).to_dict()) if "encoding" in part]
        found = [encoding[channel]["scale"] for encoding in encodings if channel in encoding]
        assert all(scale["domain"] == list(findings.LABELS) for scale in found)
        return [scale["range"] for scale in found]

    assert ranges("kinds_recall", "strokeDash") == [list(labels.DASHES.values())]
    assert {str(found) for found in ranges("kinds_plane", "shape")} == {str(list(labels.SHAPES.values()))}
    assert list(labels.DASHES) == list(labels.SHAPES) == list(findings.LETTERS) == list(findings.LABELS)
    assert len({str(dash) for dash in labels.DASHES.values()}) == len(set(labels.SHAPES.values())) == 4
    assert len(set(findings.LETTERS.values())) == 4
    for name in ("kinds_map", "kinds_by_layer"):
        spec = CHARTS[name](made_up, STUDY).to_dict()
        assert [part for part in parts(spec) if part.get("field") == "letter"]
        assert "'R: Reset', 'Other': 'Other'" in str([part["labelExpr"] for part in parts(spec) if "labelExpr" in part])


def test_heads_that_meet_no_rule_look_different(made_up: duckdb.DuckDBPyConnection) -> None:
    labelled = [row["label"] for row in of_query(made_up, STUDY, "taxonomy_of_heads").to_pylist()]
    assert 0 < labelled.count(findings.OTHER) < len(labelled)
    assert "O" not in {findings.LETTERS[kind] for kind in findings.KINDS}
    letters = [row["letter"] for row in drawn(CHARTS["kinds_map"](made_up, STUDY))]
    assert [letter == "" for letter in letters] == [label == findings.OTHER for label in labelled]
    layers = CHARTS["kinds_plane"](made_up, STUDY).to_dict()["layer"]
    filled = {
        layer["transform"][0]["filter"]: layer["mark"]["filled"]
        for layer in layers
        if "filled" in layer.get("mark", {})
    }
    assert filled == {"datum.label == 'Other'": False, "datum.label != 'Other'": True}


def test_bars_show_how_many_heads_meet_no_rule(made_up: duckdb.DuckDBPyConnection) -> None:
    heads = of_query(made_up, STUDY, "taxonomy_of_heads").to_pylist()
    shown = drawn(CHARTS["kinds_by_layer"](made_up, STUDY))
    found = {(row["layer"], row["label"]): row for row in shown}
    assert len(found) == len(shown)
    assert {key: row["heads"] for key, row in found.items()} == Counter((row["layer"], row["label"]) for row in heads)
    assert len({label for _, label in found}) > 1
    for (_, label), row in found.items():
        assert row["share"] == pytest.approx(row["high"] - row["low"], abs=1e-5)
        assert row["share"] == pytest.approx(row["heads"] / STUDY.heads, abs=1e-5)
        if label == findings.OTHER:
            assert row["high"] == pytest.approx(1)


def test_cells_without_room_for_letters_have_shapes(made_up: duckdb.DuckDBPyConnection) -> None:
    head = of_query(made_up, STUDY, "taxonomy_of_heads").to_pylist()[0]
    for columns in (taxonomy_charts.LETTERED_HEADS, taxonomy_charts.LETTERED_HEADS + 1):
        rows = [{**head, "head": index, "label": findings.LABELS[index % 4]} for index in range(columns)]
        spec = taxonomy_charts.kinds_map(pa.Table.from_pylist(rows)).to_dict()
        shapes = [part["shape"]["scale"]["range"] for part in parts(spec) if "field" in part.get("shape", {})]
        letters = [part for part in parts(spec) if part.get("field") == "letter"]
        assert (len(letters), len(shapes)) == ((1, 0) if columns == taxonomy_charts.LETTERED_HEADS else (0, 1))
        assert all(shape == list(labels.SHAPES.values()) for shape in shapes)


def test_borders_of_the_rules_stand_at_the_thresholds(made_up: duckdb.DuckDBPyConnection) -> None:
    thresholds = of_query(made_up, STUDY, "taxonomy_thresholds")
    values = {row["threshold"]: row["value"] for row in thresholds.to_pylist()}
    spec = CHARTS["kinds_plane"](made_up, STUDY).to_dict()
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
        for index, mean in enumerate(means)
    ]
    rows = [row | {"metric": "precision"} for row in rows]
    chart = contexts_charts.context_metric(pa.Table.from_pylist(rows), metric="precision").to_dict()
    ends = next(rows for rows in chart["datasets"].values() if "place" in rows[0])
    places = [row["place"] for row in ends]
    assert {row["note"]: row["end"] for row in ends} == {f"N = {2**index}": mean for index, mean in enumerate(means)}
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
    chart = contexts_charts.context_metric(pa.Table.from_pylist(rows), metric="recall")
    assert {row["n"] for row in drawn(chart)} == {2, 4}
    spec = chart.to_dict()
    domains = [part["y"]["scale"]["domain"] for part in parts(spec) if "scale" in part.get("y", {})]
    assert {tuple(domain) for domain in domains} == {(0, 0.2)}
    (dash,) = (part["strokeDash"]["scale"] for part in parts(spec) if isinstance(part.get("strokeDash"), dict))
    assert len({str(style) for style in dash["range"]}) == len(dash["domain"]) == 2
    alone = contexts_charts.context_metric(
        pa.Table.from_pylist([row for row in rows if row["n"] == 1]), metric="recall"
    )
    assert {row["n"] for row in drawn(alone)} == {1}


def test_studies_side_by_side_look_different() -> None:
    names = [f"study '{index}'</script>" for index in range(8)]
    effect = {"n": 2, "heads": 9, "correlation": 0.5, "correlation_low": None, "correlation_high": None}
    chart = sink_charts.sink_effects(pa.Table.from_pylist([effect | {"study": name} for name in names])).to_dict()
    dashes = next(
        part["encoding"]["strokeDash"]["scale"] for part in parts(chart) if "strokeDash" in part.get("encoding", {})
    )
    assert dashes["domain"] == names
    looks = {(index % len(theme.LIGHT.series), str(dash)) for index, dash in enumerate(dashes["range"])}
    assert len(looks) == len(names)


def figures(connection: duckdb.DuckDBPyConnection, study: MadeUp) -> dict[str, Figure]:
    asked = source(connection, study)
    found = [make(asked).figures for make in (attention.build_section, sink.build_section, taxonomy.build_section)]
    return {figure.key: figure for of_one in (*found, contexts.build_figures(asked)) for figure in of_one}


ALL = {
    *("sink-effect", "sink-by-layer", "kinds-by-layer", "kinds-plane", "kinds-sensitivity", "kinds-curves"),
    *("kinds-patterns", "context-metrics", "context-elbows", "context-kinds"),
}


def test_everything_is_shown_where_there_is_enough(made_up: duckdb.DuckDBPyConnection) -> None:
    shown = figures(made_up, STUDY)
    assert set(shown) == ALL
    assert not [key for key, figure in shown.items() if figure.empty]
    assert all(figure.finding.endswith(".") and figure.reading for figure in shown.values())


NO_LABELS = {"kinds-patterns": "no head looks at a known place as only some do"}
EMPTY = {
    "least": {"sink-effect": "needs 3 heads", **NO_LABELS},
    "one layer": {},
    "one head": NO_LABELS,
    "one sequence": NO_LABELS,
    "window": {},
    "hidden sink": {
        "sink-effect": "a sliding window hides the sink",
        "sink-by-layer": "hides position 0 from every head",
    },
    "only itself": {
        "sink-effect": NOTHING_SELECTED,
        "sink-by-layer": "hides position 0 from every head",
        "kinds-plane": "two keys",
        "kinds-curves": NOTHING_SELECTED,
        **NO_LABELS,
    },
}
"""What some studies cannot show, and why; besides, all of them name one query."""


@pytest.mark.one_case
@pytest.mark.parametrize("key", DEGENERATE)
def test_what_cannot_be_shown_says_why(key: str) -> None:
    with warehouse(DEGENERATE[key]) as connection:
        shown = figures(connection, DEGENERATE[key])
    empty = {name: figure.finding for name, figure in shown.items() if figure.empty}
    assert "queries: [63, 127, 255, 511]" in empty.pop("contexts-none")
    assert set(empty) == set(EMPTY[key])
    assert all(why in empty[name] for name, why in EMPTY[key].items())
    for figure in shown.values():
        for chart in figure.charts:
            assert chart.to_dict()
        assert not {"None", "nan"} & set(figure.finding.split())


def test_a_study_of_an_earlier_version_says_what_it_lacks() -> None:
    without = ("sink_effect", "head_signatures", "head_taxonomy", "taxonomy_sensitivity")
    with warehouse(STUDY) as connection:
        for table in without:
            connection.execute(f"DELETE FROM {table}")
        shown = figures(connection, STUDY)
    keys = ("sink-effect", "kinds-by-layer", "kinds-plane", "kinds-sensitivity", "kinds-curves", "contexts-none")
    assert {shown[key].finding for key in keys} == {NOT_ANALYSED}


CHANGES = {
    "sink-effect": "sink_effect SET correlation = -0.95 WHERE n = 3",
    "kinds-by-layer": "head_taxonomy SET label = 'Mixer' WHERE query = 23",
    "kinds-plane": "head_taxonomy SET cos_last_level = 0.77",
    "kinds-sensitivity": "taxonomy_sensitivity SET changed = 11 WHERE threshold = 'broad_share'",
    "kinds-curves": "selection_means SET precision = precision / 2",
    "kinds-patterns": "measures SET value_low = 0.5, value_high = 0.6 WHERE measure = 'recall_by_label[previous]'",
    "context-metrics": "selection_means_model SET recall = recall / 2 WHERE query = 23",
    "context-elbows": "elbows_model SET elbow_n = 13 WHERE query = 23",
    "context-kinds": "head_taxonomy SET label = 'Mixer' WHERE query = 5",
}


@pytest.mark.one_case
@pytest.mark.parametrize("key", CHANGES)
def test_changed_rows_change_the_findings(made_up: duckdb.DuckDBPyConnection, key: str) -> None:
    before = figures(made_up, STUDY)[key].finding
    with changed(made_up, f"UPDATE {CHANGES[key]}", None):
        assert figures(made_up, STUDY)[key].finding != before


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
    kinds = palette.series[: len(findings.LABELS)]
    assert min(contrast(colour, palette.surface) for colour in kinds) >= 4.5  # letters on segments and cells
    assert min(contrast(colour, palette.surface) for colour in palette.series) >= 3
    assert min(contrast(colour, palette.surface) for colour in palette.ramp[theme.FIRST_SEEN :]) >= 3
    assert min(contrast(colour, palette.surface) for colour in palette.diverging) >= 2


@pytest.mark.parametrize("kind", BLINDNESS)
@pytest.mark.parametrize("palette", [theme.LIGHT, theme.DARK], ids=["light", "dark"])
def test_the_diverging_colours_run_from_a_middle_to_two_ends(palette: theme.Palette, kind: str) -> None:
    middle = len(palette.diverging) // 2
    assert len(palette.diverging) == 2 * middle + 1
    outwards = [[contrast(colour, palette.surface) for colour in side] for side in _sides(palette.diverging, middle)]
    assert all(steps == sorted(steps) for steps in outwards)
    assert nearest((palette.diverging[0], palette.diverging[-1]), kind) > 20


def _sides(colours: tuple[str, ...], middle: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The colours from the middle to either end."""
    return colours[middle::-1], colours[middle:]
