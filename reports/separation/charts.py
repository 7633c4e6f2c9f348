"""Charts of how well heads separate: curves with their bounds, the spread over heads, maps, elbows."""

from collections import Counter
from collections.abc import Sequence
from functools import partial

import altair as alt

from reports.chance import figures as chance_figures
from reports.elements import (
    ENDS,
    HEAD,
    THINNED,
    colour_bars,
    colour_cells,
    count_axis,
    distinguish_lines,
    floor_of_precision,
    head_grid,
    layer_chart,
    list_layers,
    n_axis,
    points,
    rule_at,
    style_line,
    tooltips,
    write_in_cells,
)
from reports.findings import numbers
from reports.findings.numbers import Row
from reports.separation import findings

WRITTEN_HEADS, WRITTEN_HEIGHT = 12, 16
"""Largest number of heads per row, and least height of a row in pixels, with which values are written in cells."""

BOUNDED = {metric: f"{name} against N, with bounds" for metric, name in numbers.NAMES.items()}
"""Titles of charts with bounds; the paper draws no F."""

LINES = {"mean": "mean", "upper": "upper, printed", "lower": "lower, printed", "scale_free_lower": "lower, scale-free"}
"""Lines of a chart with bounds, as its legend names them."""


MODEL, TWIN = "this model", "random weights"
"""The model and its twin, as the legend names them."""


def metric_curves(
    curves: Sequence[Row], nulls: Sequence[Row], twin: Sequence[Row] | None, *, metric: str
) -> alt.LayerChart:
    """One metric of the model against N, with nulls, twin and printed bounds (Figure 5; ``bounds_by_n``).

    The others are ``separability_by_n`` and the twin's ``curves_by_n``, or None.
    """
    rows = findings.join_bounds(curves, metric)
    last, name = max(row["n"] for row in rows), numbers.NAMES[metric]
    others = _build_others(nulls, twin, metric, last)
    labels = list(dict.fromkeys([MODEL, *(row["label"] for row in others)]))
    y = partial(alt.Y, title=f"{name} (ratio)", scale=alt.Scale(domain=[0, 1]))
    base, beside = alt.Chart().encode(x=n_axis(last)), alt.Chart(alt.InlineData(values=others)).encode(x=n_axis(last))
    color, dash = distinguish_lines("label", labels)
    interval = {"mean": name, **ENDS}
    tooltip = tooltips(".3~g", n="N", **interval, lower="Lower bound", upper="Upper bound")
    line = base.transform_calculate(label=f"'{MODEL}'").encode(y=y("mean:Q"), color=color, strokeDash=dash)
    of_others = beside.mark_line(point=last == 1).encode(y=y("mean:Q"), color=color, strokeDash=dash)
    return layer_chart(
        rows,
        f"{name} against N",
        f"Line chart against N on a log axis, with {', '.join(labels)}. {findings.describe_curve(rows, metric)}",
        base.mark_area(style="envelope").encode(y=y("lower:Q"), y2=alt.Y2("upper:Q")),
        *(floor_of_precision(base, y("precision_floor:Q"), rows) if metric == "precision" else []),
        base.mark_area(style="band").encode(y=y("low:Q"), y2=alt.Y2("high:Q")),
        *([of_others] if others else []),
        line.mark_line(point=last == 1, strokeWidth=2.75),
        points(base.encode(y=y("mean:Q"), tooltip=tooltip), always=last == 1),
    )


def _build_others(nulls: Sequence[Row], twin: Sequence[Row] | None, metric: str, last: int) -> list[Row]:
    """Build the curves to compare with, a row for each line and N up to the model's last."""
    lines = [
        {"label": label, "n": row["n"], "mean": row["null_value"]}
        for null, label in chance_figures.NULLS.items()
        for row in nulls
        if (row["measure"], row["null_model"]) == (metric, null)
    ]
    of_twin = [] if twin is None else [row for row in twin if row["metric"] == metric]
    lines += [{"label": TWIN, "n": row["n"], "mean": row["mean"]} for row in of_twin if row["n"] <= last]
    return [{**row, "mean": float(f"{row['mean']:.6g}")} for row in lines if row["mean"] is not None]


def metric_bounds(curves: Sequence[Row], *, metric: str, elbow_n: int | None) -> alt.LayerChart:
    """One metric of the model against N with its bounds; means outside are marked (Figure 5; ``bounds_by_n``)."""
    rows = findings.join_bounds(curves, metric)
    last = max(row["n"] for row in rows)
    y = partial(alt.Y, title=f"{numbers.NAMES[metric]} (ratio)", scale=alt.Scale(domain=[0, 1]))
    base = alt.Chart().encode(x=n_axis(last))
    outside = base.mark_point(style="outside", shape="diamond").encode(y=y("mean:Q")).transform_filter("datum.outside")
    bounds = {column: f"Bound: {name}" for column, name in LINES.items() if column != "mean"}
    shown = {"mean": numbers.NAMES[metric], **ENDS} | bounds
    tooltip = tooltips(".3~g", n="N", **shown)
    single = last == 1  # a point, since a line would show nothing
    return layer_chart(
        rows,
        BOUNDED[metric],
        f"Line chart against N on a log axis. {findings.describe_curve(rows, metric)} "
        f"{findings.describe_envelope(rows, metric)}",
        *([rule_at("n", elbow_n, f"elbow: N = {elbow_n}")] if elbow_n else []),
        *(floor_of_precision(base, y("precision_floor:Q"), rows) if metric == "precision" else []),
        base.mark_area(style="band").encode(y=y("low:Q"), y2=alt.Y2("high:Q")),
        *(
            style_line(base.mark_line(point=single).encode(y=y(f"{column}:Q")), list(LINES.values()), name)
            for column, name in reversed(LINES.items())
        ),
        outside,
        points(base.encode(y=y("mean:Q"), tooltip=tooltip), always=single),
    )


def metric_map(rows: Sequence[Row], *, metric: str, n: int) -> alt.LayerChart:
    """Precision or Recall of every head at one N, written where there is room (``heads_at_n``)."""
    columns = len({row["head"] for row in rows})
    name, known = numbers.NAMES[metric], numbers.drop_nulls(rows, metric)
    values: list[float] = [row[metric] for row in known]
    base, height = head_grid(rows)
    cells = base.mark_rect().encode(
        color=colour_cells(metric, height, ".2~f"), tooltip=[*HEAD, *tooltips(".3~g", **{metric: name})]
    )
    text, middle = alt.Text(f"{metric}:Q", format=".2f"), (min(values) + max(values)) / 2
    written = write_in_cells(base, text, f"datum.{metric}", middle)
    return layer_chart(
        known,
        f"{name} of every head at N = {n}",
        f"Heat map of {name}, layers by heads, at N = {n}. {findings.describe_extremes(rows, metric)}",
        cells,
        *(written if columns <= WRITTEN_HEADS and height >= WRITTEN_HEIGHT * len(list_layers(rows)) else []),
        height=height,
    )


def elbows(heads: Sequence[Row]) -> alt.LayerChart:
    """Number of heads by the N of their elbow, coloured by whether it is in the paper's range (``elbow_by_head``)."""
    bins = Counter(_find_elbow_bin(row["elbow_n"]) for row in numbers.drop_nulls(heads, "elbow_n"))
    inside, beyond = findings.ELBOW_RANGES
    rows = [
        {"bin": name, "first": first, "heads": bins[first, name], "range": inside if first <= 4 else beyond}
        for first, name in sorted(bins)
    ]
    order = [name for _, name in sorted(bins)]
    x = alt.X("bin:N", sort=order).title("N of the elbow").axis(labelAngle=0, **THINNED)
    y = alt.Y("heads:Q", **count_axis("Heads", max(bins.values())))
    color = colour_bars("range", findings.ELBOW_RANGES)
    tooltip = tooltips(bin="Elbow at N", heads="Heads")
    bars = alt.Chart().mark_bar(style="bar").encode(x=x, y=y, color=color, tooltip=tooltip)
    description = f"Bar chart of the number of heads by N of their elbow. {findings.describe_elbows(heads)}"
    return layer_chart(rows, "Elbow of every head", description, bars)


def _find_elbow_bin(n: int) -> tuple[int, str]:
    """First N and name of the bar an elbow falls in: each N up to 4 alone, then doubling ranges."""
    if n <= 4:
        return n, str(n)
    first = 2 ** ((n - 1).bit_length() - 1) + 1
    return first, f"{first}–{2 * (first - 1)}"
