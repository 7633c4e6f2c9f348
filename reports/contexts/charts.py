"""Charts against context size: Precision, Recall and specificity at some N, the elbow, and the kinds of heads."""

from collections.abc import Sequence
from functools import partial

import altair as alt

from reports import theme
from reports.chance.figures import MEASURES
from reports.contexts import findings
from reports.elements import (
    DASHES,
    ENDS,
    X2Value,
    XValue,
    difference_map,
    draw_dotted_lines,
    layer_chart,
    log_axis,
    tooltips,
)
from reports.findings.numbers import Row, drop_nulls
from reports.kinds.labels import segments, stack_shares

APART = 13
"""Smallest distance of the names at the ends of lines, in pixels."""

INSIDE = 14
"""Room between the last points and the edge of the plotting area, in pixels."""

LEADER = 16
"""Length of the strokes to the names of lines beyond that edge, in pixels."""

ELBOWS = {"median_elbow_n": "median head", "model_elbow_n": "model"}
"""Elbows that are drawn, as the legend names them."""


def context_metric(metrics: Sequence[Row], *, metric: str, same: str = "n") -> alt.LayerChart:
    """Precision, Recall or specificity against the size of the context (``metrics_by_query``).

    Along a line ``same`` is the same: ``n``, or ``share``, the number of keys of which one is selected.
    """
    rows_of_metric = [_add_context(row) for row in metrics if row["metric"] == metric]
    rows = [row for row in rows_of_metric if row["n"] > 1] or rows_of_metric  # at N = 1 all are 1 by definition
    rows = rows if same == "n" else _drop_single(rows)
    top, name = max(row["mean"] for row in rows) or 1, MEASURES[metric]
    scale = alt.Scale(domain=[0, top], nice=False)
    y = alt.Y("mean:Q", title=f"{name} (ratio)", scale=scale)
    order = sorted({row[same] for row in rows})
    color = alt.Color(f"{same}:O", legend=None, scale=alt.Scale(domain=order))
    dashes = [list(DASHES[index % len(DASHES)]) for index in range(len(order))]
    dash = alt.StrokeDash(f"{same}:O", legend=None, scale=alt.Scale(domain=order, range=dashes))
    base = alt.Chart().encode(x=_make_axis(rows), y=y, color=color)
    floors = base.mark_tick(orient="horizontal", size=14, thickness=1.5, clip=True)  # N/n below each point
    floors = floors.transform_calculate(floor="datum.n / datum.n_keys").encode(y=alt.Y("floor:Q", scale=scale))
    shown = {"context": _CONTEXT, "n": "N", "mean": f"Mean {name}", **ENDS}
    says = findings.describe_metric(rows_of_metric, metric) if same == "n" else "The share is the same along it."
    return layer_chart(
        rows,
        f"{name} {_SAME[same][0]}",
        f"Line chart against context size on a log axis, one line for each {_SAME[same][1]}. {says}",
        *([floors] if metric == "precision" else []),
        base.mark_line().encode(strokeDash=dash),
        base.transform_filter("isValid(datum.low)").mark_rule().encode(y=alt.Y("low:Q"), y2=alt.Y2("high:Q")),
        base.mark_point(filled=True, size=45).encode(tooltip=tooltips(".3~f", **shown, heads="Heads")),
        *_name_ends(rows, top, color, same),
    )


def has_shares(metrics: Sequence[Row]) -> bool:
    """Whether some share of the keys is selected at two sizes of the context or more."""
    return bool(_drop_single([_add_context(row) for row in metrics if row["n"] > 1]))


def _drop_single(rows: Sequence[Row]) -> list[Row]:
    """The rows with N a whole share of the context, and a share that another context has too."""
    whole = [{**row, "share": row["context"] // row["n"]} for row in rows if row["context"] % row["n"] == 0]
    sizes = {share: {row["context"] for row in whole if row["share"] == share} for share in {r["share"] for r in whole}}
    return [row for row in whole if row["share"] > 1 and len(sizes[row["share"]]) > 1]


def _add_context(row: Row) -> Row:
    return {**row, "context": findings.count_tokens(row)}


_CONTEXT = "Tokens up to the query"

FEW = 5
"""Sizes of contexts whose labels do not touch."""


def _make_axis(rows: Sequence[Row]) -> alt.X:
    """Sizes of contexts on a log axis, each with its label where there are few."""
    sizes = sorted({row["context"] for row in rows})
    return log_axis("context", "Context size, tokens (log scale)", sizes, thinned=len(sizes) > FEW, padding=INSIDE)


_SAME = {
    "n": ("against context size", "N", "N = {}"),
    "share": ("at a share of the keys", "share of the keys", "1/{}"),
}
"""By what is the same along a line: how titles go on, what lines are of, and their names."""


def _name_ends(rows: Sequence[Row], top: float, color: alt.Color, same: str) -> list[alt.Chart]:
    """Write the name of each line next to its last point, with a stroke to it, moved just enough to avoid overlaps."""
    largest = max(row["context"] for row in rows)
    ends = sorted((row for row in rows if row["context"] == largest), key=lambda row: (row["mean"], -row["n"]))
    places = _space_apart([row["mean"] / top for row in ends], APART / theme.HEIGHT)
    names = [
        {same: row[same], "end": row["mean"], "place": place * top, "note": _SAME[same][2].format(row[same])}
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


def context_slopes(slopes: Sequence[Row], *, metric: str, n: int) -> alt.LayerChart:
    """Change of a metric of every head as the context doubles, at one N (``average_slopes``)."""
    title = f"{MEASURES[metric]} at N = {n}, change for each doubling"
    return difference_map(slopes, "mean", title, findings.describe_heads(slopes, metric), {"mean": "Change"})


def context_elbows(elbows: Sequence[Row]) -> alt.LayerChart:
    """Elbow of the model and of its heads against the size of the context (``elbows_by_query``)."""
    rows = [_add_context(row) for row in elbows]
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
    drawn = {column: name for column, name in ELBOWS.items() if drop_nulls(rows, column)}
    return layer_chart(
        rows,
        "Elbow against context size",
        f"Line chart against context size on a log axis. {findings.describe_elbows(rows)}",
        base.mark_area(style="band").encode(y=y("p25_elbow_n:Q"), y2=alt.Y2("p75_elbow_n:Q")),
        *draw_dotted_lines(base, y, drawn),
    )


def context_labels(shares: Sequence[Row], changes: Sequence[Row]) -> alt.LayerChart:
    """Share of each kind of head at each size of the context (``labels_by_query``, ``label_changes``)."""
    rows = [_add_context(row) for row in shares]
    x = alt.X("context:O").title("Context size, tokens").axis(labelAngle=0, format=",d", labelOverlap=True)
    tooltip = tooltips(".3~p", context=_CONTEXT, label="Kind", heads="Heads", share="Share of heads")
    return layer_chart(
        stack_shares(rows, "context"),
        "Kinds of heads against context size",
        f"Stacked bars of the share of each kind of head. {findings.describe_labels(rows, changes)}",
        *segments(x, tooltip),
    )
