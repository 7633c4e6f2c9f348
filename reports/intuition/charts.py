"""Charts of the example of keys on a circle: value states, weighted value states, and the two balls around s."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import pyarrow as pa

from reports.elements import layer_chart, tooltips
from reports.findings import numbers
from reports.findings.numbers import Row
from reports.intuition import findings
from reports.plane import KEY, STAR, equal_scales, note, ring

KINDS = {"selected": STAR, "left out": KEY}
"""Shapes of the keys, as the legend names them."""

ROOM = 1.15
"""Extent of the view, in multiples of what is drawn."""

SIDE = 250
"""Height of the charts, in pixels."""

Plane = tuple[alt.Scale, alt.Scale]
"""Scales of both components."""


def value_states(keys: pa.Table) -> alt.LayerChart:
    """Value states of the keys of the example on the unit circle (Figure 1 left)."""
    rows, plane = _build_rows(keys, "v", aside=0.15), equal_scales((0, 0), ROOM)
    selected = sum(row["selected"] for row in rows)
    description = f"{numbers.count(len(rows), 'key')} on a circle of radius 1, {selected} of them selected."
    circle = ring(*_make_channels(plane), (0, 0), 1, "outline")
    return _build_chart(rows, "Value states v", description, circle, _draw_keys(plane), _number_keys(plane))


def weighted_states(keys: pa.Table) -> alt.LayerChart:
    """The same value states times their attention weights, moved towards the origin (Figure 1 middle)."""
    rows, plane = _build_rows(keys, "y"), equal_scales((0, 0), ROOM)
    heaviest = max(rows, key=lambda row: row["weight"])
    description = (
        f"The same {numbers.count(len(rows), 'key')}, each moved towards the origin by its weight; the largest weight, "
        f"{numbers.number(heaviest['weight'])}, is that of key {heaviest['key']}."
    )
    circle = ring(*_make_channels(plane), (0, 0), 1, "outline")
    x, y = _make_channels(plane, "v_")
    pulls = alt.Chart().mark_rule(style="arrow", aria=False).encode(x=x, y=y, x2=alt.X2("x:Q"), y2=alt.Y2("y:Q"))
    return _build_chart(rows, "Weighted, y = αv", description, circle, pulls, _draw_keys(plane, size=40))


def balls(keys: pa.Table, *, s: tuple[float, float], r_min: float, r_max: float) -> alt.LayerChart:
    """The weighted value states around their sum s, and the balls of both radii (Figure 1 right)."""
    rows = _build_rows(keys, "y", aside=0.035)
    plane = _fit_plane(rows, s, r_max)
    return _build_chart(
        rows,
        "Around their sum s",
        f"The weighted keys around the sum of the selected ones. {findings.describe_example(rows, r_min, r_max)}",
        *_draw_ball(plane, s, r_min, "rₘᵢₙ", "outline"),
        *_draw_ball(plane, s, r_max, "rₘₐₓ", "reference"),
        *_draw_sum(plane, s, rows),
        _draw_keys(plane, hollow=True),
        _number_keys(plane),
        note("filled: within the ball", "right", upper=True),
    )


def _build_chart(rows: Sequence[Row], title: str, description: str, *layers: alt.Chart) -> alt.LayerChart:
    return layer_chart(rows, title, description, *layers, height=SIDE)


def _build_rows(keys: pa.Table, drawn: str, *, aside: float = 0) -> list[Row]:
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
            "counts": findings.WITHIN if row["within"] else findings.BEYOND,
        }
        for row in keys.to_pylist()
    ]


def _fit_plane(keys: Sequence[Row], s: tuple[float, float], r_max: float) -> Plane:
    """Scales that show the larger ball and all keys."""
    ends = [
        (min(middle - r_max, *(row[axis] for row in keys)), max(middle + r_max, *(row[axis] for row in keys)))
        for middle, axis in zip(s, "xy", strict=True)
    ]
    x, y = ((low + high) / 2 for low, high in ends)
    return equal_scales((x, y), ROOM * max(high - low for low, high in ends) / 2)


def _make_channels(plane: Plane, prefix: str = "") -> tuple[alt.X, alt.Y]:
    """The channels of a point of the plane."""
    axis = alt.Axis(tickCount=5, format=".2~f", labelBound=True)
    x = alt.X(f"{prefix}x:Q", title="First component (model units)", scale=plane[0], axis=axis)
    return x, alt.Y(f"{prefix}y:Q", title="Second component (model units)", scale=plane[1], axis=axis)


def _draw_ball(plane: Plane, s: tuple[float, float], radius: float, name: str, style: str) -> list[alt.Chart]:
    """The edge of a ball, with its name below."""
    x, y = _make_channels(plane)
    below = alt.InlineData(values=[{"x": s[0], "y": s[1] - radius, "name": f"{name} = {numbers.number(radius)}"}])
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
        tooltip=_make_tooltip(),
    )


def _number_keys(plane: Plane) -> alt.Chart:
    """Write the number of each key, on the side away from the origin."""
    x, y = _make_channels(plane, "beside_")
    names: alt.Chart = alt.Chart().mark_text(style="reference-label")
    return names.encode(x=x, y=y, text=alt.Text("key:Q"))


def _make_tooltip() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("key:Q", title="Key"),
        *tooltips(".3~p", kind="Key is", weight="Weight (share)"),
        *tooltips(".3~f", distance="Distance from s (model units)", counts="Lies"),
    ]
