"""Points of a plane: equal units on both axes however wide the chart is, circles, and the shapes of keys."""

from collections.abc import Sequence
from math import cos, pi, sin
from typing import Literal

import altair as alt

from reports.elements import XValue, YValue
from reports.findings.numbers import Row

STEPS = 72
"""Number of corners of the polygon that draws a circle."""


def star(points: int = 5, inner: float = 0.42) -> str:
    """Path of a star of radius 1, as the name of a shape."""
    corners = (
        (radius * sin(pi * corner / points), -radius * cos(pi * corner / points))
        for corner in range(2 * points)
        for radius in [inner if corner % 2 else 1.0]
    )
    return "M" + "L".join(f"{x:.3f},{y:.3f}" for x, y in corners) + "Z"


STAR, SINK, LAST, KEY = star(), "square", "diamond", "circle"
"""Shapes of a selected key, the sink, the last token, and any other key."""


def equal_scales(center: tuple[float, float], half: float) -> tuple[alt.Scale, alt.Scale]:
    """Scales of x and y on which one unit is as long on the screen, whatever width and height the chart is given.

    A square around ``center`` with sides of twice ``half``, in data units, is always visible.
    """
    across, along = "max(width, 1)", "max(height, 1)"

    def scale(middle: float, longer: str, shorter: str) -> alt.Scale:
        ends = (f"{middle:.6g} {sign} {half:.6g} * max(1, {longer} / {shorter})" for sign in "-+")
        return alt.Scale(domain=[alt.expr(end) for end in ends], nice=False, zero=False)

    return scale(center[0], across, along), scale(center[1], along, across)


def circle(center: Sequence[float], radius: float) -> list[Row]:
    """Corners of a circle in their ``order``, the first again at the end."""
    turns = ((corner, 2 * pi * corner / STEPS) for corner in range(STEPS + 1))
    return [
        {"x": round(center[0] + radius * cos(turn), 4), "y": round(center[1] + radius * sin(turn), 4), "order": corner}
        for corner, turn in turns
    ]


def ring(x: alt.X, y: alt.Y, center: Sequence[float], radius: float, style: str) -> alt.Chart:
    """A circle that is hidden from screen readers."""
    corners = alt.Chart(alt.InlineData(values=circle(center, radius)))
    line: alt.Chart = corners.mark_line(style=style, strokeWidth=1.25, aria=False)
    return line.encode(x=x, y=y, order=alt.Order("order:Q"))


def note(text: str, side: Literal["left", "right"], *, upper: bool = False) -> alt.Chart:
    """A line of text in a corner of the plotting area, a lower one unless ``upper``."""
    base = alt.Chart(alt.InlineData(values=[{"note": text}]))
    mark: alt.Chart = base.mark_text(style="reference-label", align=side, baseline="top" if upper else "bottom")
    return mark.encode(
        x=XValue(0 if side == "left" else "width"), y=YValue(0 if upper else "height"), text=alt.Text("note:N")
    )
