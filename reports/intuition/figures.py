"""How to read a head, on a small example: keys on a circle, and two balls around their sum (Figure 1)."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pyarrow as pa

from reports.elements import KEY, STAR, equal_scales, layer_chart, note, ring, tooltips
from reports.figures import Figure, convert_column
from reports.findings.numbers import Row, count, join_words, number

ANGLES = (4, 33, 56, 95, 113, 145, 183, 212, 238, 276, 296, 336)
"""Direction of each value state, in degrees."""

SCORES = (1.7, 0.5, 0.2, 0.6, 0.8, 0.8, 0.7, -0.5, 1.5, -0.4, 0.8, 1.4)
"""Logit of each key, whose softmax is its weight."""

SELECTED = 3
"""N of the example."""

WITHIN, BEYOND = "within the ball that counts it", "beyond it"
"""Whether a key counts: a selected one within r_min, one left out within r_max."""

KINDS = {"selected": STAR, "left out": KEY}  # Shapes of the keys, as the legend names them
ROOM = 1.15  # Extent of the view, in multiples of what is drawn
SIDE = 250  # Height of the charts, in pixels

Plane = tuple[alt.Scale, alt.Scale]  # Scales of both components


def build_example() -> Figure:
    """What selection, balls, Precision and Recall are."""
    table = build_key_table()
    keys: list[Row] = table.to_pylist()
    chosen, others = ([row for row in keys if row["selected"] is selected] for selected in (True, False))
    s = (sum(row["y_x"] for row in chosen), sum(row["y_y"] for row in chosen))
    r_min, r_max = min(row["distance"] for row in others), max(row["distance"] for row in chosen)
    return Figure(
        "example",
        "How to read a head: tokens on a circle, weighted, and the two balls",
        None,
        describe_example(keys, r_min, r_max),
        "First: value states of norm 1. Second: each times its weight, which moves it towards the origin. Third: the "
        "same, enlarged; lines lead to the keys that set the radii. In Figure 1 of the paper Precision is 3/8 and "
        "Recall 2/3; it prints no coordinates, so these are chosen to give the same values.",
        part=table,
        paper="Figure 1",
        folded=True,
        marks="An example, not this study. In the third, the cross is s; the solid circle has radius r_min, the "
        "dashed one r_max; filled stars count for Recall, filled dots against Precision.",
        charts=(draw_states(keys), draw_weighted(keys), draw_balls(keys, s, r_min, r_max)),
    )


def build_key_table() -> pa.Table:
    """Build the table of the keys of the example, one row each (Section 3, Figure 1).

    One of three selected keys points away from the others and lies far from s. It is computed by the definitions,
    without the kernels, whose loading takes a second.

    Returns
    -------
    pa.Table
        key (from 1, in order of angle), weight (share), selected, v_x, v_y, y_x, y_y, distance (from s; model units),
        within (no farther from s than r_min if selected, than r_max if not).
    """
    angles, weights = np.radians(ANGLES), np.exp(SCORES) / np.exp(SCORES).sum()
    values = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    scaled, selected = weights[:, None] * values, np.zeros(len(weights), bool)
    selected[np.argsort(-weights, kind="stable")[:SELECTED]] = True
    distance = np.linalg.norm(scaled - scaled[selected].sum(axis=0), axis=1)
    columns = {
        "key": np.arange(1, len(weights) + 1),
        "weight": weights,
        "selected": selected,
        "v_x": values[:, 0],
        "v_y": values[:, 1],
        "y_x": scaled[:, 0],
        "y_y": scaled[:, 1],
        "distance": distance,
        "within": distance <= np.where(selected, distance[~selected].min(), distance[selected].max()),
    }
    return pa.table({name: convert_column(column) for name, column in columns.items()})


def describe_example(keys: Sequence[Row], r_min: float, r_max: float) -> str:
    """Keys of the example that count for Recall, within r_min, and against Precision, within r_max."""
    chosen, others = ([row for row in keys if row["selected"] is selected] for selected in (True, False))
    near, far = ([row for row in chosen if row["within"] is within] for within in (True, False))
    mixed = [row for row in others if row["within"]]
    return (
        f"Of {count(len(keys), 'key')}, {_list_keys(chosen)} are selected. Within r_min = {number(r_min)} lie "
        f"{_list_keys(near)}, not {_list_keys(far)}: Recall is {len(near)}/{len(chosen)}. Within "
        f"r_max = {number(r_max)} lie also {_list_keys(mixed)}: Precision is {len(chosen)}/{len(chosen) + len(mixed)}."
    )


def _list_keys(keys: Sequence[Row]) -> str:
    return f"key{'s' if len(keys) > 1 else ''} {join_words([str(row['key']) for row in keys])}"


def draw_states(keys: Sequence[Row]) -> alt.LayerChart:
    """Value states of the keys of the example on the unit circle (Figure 1 left)."""
    rows, plane = _build_rows(keys, "v", aside=0.15), equal_scales((0, 0), ROOM)
    selected = sum(row["selected"] for row in rows)
    description = f"{count(len(rows), 'key')} on a circle of radius 1, {selected} of them selected."
    circle = ring(*_make_channels(plane), (0, 0), 1, "outline")
    layers = (circle, _draw_keys(plane), _number_keys(plane))
    return layer_chart(rows, "Value states v", description, *layers, height=SIDE)


def draw_weighted(keys: Sequence[Row]) -> alt.LayerChart:
    """The same value states times their attention weights, moved towards the origin (Figure 1 middle)."""
    rows, plane = _build_rows(keys, "y"), equal_scales((0, 0), ROOM)
    heaviest = max(rows, key=lambda row: row["weight"])
    description = (
        f"The same {count(len(rows), 'key')}, each moved towards the origin by its weight; the largest weight, "
        f"{number(heaviest['weight'])}, is that of key {heaviest['key']}."
    )
    circle = ring(*_make_channels(plane), (0, 0), 1, "outline")
    x, y = _make_channels(plane, "v_")
    pulls = alt.Chart().mark_rule(style="arrow", aria=False).encode(x=x, y=y, x2=alt.X2("x:Q"), y2=alt.Y2("y:Q"))
    layers = (circle, pulls, _draw_keys(plane, size=40))
    return layer_chart(rows, "Weighted, y = αv", description, *layers, height=SIDE)


def draw_balls(keys: Sequence[Row], s: tuple[float, float], r_min: float, r_max: float) -> alt.LayerChart:
    """The weighted value states around their sum s, and the balls of both radii (Figure 1 right)."""
    rows = _build_rows(keys, "y", aside=0.035)
    ends = [
        (min(middle - r_max, *(row[axis] for row in rows)), max(middle + r_max, *(row[axis] for row in rows)))
        for middle, axis in zip(s, "xy", strict=True)
    ]
    x, y = ((low + high) / 2 for low, high in ends)
    plane = equal_scales((x, y), ROOM * max(high - low for low, high in ends) / 2)
    return layer_chart(
        rows,
        "Around their sum s",
        f"The weighted keys around the sum of the selected ones. {describe_example(rows, r_min, r_max)}",
        *_draw_ball(plane, s, r_min, "rₘᵢₙ", "outline"),
        *_draw_ball(plane, s, r_max, "rₘₐₓ", "reference"),
        *_draw_sum(plane, s, rows),
        _draw_keys(plane, hollow=True),
        _number_keys(plane),
        note("filled: within the ball", "right", upper=True),
        height=SIDE,
    )


def _build_rows(keys: Sequence[Row], drawn: str, *, aside: float = 0) -> list[Row]:
    """Build the keys with ``x`` and ``y`` of v or y, and the places of their numbers, ``aside`` from there."""
    return [
        {
            **row,
            "x": row[f"{drawn}_x"],
            "y": row[f"{drawn}_y"],
            "beside_x": row[f"{drawn}_x"] + aside * row["v_x"],
            "beside_y": row[f"{drawn}_y"] + aside * row["v_y"],
            "kind": "selected" if row["selected"] else "left out",
            "filled": int(row["within"]),
            "counts": WITHIN if row["within"] else BEYOND,
        }
        for row in keys
    ]


def _make_channels(plane: Plane, prefix: str = "") -> tuple[alt.X, alt.Y]:
    axis = alt.Axis(tickCount=5, format=".2~f", labelBound=True)
    x = alt.X(f"{prefix}x:Q", title="First component (model units)", scale=plane[0], axis=axis)
    return x, alt.Y(f"{prefix}y:Q", title="Second component (model units)", scale=plane[1], axis=axis)


def _draw_ball(plane: Plane, s: tuple[float, float], radius: float, name: str, style: str) -> list[alt.Chart]:
    """The edge of a ball, with its name below."""
    x, y = _make_channels(plane)
    below = alt.InlineData(values=[{"x": s[0], "y": s[1] - radius, "name": f"{name} = {number(radius)}"}])
    label = alt.Chart(below).mark_text(style="reference-label", baseline="top", dy=5)
    return [ring(x, y, s, radius, style), label.encode(x=x, y=y, text=alt.Text("name:N"))]


def _draw_sum(plane: Plane, s: tuple[float, float], keys: Sequence[Row]) -> list[alt.Chart]:
    """Draw s, and lines from it to the two keys that set the radii."""
    x, y = _make_channels(plane)
    nearest = min((row for row in keys if not row["selected"]), key=lambda row: row["distance"])
    farthest = max((row for row in keys if row["selected"]), key=lambda row: row["distance"])
    ways = [{"x": s[0], "y": s[1], "end_x": row["x"], "end_y": row["y"]} for row in (nearest, farthest)]
    radii = alt.Chart(alt.InlineData(values=ways)).mark_rule(style="arrow", aria=False)
    place = alt.Chart(alt.InlineData(values=[{"x": s[0], "y": s[1], "name": "s"}])).encode(x=x, y=y)
    return [
        radii.encode(x=x, y=y, x2=alt.X2("end_x:Q"), y2=alt.Y2("end_y:Q")),
        place.mark_point(style="ink", shape="cross", filled=True, size=70),
        place.mark_text(style="on-small", align="left", dx=9).encode(text=alt.Text("name:N")),
    ]


def _draw_keys(plane: Plane, *, size: int = 110, hollow: bool = False) -> alt.Chart:
    """The keys; with ``hollow``, only those that count are filled."""
    x, y = _make_channels(plane)
    legend = alt.Legend(orient="top", symbolSize=110, symbolStrokeWidth=1.5)
    kind: dict[str, Any] = {"title": None, "scale": alt.Scale(domain=list(KINDS)), "legend": legend}
    shapes = alt.Scale(domain=list(KINDS), range=list(KINDS.values()))
    marks: alt.Chart = alt.Chart().mark_point(size=size, strokeWidth=1.5)
    return marks.encode(
        x=x,
        y=y,
        shape=alt.Shape("kind:N", title=None, scale=shapes, legend=legend),
        stroke=alt.Stroke("kind:N", **kind),
        fill=alt.Fill("kind:N", **kind),
        fillOpacity=alt.FillOpacity("filled:Q", scale=None) if hollow else alt.FillOpacityValue(1),
        tooltip=[
            alt.Tooltip("key:Q", title="Key"),
            *tooltips(".3~p", kind="Key is", weight="Weight (share)"),
            *tooltips(".3~f", distance="Distance from s (model units)", counts="Lies"),
        ],
    )


def _number_keys(plane: Plane) -> alt.Chart:
    """Write the number of each key, on the side away from the origin."""
    x, y = _make_channels(plane, "beside_")
    names: alt.Chart = alt.Chart().mark_text(style="reference-label")
    return names.encode(x=x, y=y, text=alt.Text("key:Q"))
