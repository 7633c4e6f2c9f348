"""Charts of value states: norms (Assumption 1) and similarity (Assumption 2)."""

from collections.abc import Sequence
from functools import partial

import altair as alt
import pyarrow as pa

from reports.charts.elements import (
    THINNED,
    Y2Datum,
    colour_bars,
    count_axis,
    edges,
    histogram,
    layer_chart,
    log_axis,
    log_ticks,
    points,
    rule_at,
    style_line,
    tooltips,
)
from reports.charts.positions import POSITIONS, draw_positions, label_positions, spread_tooltip
from reports.findings import numbers
from reports.findings import values as findings
from reports.findings.numbers import Row

VARIATIONS = {
    "cv_of_mean_norm": "of the mean norm over sequences",
    "cv_within_sequence": "within one sequence",
}
"""Coefficients of variation, as the legend names them."""

SIMILARITIES = {
    "mean_cosine": "measured",
    "exponential": "exponential",
    "with_floor": "with a floor",
}
"""Lines of a chart of similarity, as its legend names them."""

BOUNDARY = 0.09
"""Mean absolute error of the exponential that the paper reports (Figure 3)."""


def value_norm(norms: pa.Table) -> alt.LayerChart:
    """Norm of the value states against position, the sink marked (Figure 2 left).

    Parameters
    ----------
    norms
        ``value_norm_over_heads``: first_position, last_position, kv_heads, mean, p10, p90 (model units).
    """
    rows = label_positions(norms, {0: "sink, position 0"})
    last = max(row["last_position"] for row in rows)
    scale = alt.Scale(type="symlog", nice=False, padding=10, domain=[0, max(last, 1)])
    x = alt.X("position:Q", scale=scale).title("Position (token, log scale from 0)")
    x = x.axis(format=",d", values=[0, *log_ticks(last)], grid=False, **THINNED)
    y = partial(alt.Y, title="Norm of the value state (model units)", scale=alt.Scale(zero=True))
    tooltip = [*POSITIONS, *spread_tooltip(".3~g"), alt.Tooltip("kv_heads:Q", title="KV heads")]
    return layer_chart(
        rows,
        "Norm of value states by position",
        f"Line chart of the mean norm of value states against position. {findings.describe_value_norm(rows)}",
        *draw_positions(rows, x, y, tooltip),
    )


def norm_variation(heads: pa.Table) -> alt.LayerChart:
    """Number of KV heads by both coefficients of variation of their norms, the sink's left out (Figure 2 right).

    Parameters
    ----------
    heads
        ``norm_variation_by_head``: cv_of_mean_norm, cv_within_sequence (ratios, or NULL: left out).
    """
    records = heads.to_pylist()
    values = {column: [row[column] for row in numbers.drop_nulls(records, column)] for column in VARIATIONS}
    positive = {column: [value for value in some if value > 0] for column, some in values.items()}
    marks = edges([value for some in positive.values() for value in some] or [1.0], log=True)
    rows = [
        {**bar, "measure": VARIATIONS[column]} for column, some in positive.items() for bar in histogram(some, marks)
    ]
    color = colour_bars("measure", list(VARIATIONS.values()), columns=1)
    scale = alt.Scale(type="log", nice=False, domain=[marks[0], marks[-1]], padding=6)
    x = alt.X("low:Q", scale=scale).title("Coefficient of variation (ratio, log scale)")
    bars = _draw_bars(rows, x.axis(format=".4~g", grid=False, **THINNED), *tooltips(measure="Variation"))
    description = (
        f"Histogram of both coefficients of variation over KV heads. {findings.describe_norm_variation(records)}"
    )
    return layer_chart(rows, "Variation of norms over KV heads", description, bars.encode(color=color))


def similarity_errors(heads: pa.Table) -> alt.LayerChart:
    """Number of KV heads by mean absolute error of the exponential fit, with the paper's mean (Figure 3).

    Parameters
    ----------
    heads
        ``similarity_fit_by_head``: mae (a cosine, or NULL: left out).
    """
    records = heads.to_pylist()
    values = [row["mae"] for row in numbers.drop_nulls(records, "mae")]
    rows = histogram(values, edges([0.0, *values]))
    x = alt.X("low:Q").title("Mean absolute error of exp(−β k) (cosine)").axis(format=".4~g", grid=False)
    return layer_chart(
        rows,
        "Error of the exponential over KV heads",
        f"Histogram of the error of the exponential fit over KV heads. {findings.describe_similarity_errors(records)}",
        _draw_bars(rows, x),
        rule_at("mae", BOUNDARY, "the paper’s mean"),
    )


def _draw_bars(rows: Sequence[Row], x: alt.X, *named: alt.Tooltip) -> alt.Chart:
    """Bars from low to high, as high as the number of KV heads between."""
    tooltip = [*named, *tooltips(".3~g", low="From", high="to", number="KV heads")]
    y = alt.Y("number:Q", **count_axis("KV heads", max(row["number"] for row in rows)))
    bars: alt.Chart = alt.Chart().mark_rect(style="bar")
    return bars.encode(x=x, x2=alt.X2("high:Q"), y=y, y2=Y2Datum(0), tooltip=tooltip)


def similarity(curve: pa.Table, *, title: str, domain: tuple[float, float]) -> alt.LayerChart:
    """Mean cosine of value states against their distance, with both fits (Figure 3).

    Parameters
    ----------
    curve
        Rows of ``similarity_curves`` for one KV head, or for the model: distance (tokens), mean_cosine, exponential,
        with_floor (cosines, or NULL: left out).
    title
        What the curve describes.
    domain
        Smallest and largest cosine of all charts that are shown side by side.
    """
    rows = curve.to_pylist()
    last = max(row["distance"] for row in rows)
    labels_of_x = log_ticks(last)
    x = log_axis("distance", "Distance k (tokens, log scale)", labels_of_x, domain=[1, max(last, 2)], padding=6)
    y = partial(alt.Y, title="Mean cosine", scale=alt.Scale(domain=list(domain)))
    base, labels = alt.Chart().encode(x=x), list(SIMILARITIES.values())
    lines = [
        style_line(base.mark_line().encode(y=y(f"{column}:Q")), labels, name) for column, name in SIMILARITIES.items()
    ]
    names = {column: name.capitalize() for column, name in SIMILARITIES.items()}
    tooltip = [*tooltips(",d", distance="Distance"), *tooltips(".3~f", **names)]
    dots = points(base.encode(y=y("mean_cosine:Q"), tooltip=tooltip), always=len(rows) == 1)
    description = f"Line chart of the mean cosine against distance. {findings.describe_similarity_curve(rows, title)}"
    return layer_chart(rows, title, description, *lines, dots)
