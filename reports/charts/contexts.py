"""Charts against context size: Precision and Recall at some N, the elbow, and the kinds of heads."""

from collections.abc import Sequence
from functools import partial

import altair as alt
import pyarrow as pa

from reports import theme
from reports.charts.elements import DASHES, X2Value, XValue, draw_dotted_lines, layer_chart, log_axis, tooltips
from reports.charts.labels import segments, stack_shares
from reports.findings import contexts as findings
from reports.findings import numbers
from reports.findings.numbers import Row

APART = 13
"""Smallest distance of the names at the ends of lines, in pixels."""

INSIDE = 14
"""Room between the last points and the edge of the plotting area, in pixels."""

LEADER = 16
"""Length of the strokes to the names of lines beyond that edge, in pixels."""

ELBOWS = {"median_elbow_n": "median head", "model_elbow_n": "model"}
"""Elbows that are drawn, as the legend names them."""


def context_metric(metrics: pa.Table, *, metric: str) -> alt.LayerChart:
    """Precision or Recall against the size of the context, one line for each N.

    Parameters
    ----------
    metrics
        ``metrics_by_query``: query (position), metric, n, heads, mean, low, high (ratios from 0 to 1).
    metric
        ``precision`` or ``recall``.
    """
    rows_of_metric = [_add_context(row) for row in metrics.to_pylist() if row["metric"] == metric]
    rows = _drop_trivial(rows_of_metric, metric)
    top = max(row["mean"] for row in rows) or 1
    scale = alt.Scale(domain=[0, top], nice=False)
    y = alt.Y("mean:Q", title=f"{numbers.NAMES[metric]} (ratio)", scale=scale)
    order = sorted({row["n"] for row in rows})
    color = alt.Color("n:O", legend=None, scale=alt.Scale(domain=order))
    dashes = [list(DASHES[index % len(DASHES)]) for index in range(len(order))]
    dash = alt.StrokeDash("n:O", legend=None, scale=alt.Scale(domain=order, range=dashes))
    base = alt.Chart().encode(x=_make_axis(rows), y=y, color=color)
    tooltip = tooltips(".3~f", context=_CONTEXT, n="N", mean=f"Mean {numbers.NAMES[metric]}", heads="Heads")
    return layer_chart(
        rows,
        f"{numbers.NAMES[metric]} against context size",
        "Line chart against context size on a log axis, one line for each N. "
        f"{findings.describe_metric(rows_of_metric, metric)}",
        *(_draw_floors(base, scale) if metric == "precision" else []),
        base.mark_line().encode(strokeDash=dash),
        base.mark_point(filled=True, size=45).encode(tooltip=tooltip),
        *_name_ends(rows, top, color),
    )


def _draw_floors(base: alt.Chart, scale: alt.Scale) -> list[alt.Chart]:
    """The floor N/n of Precision below each point, as a stroke."""
    ticks = base.mark_tick(orient="horizontal", size=14, thickness=1.5, clip=True)
    return [ticks.transform_calculate(floor="datum.n / datum.n_keys").encode(y=alt.Y("floor:Q", scale=scale))]


def _drop_trivial(rows: Sequence[Row], metric: str) -> list[Row]:
    """Drop Recall at N = 1, which is 1 by definition, unless there is nothing else."""
    return [row for row in rows if metric != "recall" or row["n"] > 1] or list(rows)


def _add_context(row: Row) -> Row:
    return {**row, "context": findings.count_tokens(row)}


_CONTEXT = "Tokens up to the query"


def _make_axis(rows: Sequence[Row]) -> alt.X:
    """Sizes of contexts on a log axis, each with its label."""
    sizes = sorted({row["context"] for row in rows})
    return log_axis("context", "Context size, tokens (log scale)", sizes, thinned=False, padding=INSIDE)


def _name_ends(rows: Sequence[Row], top: float, color: alt.Color) -> list[alt.Chart]:
    """Write the name of each line next to its last point, with a stroke to it, moved just enough to avoid overlaps."""
    largest = max(row["context"] for row in rows)
    ends = sorted((row for row in rows if row["context"] == largest), key=lambda row: (row["mean"], -row["n"]))
    places = _space_apart([row["mean"] / top for row in ends], APART / theme.HEIGHT)
    names = [
        {"n": row["n"], "end": row["mean"], "place": place * top, "note": f"N = {row['n']}"}
        for row, place in zip(ends, places, strict=True)
    ]
    base = alt.Chart(alt.InlineData(values=names)).encode(y=alt.Y("place:Q"))
    x, x2 = ({"expr": f"width {shift}"} for shift in (f"- {INSIDE}", f"+ {LEADER}"))
    leaders = base.mark_rule(strokeWidth=1).encode(
        x=XValue(x), x2=X2Value(x2), y=alt.Y("end:Q"), y2=alt.Y2("place:Q"), color=color
    )
    named = base.mark_text(style="reference-label", align="left", dx=LEADER + 4)
    return [leaders, named.encode(x=XValue("width"), text=alt.Text("note:N"))]


def _space_apart(places: Sequence[float], step: float) -> list[float]:
    """Space ascending places between 0 and 1: move them up if they are closer than ``step``, and down from 1."""
    moved = list(places)
    for index in range(1, len(moved)):
        moved[index] = max(moved[index], moved[index - 1] + step)
    moved[-1] = min(moved[-1], 1)
    for index in reversed(range(len(moved) - 1)):
        moved[index] = min(moved[index], moved[index + 1] - step)
    return moved


def context_elbows(elbows: pa.Table) -> alt.LayerChart:
    """Elbow of the model and of its heads against the size of the context.

    Parameters
    ----------
    elbows
        ``elbows_by_query``: query (position), model_elbow_n, median_elbow_n, p25_elbow_n, p75_elbow_n (N, or NULL: a
        gap), heads.
    """
    rows = [_add_context(row) for row in elbows.to_pylist()]
    y = partial(alt.Y, title="N of the elbow", scale=alt.Scale(zero=True, nice=True))
    quarters = {"p25_elbow_n": "A quarter of heads below", "p75_elbow_n": "A quarter of heads above"}
    tooltip = tooltips(
        ".3~g",
        context=_CONTEXT,
        model_elbow_n="Elbow of the model",
        median_elbow_n="Median of heads",
        **quarters,
        heads="Heads with an elbow",
    )
    base = alt.Chart().encode(x=_make_axis(rows), tooltip=tooltip)
    drawn = {column: name for column, name in ELBOWS.items() if numbers.drop_nulls(rows, column)}
    return layer_chart(
        rows,
        "Elbow against context size",
        f"Line chart against context size on a log axis. {findings.describe_elbows(rows)}",
        base.mark_area(style="band").encode(y=y("p25_elbow_n:Q"), y2=alt.Y2("p75_elbow_n:Q")),
        *draw_dotted_lines(base, y, drawn),
    )


def context_labels(shares: pa.Table, changes: pa.Table) -> alt.LayerChart:
    """Share of each kind of head at each size of the context.

    Parameters
    ----------
    shares
        ``labels_by_query``: query (position), label, heads, share (from 0 to 1).
    changes
        ``label_changes``: query, next_query, changed, heads, for the description.
    """
    rows = [_add_context(row) for row in shares.to_pylist()]
    x = alt.X("context:O").title("Context size, tokens").axis(labelAngle=0, format=",d", labelOverlap=True)
    tooltip = tooltips(".3~p", context=_CONTEXT, label="Kind", heads="Heads", share="Share of heads")
    return layer_chart(
        stack_shares(rows, "context"),
        "Kinds of heads against context size",
        f"Stacked bars of the share of each kind of head. {findings.describe_labels(rows, changes.to_pylist())}",
        *segments(x, tooltip),
    )
