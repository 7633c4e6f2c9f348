"""The map of heads: each a point of the plane of its curves, and the kinds as regions of that plane."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from reports.elements import HEAD, THINNED, layer_chart, place_legend, tooltips
from reports.figures import Figure, Source
from reports.findings.listings import format_own_interval
from reports.findings.numbers import Row, count, join_sentences, number, percent
from reports.kinds import labels as kind_labels
from reports.kinds.labels import MANY, SHAPES, add_nearest

PATTERN_SHAPES = (
    *("circle", "triangle-up", "square", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left"),
)
"""Shapes of ``PATTERNS`` and of none; colours alone repeat."""

COLOURS = {
    "near": "Nearest kind",
    "pattern": "What it looks at",
    "layer": "Layer",
    "delta_loss": "Loss increase without the head",
}
"""Columns by which points can be coloured, as the dropdown names them."""

CURVES = {
    "cos_sink": ("cosine with sink", "the cosine of s_N with the sink"),
    "cos_last": ("cosine with last token", "the cosine of s_N with the last token"),
    "recall": ("Recall", "Recall"),
}
"""The curves of a head, as axes and sentences name them."""

HEIGHT, LEGEND = 380, 66  # Height of the plotting area and of the place of the legends above it, in pixels


def head_map(heads: Sequence[Row], axes: Sequence[Row]) -> alt.LayerChart:
    """Every head as a point, in a colour that the reader chooses (``head_map``, ``head_map_axes``).

    The page marks the head that is chosen.
    """
    told = []
    for row in heads:  # with the pattern of the largest lift, and all of them as text
        patterns = None if row["patterns"] is None else row["patterns"] or [NO_PATTERN]
        told.append(row | {"pattern": patterns and patterns[0], "patterns": patterns and ", ".join(patterns)})
    rows = add_nearest(told)
    offered = {name: title for name, title in COLOURS.items() if any(row[name] is not None for row in rows)}
    bind = alt.binding_select(options=list(offered), labels=list(offered.values()), name="Colour")
    chart: alt.LayerChart = layer_chart(
        rows,
        "Map of heads",
        f"Dot plot of {len(rows)} heads in the plane of the first two principal components of their curves, coloured "
        "by nearest kind, by what they look at, by layer or by loss.",
        *_draw_regions(rows),
        *_draw_points(rows, offered, {row["axis"]: row for row in axes}),
        height=HEIGHT,
    )
    chart = chart.resolve_scale(color="independent", shape="independent")
    chosen = [alt.param(name, value=-1) for name in ("chosen_layer", "chosen_head")]  # set by the page
    chart = chart.properties(padding={"top": LEGEND + 8, "left": 4, "right": 4, "bottom": 4})
    drawn: alt.LayerChart = chart.add_params(alt.param("quantity", value="near", bind=bind), *chosen)
    return drawn


def _draw_regions(rows: Sequence[Row]) -> list[alt.Chart]:
    """The smallest convex region that holds the heads of a kind, if three span one: dashed, if a threshold may move."""
    drawn = []
    for style, holds in (
        ("region", lambda row, kind: row["label"] == kind),
        ("region-moved", lambda row, kind: kind in row["reached"]),
    ):
        corners = [
            {"label": kind, "x": x, "y": y, "order": order}
            for kind in kind_labels.KINDS
            for hull in (find_hull([(row["x"], row["y"]) for row in rows if holds(row, kind)]),)
            if len(hull) > 2
            for order, (x, y) in enumerate(hull)
        ]
        if not corners:
            continue
        line = alt.Chart(alt.InlineData(values=corners)).mark_line(style=style, interpolate="linear-closed", aria=False)
        scale = alt.Scale(domain=list(kind_labels.LABELS))
        drawn.append(
            line.encode(
                x=alt.X("x:Q"),
                y=alt.Y("y:Q"),
                order=alt.Order("order:Q"),
                color=alt.Color("label:N", scale=scale, legend=None),
            ).transform_filter("quantity == 'near'")
        )
    return drawn


def find_hull(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Corners of the smallest convex polygon that holds some points, in order around it (Andrew's monotone chain)."""
    ordered = sorted(set(points))
    if len(ordered) < 3:
        return ordered
    return _build_side(ordered)[:-1] + _build_side(ordered[::-1])[:-1]


def _build_side(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """One side of a hull: from the first point to the last, turning left at each."""
    side: list[tuple[float, float]] = []
    for point in points:
        while len(side) > 1:
            (x, y), (next_x, next_y) = side[-2:]
            if (next_x - x) * (point[1] - y) > (next_y - y) * (point[0] - x):
                break
            side.pop()
        side.append(point)
    return side


def _draw_points(rows: Sequence[Row], offered: Mapping[str, str], axes: Mapping[str, Row]) -> list[alt.Chart]:
    """The points in each colouring, one of which is visible; the ring of the chosen head; what the pointer meets."""
    size = 60 if len(rows) <= MANY else 34
    ends = ((min(row[axis] for row in rows), max(row[axis] for row in rows)) for axis in "xy")
    rooms = ((low, high, 0.04 * (high - low) or 1.0) for low, high in ends)
    x, y = (alt.Scale(domain=[low - room, high + room], nice=False) for low, high, room in rooms)
    base = alt.Chart().encode(
        x=alt.X("x:Q", scale=x).title(_name_axis("First", axes["x"])).axis(**THINNED),
        y=alt.Y("y:Q", scale=y).title(_name_axis("Second", axes["y"])),
    )

    def mark(**changed: Any) -> alt.Chart:
        point: alt.Chart = base.mark_point(**({"filled": True, "size": size, "opacity": 0.8, "aria": False} | changed))
        return point

    drawn = [
        _name_points(
            mark(filled=met, size=1.5 * size if met else size), "near", list(SHAPES), list(SHAPES.values()), named=met
        ).transform_filter(f"quantity == 'near' && datum.met == {str(met).lower()}")
        for met in (False, True)
    ]
    if "pattern" in offered:
        names = [*PATTERNS, NO_PATTERN]
        points = _name_points(mark(), "pattern", names, list(PATTERN_SHAPES))
        drawn.append(points.transform_filter("quantity == 'pattern'"))
    reach = max((abs(row["delta_loss"] or 0) for row in rows), default=0) or 1
    drawn += [
        _colour_points(
            mark(style="outlined"), "layer", alt.Scale(domain=[0, max(row["layer"] for row in rows)], range="heatmap")
        ),
        _colour_points(mark(style="outlined"), "delta_loss", alt.Scale(domain=[-reach, reach], range="diverging")),
    ]
    ring = mark(style="chosen", filled=False, size=260, strokeWidth=2.5, opacity=1)
    drawn.append(ring.transform_filter("datum.layer == chosen_layer && datum.head == chosen_head"))
    tooltip = [
        *HEAD,
        *tooltips(label="Kind", nearest="Nearest kind"),
        *(tooltips(patterns="Looks at") if "pattern" in offered else []),
        *(tooltips(".3~g", delta_loss=COLOURS["delta_loss"]) if "delta_loss" in offered else []),
    ]
    touched = mark(size=130, opacity=0, aria=True).encode(tooltip=tooltip)
    return [*drawn, touched.properties(name="heads")]


def _colour_points(points: alt.Chart, column: str, scale: alt.Scale) -> alt.Chart:
    """Colour by a number, with a legend, while the dropdown asks for that column."""
    seen = alt.expr(f"quantity == '{column}' ? 1 : 0")
    legend = alt.Legend(**place_legend(34, seen), gradientLength=140, gradientOpacity=seen, format=".2~g", tickCount=2)
    coloured: alt.Chart = points.encode(color=alt.Color(f"{column}:Q", title=None, legend=legend, scale=scale))
    return coloured.transform_filter(f"quantity == '{column}' && isValid(datum.{column})")


def _name_points(
    points: alt.Chart, column: str, names: Sequence[str], shapes: Sequence[str], *, named: bool = True
) -> alt.Chart:
    """Colour and shape by a name, with a legend that is visible while the dropdown asks for that column."""
    seen = alt.expr(f"quantity == '{column}' ? 1 : 0")
    legend = named and alt.Legend(
        **place_legend(LEGEND, seen), symbolOpacity=seen, columns=3, symbolSize=90, rowPadding=3
    )
    if legend and column == "near":
        legend["values"] = list(kind_labels.KINDS)
    domain = list(names)
    return points.encode(
        color=alt.Color(f"{column}:N", title=None, scale=alt.Scale(domain=domain), legend=legend or None),
        shape=alt.Shape(
            f"{column}:N", title=None, scale=alt.Scale(domain=domain, range=list(shapes)), legend=legend or None
        ),
    )


def _name_axis(place: str, row: Row) -> str:
    """Title of an axis: which component, and the curve that it mostly is."""
    arrow = "→" if row["direction"] > 0 else "←"
    return f"{place} axis, mainly {CURVES[row['curve']][0]} {arrow}"


PATTERNS = {
    "previous": "the token before the query",
    "induction": "the token after an earlier copy of the query’s",
    "duplicate": "earlier copies of the query’s token",
    "diffuse": "all tokens nearly alike",
    "sink": "position 0",
    "self": "the query’s own token",
    "local": "the last eight tokens",
}
"""What heads are known to look at (``head_labels``), in the order of legends."""

NO_PATTERN = "none"  # In place of a pattern, for a head that has none


def describe_map(heads: Sequence[Row], axes: Sequence[Row], measures: Sequence[Row]) -> str:
    """Axes of the map, and how firm the kinds are (``head_map``, its axes, ``measures``)."""
    share = next((row for row in measures if row["measure"] == "plane_share"), None)
    where = {"x": "to the right", "y": "upwards"}
    mostly = [
        f"{where[row['axis']]} {CURVES[row['curve']][1]} {'rises' if row['direction'] > 0 else 'falls'} most"
        for row in axes
        if row["share"] > 0
    ]
    held = format_own_interval(share, "value", percent) if share else ""
    moved = sum(not row["kept"] for row in heads)
    return join_sentences(
        f"Two axes hold {held} of the differences between the curves of {count(len(heads), 'head')}: "
        f"{' and '.join(mostly)}."
        if held
        else "",
        f"{moved:,} of {count(len(heads), 'head')} {'changes' if moved == 1 else 'change'} kind if one threshold is "
        "halved, doubled or changed by 10 %.",
    )


def describe_label(row: Row) -> str:
    """A label of a head with its share and lift, and where it has them (``labels_of_heads``)."""
    share = format_own_interval(row, "share", percent)
    if row["label"] == "diffuse":
        return f"diffuse: entropy {share} of the largest possible"
    where = "on repeated tokens" if row["text"] == "probe" else "in the text"
    return f"{row['label']}: {share} of its weight {where}, {number(row['lift'])} times chance"


def build_map(source: Source) -> Figure:
    """Every head in the plane of its curves."""
    draft = Figure("head-map", "Heads as points of a plane", source.ask_query("head_map"))
    if not draft.table.num_rows:
        return draft.leave_empty("The heads have no curves here, or ones that do not differ.")
    axes = source.ask_study("head_map_axes").rows()
    return draft.show(
        describe_map(draft.rows, axes, source.ask_study("measures").rows()),
        "The first two principal components of each head’s curves of cos(s_N, v_0), cos(s_N, v_L) and Recall, mean "
        "over sequences, in equal steps of ln N; a curve that a head lacks counts as the mean of the others. A region "
        "around the heads of a kind may hold others. What a head looks at is the pattern of largest lift among those "
        "that it has. The paper draws no such map.",
        marks="Filled: heads of a kind; hollow: nearest to it, but they meet no rule. Lines: around the heads of a "
        "kind; dotted: around those that are of it after a change of a threshold. Ring: the chosen head.",
        charts=(head_map(draft.rows, axes),),
        broad=True,
        tab="On a plane",
    )
