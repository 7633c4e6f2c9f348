"""Charts of the kinds of heads: over depth, head by head, their thresholds, and how well they separate."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

import altair as alt

from reports import theme
from reports.elements import (
    ABOVE,
    HEAD,
    X2Value,
    XValue,
    YValue,
    head_grid,
    keep_columns,
    layer_axis,
    layer_chart,
    list_layers,
    n_axis,
    points,
    tooltips,
)
from reports.findings import numbers
from reports.findings.numbers import Row
from reports.kinds import findings
from reports.kinds.labels import (
    add_nearest,
    dots,
    fill_cells,
    label_colour,
    label_dash,
    near_shape,
    segments,
    stack_shares,
)

VERDICT = ["layer", "head", "label", "nearest", "single_key", "margin", "agreement"]
VERDICT += [f"{label.lower()}_score" for label in findings.KINDS]
"""Columns of ``head_taxonomy`` with the kind of a head, its scores and margin."""

PLACE = ("layer", "head", "label", "nearest")
SIGNATURE = {
    "cos_last_level": "Cosine with the last token",
    "cos_last_change": "Change of that cosine",
    "cos_last_p05": "Reached over 95 % of ln N",
    "cos_sink_change": "Change of the cosine with the sink",
    "cos_sink_max": "Largest cosine with the sink",
    "sink_share": "Share of the sink",
    "last_share": "Share of the last token",
    "rest_share": "Share of the rest",
    "effective_contributors": "Effective contributors",
}
"""Columns of ``head_taxonomy``: the kind of a head, and the quantities of the rules as a tooltip names them."""

LETTERED_HEADS = 40
"""Largest number of heads per row for which cells have room for a letter."""

SMALL = 12
"""Area of the shape in a cell without room for a letter, in square pixels."""


def kinds_by_layer(shares: Sequence[Row], rows: Sequence[Row]) -> alt.LayerChart:
    """Share of each kind of head by layer (Figure 8; ``taxonomy_by_layer``; ``head_taxonomy`` for its words)."""
    tooltip = [HEAD[0], *tooltips(".3~p", label="Kind", heads="Heads", share="Share of the layer")]
    x = layer_axis(rows)
    return layer_chart(
        stack_shares([row for row in shares if row["heads"]], "layer"),
        "Share of each kind by layer",
        f"Stacked bars of the share of each kind of head by layer. {findings.describe_depths(rows)}",
        *segments(x, tooltip),
        height=max(theme.HEIGHT, head_grid(rows)[1]),
    )


def kinds_map(heads: Sequence[Row]) -> alt.LayerChart:
    """The kind of every head, layers by heads (``head_taxonomy``)."""
    rows = add_nearest(keep_columns(heads, *VERDICT))
    base, height = head_grid(rows)
    lettered = len({row["head"] for row in rows}) <= LETTERED_HEADS
    scores = {f"{label.lower()}_score": f"Score as {label}" for label in findings.KINDS}
    tooltip = tooltips(".3~f", label="Kind", nearest="Nearest kind", single_key="Single key", margin="Margin", **scores)
    tooltip += tooltips(".3~p", agreement="Sequences that agree")
    size = min(11, height // len(list_layers(rows)) - 2)
    sign = (
        base.mark_text(style="on-large", fontSize=size).encode(text=alt.Text("letter:N"))
        if lettered
        else base.mark_point(style="on-large", filled=True, size=SMALL)
        .encode(shape=near_shape())
        .transform_filter("datum.met")
    )
    return layer_chart(
        rows,
        "Kind of every head",
        f"Map of the kind of every head, layers by heads. {findings.describe_kinds(heads)}",
        fill_cells(base, letters=lettered).encode(tooltip=[*HEAD, *tooltip]),
        sign,
        height=height,
    )


def kinds_plane(heads: Sequence[Row], thresholds: Sequence[Row]) -> alt.LayerChart:
    """Every head by level and change of cos(s_N, v_L) (``head_taxonomy``, ``taxonomy_thresholds``)."""
    rows = add_nearest(numbers.drop_nulls(keep_columns(heads, *PLACE, *SIGNATURE), "cos_last_level"))
    values = {row["threshold"]: row["value"] for row in thresholds}
    (left, right), (low, high) = _find_extents(rows, values)
    x = partial(alt.X, title="Change of cos(s, v of the last token) over N", scale=alt.Scale(domain=[left, right]))
    y = partial(alt.Y, title="cos(s, v of the last token), mean over ln N", scale=alt.Scale(domain=[low, high]))
    tooltip = [*HEAD, *tooltips(".3~g", label="Kind", nearest="Nearest kind", **SIGNATURE)]
    return layer_chart(
        rows,
        "Heads and thresholds",
        "Dot plot of the level of cos(s, v_L) against its change, one mark for each head. "
        f"{findings.describe_planes(rows)}",
        *_draw_borders(values, left),
        *dots(rows, x("cos_last_change:Q"), y("cos_last_level:Q"), tooltip),
    )


def _find_extents(rows: Sequence[Row], values: Mapping[str, float]) -> list[tuple[float, float]]:
    """Extents of both axes: all heads and all thresholds."""
    changes = [row["cos_last_change"] for row in rows] + [0, values["last_rises"]]
    levels = [row["cos_last_level"] for row in rows] + [values["last_weak"]]
    return [(min(numbers) - 0.08, max(numbers) + 0.08) for numbers in (changes, levels)]


def _draw_borders(values: Mapping[str, float], left: float) -> list[alt.Chart]:
    """Draw the thresholds of Mixers and of Reset heads on level and change of cos(s, v_L)."""
    weak, rises = [{"x": left, "y": values["last_weak"]}], [{"x": values["last_rises"]}]
    reset, mixer = (alt.Chart(alt.InlineData(values=data)) for data in (weak, rises))
    reset, mixer = reset.encode(x=alt.X("x:Q"), y=alt.Y("y:Q")), mixer.encode(x=alt.X("x:Q"))
    return [
        reset.encode(x=XValue(0), x2=X2Value("width")).mark_rule(style="reference"),
        mixer.mark_rule(style="reference"),
        _name_border(reset, "Reset: below", baseline="top", dx=5, dy=5),
        _name_border(mixer.encode(y=YValue(0)), "Mixer: right", baseline="bottom", dx=0, dy=ABOVE),
    ]


def _name_border(place: alt.Chart, name: str, *, baseline: Literal["top", "bottom"], dx: int, dy: int) -> alt.Chart:
    text = place.mark_text(style="reference-label", align="left", baseline=baseline, dx=dx, dy=dy)
    named: alt.Chart = text.encode(text=alt.TextValue(name))
    return named


def kind_curves(curves: Sequence[Row], *, metric: str) -> alt.LayerChart:
    """Precision or Recall against N, mean and spread over the heads of each kind (Figure 11; ``curves_by_label``)."""
    rows = [row for row in curves if row["metric"] == metric]
    last = max(row["n"] for row in rows)
    y = partial(alt.Y, title=f"{numbers.NAMES[metric]} (ratio)", scale=alt.Scale(domain=[0, 1]))
    base = alt.Chart().encode(x=n_axis(last), color=label_colour())
    shown = {"mean": f"Mean {numbers.NAMES[metric]}", "p10": "10 % of heads below", "p90": "10 % of heads above"}
    tooltip = tooltips(".3~f", label="Kind", n="N", **shown, heads="Heads")
    return layer_chart(
        rows,
        f"{numbers.NAMES[metric]} by kind of head",
        f"Line chart against N on a log axis, one line for each kind. {findings.describe_kind_curves(curves, metric)}",
        base.mark_area().encode(y=y("p10:Q"), y2=alt.Y2("p90:Q")),
        base.mark_line().encode(y=y("mean:Q"), strokeDash=label_dash()),
        points(base.encode(y=y("mean:Q"), tooltip=tooltip), always=last == 1),
    )
