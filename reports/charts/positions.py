"""Elements of charts against position: a line with its spread over heads, and separate marked positions."""

from collections.abc import Callable, Sequence

import altair as alt
import pyarrow as pa

from reports.charts.elements import points, tooltips
from reports.findings.numbers import Row

ASIDE = 9
"""Pixels by which the upper of two names is above its mark, and the other one below."""

POSITIONS = tooltips(first_position="From position", last_position="to")
"""Tooltip lines for a run of positions."""


def spread_tooltip(number_format: str) -> list[alt.Tooltip]:
    """Tooltip lines for a mean and the quantiles around it."""
    return tooltips(number_format, mean="Mean over heads", p10="10 % of heads below", p90="10 % of heads above")


def label_positions(table: pa.Table, marked: dict[int, str]) -> list[Row]:
    """Rows of runs of positions with the middle ``position``, and a ``label`` where one is marked (else empty)."""
    return [
        {
            **row,
            "position": (row["first_position"] + row["last_position"]) / 2,
            "label": marked.get(row["first_position"], ""),
        }
        for row in table.to_pylist()
    ]


def draw_positions(
    rows: Sequence[Row], x: alt.X, y: Callable[[str], alt.Y], tooltip: list[alt.Tooltip]
) -> list[alt.Chart]:
    """Draw mean and spread over heads by position, with the marked positions separate from the line."""
    plain, marked = ([row for row in rows if bool(row["label"]) is labelled] for labelled in (False, True))
    line = alt.Chart().encode(x=x).transform_filter("datum.label == ''")
    layers = [
        line.mark_area(style="band").encode(y=y("p10:Q"), y2=alt.Y2("p90:Q")),
        line.mark_line(style="mean").encode(y=y("mean:Q")),
        points(line.encode(y=y("mean:Q"), tooltip=tooltip), always=len(plain) == 1),
    ]
    highest = max((row["mean"] for row in marked), default=None)
    sides = [0 if len(marked) < 2 else -ASIDE if row["mean"] == highest else ASIDE for row in marked]
    marks = (mark for row, aside in zip(marked, sides, strict=True) for mark in _draw_marked(row, x, y, tooltip, aside))
    return [*(layers if plain else []), *marks]


def _draw_marked(
    row: Row, x: alt.X, y: Callable[[str], alt.Y], tooltip: list[alt.Tooltip], aside: int
) -> list[alt.Chart]:
    """Draw one position with its spread and its name inside the plotting area, ``aside`` pixels lower."""
    base = alt.Chart().encode(x=x).transform_filter(f"datum.first_position == {row['first_position']}")
    first = row["first_position"] == 0
    name = base.mark_text(style="accent-label", align="left" if first else "right", dx=11 if first else -11, dy=aside)
    return [
        base.mark_rule(style="accent-spread").encode(y=y("p10:Q"), y2=alt.Y2("p90:Q"), tooltip=tooltip),
        base.mark_point(style="accent", filled=True).encode(y=y("mean:Q"), tooltip=tooltip),
        name.encode(y=y("mean:Q"), text=alt.Text("label:N")),
    ]
