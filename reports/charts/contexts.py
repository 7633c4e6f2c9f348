"""What changes as the context grows: Precision and Recall at some N, the elbow, and the kinds of heads.

What does not belong here: charts of one query (the other modules of this package).
"""

from collections.abc import Sequence
from functools import partial

import altair as alt
import pyarrow as pa

from reports import theme, words
from reports.charts.elements import keyed, layered
from reports.charts.labels import segments, stacked
from reports.words import Row

APART = 13
"""Names at the ends of lines stand at least so many pixels from each other."""

ELBOWS = {"median_elbow_n": "median head", "model_elbow_n": "model"}
"""Elbows that are drawn, as the legend names them."""


def context_metric(metrics: pa.Table, *, metric: str) -> alt.LayerChart:
    """Precision or Recall against the size of the context, one line for each N.

    Parameters
    ----------
    metrics
        ``metrics_by_query``: query (position), metric, n, heads, mean (ratio from 0 to 1).
    metric
        ``precision`` or ``recall``.
    """
    rows = [_sized(row) for row in metrics.to_pylist() if row["metric"] == metric]
    y = partial(alt.Y, title=f"{words.NAMES[metric]} (ratio)", scale=alt.Scale(domain=[0, 1]))
    color = alt.Color("n:O", legend=None, scale=alt.Scale(domain=sorted({row["n"] for row in rows})))
    base = alt.Chart().encode(x=_axis(rows), y=y("mean:Q"), color=color)
    tooltip = [
        _CONTEXT,
        alt.Tooltip("n:Q", title="N", format=",d"),
        alt.Tooltip("mean:Q", title=f"Mean {words.NAMES[metric]}", format=".3~f"),
        alt.Tooltip("heads:Q", title="Heads", format=",d"),
    ]
    return layered(
        rows,
        f"{words.NAMES[metric]} against context size",
        f"Line chart against context size on a log axis, one line for each N. {words.context_metric(rows, metric)}",
        base.mark_line(),
        base.mark_point(filled=True, size=45).encode(tooltip=tooltip),
        _ends(rows),
    )


def _sized(row: Row) -> Row:
    return {**row, "context": words.context(row)}


_CONTEXT = alt.Tooltip("context:Q", title="Tokens up to the query", format=",d")


def _axis(rows: Sequence[Row]) -> alt.X:
    """Sizes of contexts on a log axis, each with its label."""
    sizes = sorted({row["context"] for row in rows})
    x = alt.X("context:Q", scale=alt.Scale(type="log", nice=False, padding=14))
    return x.title("Context size, tokens (log scale)").axis(values=sizes, format=",d", grid=False)


def _ends(rows: Sequence[Row]) -> alt.Chart:
    """The name of each line beside its last point, moved as little as keeps names apart."""
    largest = max(row["context"] for row in rows)
    ends = sorted((row for row in rows if row["context"] == largest), key=lambda row: (row["mean"], -row["n"]))
    places = _apart([row["mean"] for row in ends], APART / theme.HEIGHT)
    names = [{"place": place, "note": f"N = {row['n']}"} for row, place in zip(ends, places, strict=True)]
    base = alt.Chart(alt.InlineData(values=names)).encode(x=alt.value("width"), y="place:Q", text="note:N")
    named: alt.Chart = base.mark_text(style="reference-label", align="left", dx=6)
    return named


def _apart(places: Sequence[float], step: float) -> list[float]:
    """Ascending places between 0 and 1, pushed up where they are nearer than ``step``, and down from 1."""
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
    rows = [_sized(row) for row in elbows.to_pylist()]
    y = partial(alt.Y, title="N of the elbow", scale=alt.Scale(zero=True, nice=True))
    tooltip = [
        _CONTEXT,
        alt.Tooltip("model_elbow_n:Q", title="Elbow of the model", format=",d"),
        alt.Tooltip("median_elbow_n:Q", title="Median of heads", format=".3~g"),
        alt.Tooltip("p25_elbow_n:Q", title="A quarter of heads below", format=".3~g"),
        alt.Tooltip("p75_elbow_n:Q", title="A quarter of heads above", format=".3~g"),
        alt.Tooltip("heads:Q", title="Heads with an elbow", format=",d"),
    ]
    base = alt.Chart().encode(x=_axis(rows), tooltip=tooltip)
    drawn = {column: name for column, name in ELBOWS.items() if words.known(rows, column)}
    marks = [
        keyed(mark.encode(y=y(f"{column}:Q")), list(drawn.values()), name)
        for column, name in drawn.items()
        for mark in (base.mark_line(), base.mark_point(filled=True, size=50))
    ]
    return layered(
        rows,
        "Elbow against context size",
        f"Line chart against context size on a log axis. {words.context_elbows(rows)}",
        base.mark_area(style="band").encode(y=y("p25_elbow_n:Q"), y2="p75_elbow_n:Q"),
        *marks,
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
    rows = [_sized(row) for row in shares.to_pylist()]
    x = alt.X("context:O").title("Context size, tokens").axis(labelAngle=0, format=",d", labelOverlap=True)
    tooltip = [
        _CONTEXT,
        alt.Tooltip("label:N", title="Kind"),
        alt.Tooltip("heads:Q", title="Heads", format=",d"),
        alt.Tooltip("share:Q", title="Share of heads", format=".3~p"),
    ]
    return layered(
        stacked(rows, "context"),
        "Kinds of heads against context size",
        f"Stacked bars of the share of each kind of head. {words.context_labels(rows, changes.to_pylist())}",
        *segments(x, tooltip),
    )
