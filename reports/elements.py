"""Elements of several charts: layers over rows, axes, tooltips, lines, rules, cells, histograms, points of a plane.

Channels are objects rather than shorthands, for which Altair compares the class of each with all that it has.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil, cos, floor, isfinite, log10, pi, sin
from typing import Any, Literal

import altair as alt
import numpy as np

from reports import theme
from reports.findings.numbers import Row

ABOVE = -3  # Offset of the name of a vertical rule from the top of the plotting area, in pixels: below the legend

FLOOR_NAMED = 0.2
"""The name of the floor of Precision is below the line, at the last N at which the floor is at most this."""

SEPARATION = 6  # Smallest distance of the labels of an axis, in pixels; labels that are closer are left out

THINNED: dict[str, Any] = {"labelOverlap": "greedy", "labelSeparation": SEPARATION}
"""Settings of an axis on which labels that would touch are left out."""

BARS = 24  # Approximate largest number of bars of a histogram

SOLID, DOTTED, DASHED, DASH_DOT = (1, 0), (1, 5), (7, 4), (9, 4, 1, 4)
DASHES = (SOLID, DOTTED, DASHED, DASH_DOT, (12, 4))
"""Dashes of the lines of a chart, in the order of their legend: with four colours in turn, twenty look different."""

XValue: Any = alt.XValue
YValue: Any = alt.YValue
X2Value: Any = alt.X2Value
Y2Datum: Any = alt.Y2Datum  # Channels of one value, which Altair declares without types

WORDS = frozenset(
    {
        *("bin", "counts", "decay", "key", "kind", "label", "line", "looks", "name", "nearest", "patterns", "shown"),
        *("single_key", "statement", "study", "variant", "verdict"),
    }
)
COUNTS = frozenset(
    {
        *("context", "first_position", "gain_above_0", "head_dim", "heads", "last_position", "model_elbow_n", "n"),
        *("n_keys", "number", "position"),
    }
)
"""Columns of rows that hold words, and those that hold whole numbers: tooltips need no format for them."""

HEAD = [alt.Tooltip("layer:O", title="Layer"), alt.Tooltip("head:O", title="Head")]
"""Tooltip lines for the place of a head."""

ENDS = {"low": "95 % interval from", "high": "to"}
INTERVAL = {f"value_{end}": title for end, title in ENDS.items()}
"""Titles of the tooltip lines of an interval over sequences."""

NEAREST = "points"  # Name of the layer of points of which the one nearest to the pointer is shown

Line = dict[str, Any]  # A line of a tooltip, as it is written


class WrittenEncoding(alt.FacetedEncoding):
    """Channels as a page holds them."""

    def to_dict(self, *_: Any, **__: Any) -> dict[str, Any]:
        """The channels by name."""
        return {name: channel for name, channel in self._kwds.items() if channel is not alt.Undefined}


def layer_chart(
    rows: Sequence[Row], title: str, description: str, *layers: alt.Chart | alt.LayerChart, height: int | None = None
) -> alt.LayerChart:
    """Layers over the same rows, as wide as their container and ``height`` pixels high (or as the theme sets).

    Numbers are embedded with six significant digits, more than a screen shows. A number that is not finite becomes
    NULL, since JSON has none. Vega would write NULL as 0 in a tooltip and a share of 1e-11 as a row of zeros, so that
    the chart computes the text of both.
    """
    texts: dict[str, str] = {}
    nullable = dict.fromkeys((name for row in rows for name in row), False)
    nullable |= {name: True for row in rows for name, value in row.items() if value is None}
    written = [write_layer(layer, partial(_write_line, nullable, texts)) for layer in layers]
    return alt.LayerChart(  # in one step: Altair copies all layers twice in each
        layer=written,
        transform=[alt.CalculateTransform(**{"calculate": how, "as": name}) for name, how in texts.items()]
        or alt.Undefined,
        data=alt.InlineData(values=[{name: shorten(value) for name, value in row.items()} for row in rows]),
        title=title,
        description=description,
        width="container",
        height=alt.Undefined if height is None else height,
    )


def write_layer(layer: Any, write_line: Callable[..., Line] | None = None) -> Any:
    """A finished layer, its mark and channels as they are written: objects of Altair take ten times as long to copy.

    Lines of the tooltip are those that ``write_line`` returns, if it is given and the layer has no data of its own.
    """
    written = layer.copy(deep=False)
    if written.data is not alt.Undefined:
        write_line = None
    if isinstance(written, alt.LayerChart):
        written.layer = [write_layer(inner, write_line) for inner in written.layer]
        return written
    if isinstance(written.mark, alt.MarkDef):
        written.mark = written.mark.to_dict(validate=False)
    if isinstance(written.encoding, alt.FacetedEncoding):
        channels = written.encoding.to_dict(validate=False, context={})
        if write_line is not None and isinstance(channels.get("tooltip"), list):
            nearest = written.name == NEAREST
            channels["tooltip"] = [write_line(line, nearest=nearest) for line in channels["tooltip"]]
        written.encoding = WrittenEncoding(**channels)
    return written


def _write_line(nullable: Mapping[str, bool], texts: dict[str, str], line: Line, *, nearest: bool) -> Line:
    """A line of a tooltip: of a share, or of a column with NULL, the text of a column that is added to ``texts``.

    Vega-Lite reads a text at the wrong place for the point that is nearest to the pointer, so that there a number is
    written, and NaN for NULL, for which the page has a word.
    """
    column, written = line.get("field", ""), line.get("format", "")
    if not written or column not in nullable or "aggregate" in line:
        return line
    if nearest:
        if not nullable[column]:
            return line
        texts[f"{column} or NaN"] = f"isValid(datum.{column}) ? datum.{column} : 0 / 0"
        return {**line, "field": f"{column} or NaN"}
    if written != SHARE and not nullable[column]:
        return line
    name = f"{column} as {re.sub('[^a-z0-9]', '', written)}"
    texts[name] = express_number(column, written)
    return {"field": name, "title": line["title"], "type": "nominal"}


def express_number(column: str, written: str) -> str:
    """The text of a number in a format, or NULL, as an expression of Vega."""
    value = f"datum.{column}"
    text = _SHARE_TEXT.format(value) if written == SHARE else f"format({value}, '{written}')"
    return f"isValid({value}) ? {text} : null"


SHARE = ".3~p"  # Format of a share of 1 in a tooltip

_SHARE_TEXT = (
    "({0} > 0 && {0} < 1e-6 ? 'below 0.0001 %' : {0} >= 0.9995 && {0} < 1 ? 'over 99.9 %' "
    ": format(100 * {0}, '.3~g') + ' %')"
)
"""Its text, as an expression of Vega: a percentage as in sentences, but without many zeros."""


def shorten(value: Any, digits: int = 6) -> Any:
    """A number, or those of a list, with so many significant digits; NULL for one that is not finite."""
    if isinstance(value, list):
        return [shorten(item, digits) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if isfinite(value) else None
    return value


def keep_columns(rows: Sequence[Row], *columns: str) -> list[Row]:
    """Rows with these columns alone: a page holds the rows of every chart."""
    return [{column: row[column] for column in columns} for row in rows]


def log_ticks(last: int) -> list[int]:
    """Labels of a log axis from 1 to ``last``: 1, 2, 5, 10, 20 ... (only powers of ten if there were too many)."""
    mantissas = (1, 2, 5) if last < 10_000 else (1,)
    ticks = [mantissa * 10**power for power in range(len(str(last))) for mantissa in mantissas]
    return [tick for tick in ticks if tick <= last]


def count_axis(things: str, largest: int) -> dict[str, Any]:
    """Title, axis and scale of a channel that counts things, with whole numbers alone as labels."""
    axis = alt.Axis(format=",d", tickCount=min(largest, 6))
    return {"title": f"{things} (number)", "axis": axis, "scale": alt.Scale(zero=True)}


def log_axis(
    column: str, title: str, labels: Sequence[float], *, written: str = ",d", thinned: bool = True, **scale: Any
) -> alt.X:
    """A column on a log axis with these labels, in the format ``written``; ``thinned``: where they would touch."""
    axis = alt.Axis(format=written, values=list(labels), grid=False, **(THINNED if thinned else {}))
    return alt.X(f"{column}:Q", title=title, axis=axis, scale=alt.Scale(type="log", nice=False, **scale))


def n_axis(last: int) -> alt.X:
    """N on a log axis from 1 to ``last``."""
    title = "N, number of selected keys (log scale)"
    return log_axis("n", title, log_ticks(last), domain=[1, max(last, 2)], padding=6)


def tooltips(written: str = "", /, **titles: str) -> list[alt.Tooltip]:
    """Tooltip lines of columns, by their titles: words as they are, counts in full, and others as ``written``."""
    return [
        alt.Tooltip(f"{column}:N", title=title)
        if column in WORDS
        else alt.Tooltip(f"{column}:Q", title=title, format=",d" if column in COUNTS else written)
        for column, title in titles.items()
    ]


def rule_at(
    column: str, place: float, note: str, *, align: Literal["left", "right"] = "left", beside: int | None = None
) -> alt.LayerChart:
    """A vertical rule with its name above the plotting area, where there are no lines, or ``beside`` pixels below."""
    base = alt.Chart(alt.InlineData(values=[{column: place, "note": note}])).encode(x=alt.X(f"{column}:Q"))
    put: dict[str, Any] = {"baseline": "bottom", "dy": ABOVE} if beside is None else {"baseline": "top", "dx": 5}
    label = base.mark_text(style="reference-label", align=align, **put)
    label = label.encode(y=YValue(beside or 0), text=alt.Text("note:N"))
    return alt.LayerChart(layer=[base.mark_rule(style="reference"), label])


def level(share: float, note: str) -> alt.LayerChart:
    """A rule at one value of the vertical axis, with its name next to the plotting area."""
    base = alt.Chart(alt.InlineData(values=[{"share": share, "note": note}])).encode(y=alt.Y("share:Q"))
    label = base.mark_text(style="reference-label", align="left", dx=6)
    label = label.encode(x=XValue("width"), text=alt.Text("note:N"))
    return alt.LayerChart(layer=[base.mark_rule(style="reference"), label])


def floor_of_precision(base: alt.Chart, y: alt.Y, rows: Sequence[Row]) -> list[alt.Chart]:
    """The floor N/n of Precision, a line with its name (``precision_floor`` against ``n``)."""
    low = max((row for row in rows if row["precision_floor"] <= FLOOR_NAMED), key=lambda row: row["n"], default=rows[0])
    name = base.transform_filter(f"datum.n == {low['n']}").mark_text(style="reference-label", align="left", dx=8, dy=8)
    return [base.mark_line(style="reference").encode(y=y), name.encode(y=y, text=alt.TextValue("floor N/n"))]


def points(base: alt.Chart, *, always: bool = False) -> alt.Chart:
    """Points with the tooltip: only the one nearest to the pointer is visible, or all are with ``always``."""
    marks: alt.Chart = base.mark_point(filled=True, size=70, opacity=1)
    if always:
        return marks
    nearest = alt.selection_point("nearest", nearest=True, on="pointerover", clear="pointerout", empty=False)
    opacity = alt.OpacityValue(**alt.when(nearest).then(alt.value(1)).otherwise(alt.value(0)))
    return marks.encode(opacity=opacity).properties(name=NEAREST).add_params(nearest)


def style_line(
    chart: alt.Chart, labels: Sequence[str], label: str, *, dashes: Sequence[Sequence[int]] = DASHES
) -> alt.Chart:
    """Give a mark the colour and dashes of one line among ``labels``, which the legend lists in this order."""
    color, dash = distinguish_lines("line", labels, columns=2 if len(labels) > 2 else 0, dashes=dashes)
    named: alt.Chart = chart.transform_calculate(line=f"'{label}'")
    return named.encode(color=color, strokeDash=dash)


def draw_dotted_lines(base: alt.Chart, y: Callable[[str], alt.Y], names: Mapping[str, str]) -> list[alt.Chart]:
    """A line with points for each column, in the colour and dashes of its name."""
    return [
        style_line(mark.encode(y=y(f"{column}:Q")), list(names.values()), name)
        for column, name in names.items()
        for mark in (base.mark_line(), base.mark_point(filled=True, size=50))
    ]


def distinguish_lines(
    column: str, labels: Sequence[str], *, columns: int = 2, dashes: Sequence[Sequence[int]] = DASHES
) -> tuple[alt.Color, alt.StrokeDash]:
    """Colour and dashes of lines by the labels in a column, with a legend of so many columns; both repeat."""
    domain, drawn = list(labels), [list(dashes[index % len(dashes)]) for index in range(len(labels))]
    legend = alt.Legend(orient="top", columns=columns)
    return (
        alt.Color(f"{column}:N", title=None, scale=alt.Scale(domain=domain), legend=legend),
        alt.StrokeDash(f"{column}:N", title=None, scale=alt.Scale(domain=domain, range=drawn)),
    )


def place_legend(height: int, seen: alt.ExprRef) -> dict[str, Any]:
    """Settings of a legend above a map that is visible under one condition: several legends share the place."""
    return {"orient": "none", "legendX": 0, "legendY": -height, "direction": "horizontal", "labelOpacity": seen}


def colour_bars(column: str, names: Sequence[str], **legend: Any) -> alt.Color:
    """Colour of bars by the names in a column, with a legend of squares."""
    squares = alt.Legend(orient="top", symbolType="square", symbolSize=120, **legend)
    return alt.Color(f"{column}:N", title=None, scale=alt.Scale(domain=list(names)), legend=squares)


def colour_cells(column: str, height: int, written: str, **settings: Any) -> alt.Color:
    """Colour of the cells of a map by a number, with a colour bar as high as the map."""
    return alt.Color(f"{column}:Q", title=None, legend=alt.Legend(format=written, gradientLength=height), **settings)


def write_in_cells(base: alt.Chart, text: alt.Text, value: str, middle: float) -> list[alt.Chart]:
    """Text in the cells of a map, light where ``value``, an expression of Vega, is above the middle, else dark."""
    return [
        base.mark_text(style=style).encode(text=text).transform_filter(f"{value} {which} {middle:.6g}")
        for style, which in (("on-small", "<="), ("on-large", ">"))
    ]


def list_layers(rows: Sequence[Row]) -> list[int]:
    """List every layer up to the last with heads: layers without attention in between leave a gap in a chart."""
    return list(range(1 + max(row["layer"] for row in rows)))


def layer_axis(rows: Sequence[Row]) -> alt.X:
    """Layers from left to right."""
    axis = alt.Axis(grid=False, labelAngle=0, labelOverlap=True, labelSeparation=SEPARATION)
    return alt.X("layer:O", title="Layer", axis=axis, scale=alt.Scale(domain=list_layers(rows)))


def head_grid(rows: Sequence[Row]) -> tuple[alt.Chart, int]:
    """Layers by heads: a chart with these axes, and its height in pixels."""
    layers, columns = list_layers(rows), sorted({row["head"] for row in rows})
    least, most = theme.ROW_HEIGHTS
    turned = alt.Axis(labelAngle=0, labelOverlap=True)
    grid = alt.Chart().encode(
        x=alt.X("head:O", title="Head", axis=turned, scale=alt.Scale(domain=columns)),
        y=alt.Y("layer:O", title="Layer", axis=alt.Axis(labelOverlap=True), scale=alt.Scale(domain=layers)),
    )
    return grid, len(layers) * max(least, min(most, theme.MAP_HEIGHT // len(layers)))


def difference_map(rows: Sequence[Row], column: str, title: str, says: str, shown: Mapping[str, str]) -> alt.LayerChart:
    """A number of every head that may lie on either side of 0, marked if its interval (low, high) lies on one.

    says: its description; shown: titles of other columns in the tooltip, before those of the interval.
    """
    sides = ("" if row["low"] is None else "+" if row["low"] > 0 else "−" if row["high"] < 0 else "" for row in rows)
    marked = [{**row, "clear": side} for row, side in zip(rows, sides, strict=True)]
    base, height = head_grid(rows)
    reach = max([0.01, *(abs(row[column]) for row in rows)])
    scale = alt.Scale(domain=[-reach, reach], range="diverging")
    color = colour_cells(column, height, ".2~f", scale=scale)
    return layer_chart(
        marked,
        title,
        f"Heat map, layers by heads. {says}",
        base.mark_rect().encode(color=color, tooltip=[*HEAD, *tooltips(".3~f", **shown, **ENDS)]),
        *write_in_cells(base, alt.Text("clear:N"), f"abs(datum.{column})", reach / 2),
        height=height,
    )


def edges(values: Sequence[float], *, log: bool = False) -> list[float]:
    """Edges of the bars of a histogram that holds all ``values``: round numbers, or equal steps on a log axis.

    With ``log`` all values are above 0.
    """
    low, high = min(values), max(values)
    if log:
        low, high = log10(low), log10(high)
    step = _round_step((high - low) / BARS if high > low else abs(high) or 1)
    first, last = floor(low / step), max(ceil(high / step), floor(low / step) + 1)
    marks = [number * step for number in range(first, last + 1)]
    return [10**mark for mark in marks] if log else marks


def _round_step(least: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is at least ``least``."""
    power = 10.0 ** floor(log10(least))
    return next(mantissa * power for mantissa in (1, 2, 5, 10) if mantissa * power >= least * (1 - 1e-9))


def histogram(values: Sequence[float], marks: Sequence[float]) -> list[Row]:
    """Bars of a histogram between ``marks``: low, high and the number of values from low up to high.

    Bars that hold nothing are left out.
    """
    numbers, _ = np.histogram(values, marks)
    bars = zip(marks, marks[1:], numbers.tolist(), strict=False)
    return [{"low": low, "high": high, "number": number} for low, high, number in bars if number]


STEPS = 72  # Number of corners of the polygon that draws a circle


def draw_star() -> str:
    """Path of a star of radius 1 with five points, as the name of a shape."""
    corners = (
        (radius * sin(pi * corner / 5), -radius * cos(pi * corner / 5))
        for corner in range(10)
        for radius in [0.42 if corner % 2 else 1.0]
    )
    return "M" + "L".join(f"{x:.3f},{y:.3f}" for x, y in corners) + "Z"


STAR, SINK, LAST, KEY = draw_star(), "square", "diamond", "circle"
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
