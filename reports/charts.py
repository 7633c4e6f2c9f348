"""The charts: one function each, tables in, an Altair chart out.

Every chart has a title, axis titles with units, tooltips, and a description for those who do not see it. Colours and
sizes come from ``reports.theme`` by style names. What does not belong here: SQL (``sql/queries``), captions
(``reports.words``) and pages (``reports.page``).

Tables are the answers to the query that each docstring names; they must have at least one row.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import log10
from typing import Any

import altair as alt
import pyarrow as pa

from reports import theme, words
from reports.words import Row

WRITTEN_HEADS = 12
"""A map with at most this many heads in a row has the value written in each cell."""


def precision_recall(curves: pa.Table, *, marked_n: int) -> alt.LayerChart:
    """Precision P(r_max, N) and Recall R(r_min, N) against N (Figure 5).

    Parameters
    ----------
    curves
        ``curves_by_n``: metric, n, heads, mean, p10, p90 (ratios from 0 to 1).
    marked_n
        The N that the maps show; a rule marks it.
    """
    return _by_n(curves, ("precision", "recall"), "Precision and Recall against N", marked_n)


def f_scores(curves: pa.Table, *, marked_n: int) -> alt.LayerChart:
    """F(r_max, N), which follows from Precision, and F(r_min, N), which follows from Recall, against N.

    Parameters
    ----------
    curves
        ``curves_by_n``: metric, n, heads, mean, p10, p90 (ratios from 0 to 1).
    marked_n
        The N that the maps show; a rule marks it.
    """
    return _by_n(curves, ("f_r_max", "f_r_min"), "F-score against N", marked_n)


def precision_map(heads: pa.Table, *, n: int) -> alt.LayerChart:
    """Precision P(r_max, N) of every head at one N.

    Parameters
    ----------
    heads
        ``heads_at_n``: layer, head, precision (ratio from 0 to 1, or NULL: a blank cell).
    n
        The N of the table.
    """
    return _map(heads, "precision", n)


def recall_map(heads: pa.Table, *, n: int) -> alt.LayerChart:
    """Recall R(r_min, N) of every head at one N.

    Parameters
    ----------
    heads
        ``heads_at_n``: layer, head, recall (ratio from 0 to 1, or NULL: a blank cell).
    n
        The N of the table.
    """
    return _map(heads, "recall", n)


def value_norm(norms: pa.Table) -> alt.LayerChart:
    """Norm of the value states against position, the sink marked (Figure 2 left).

    Parameters
    ----------
    norms
        ``value_norm_over_heads``: first_position, last_position, kv_heads, mean, p10, p90 (model units).
    """
    rows = _labelled(norms, {0: "sink, position 0"})
    last = max(row["last_position"] for row in rows)
    scale = alt.Scale(type="symlog", nice=False, padding=10, domain=[0, max(last, 1)])
    x = alt.X("position:Q", scale=scale).title("Position (token, log scale from 0)")
    x = x.axis(format=",d", values=[0, *_log_ticks(last)], grid=False)
    y = partial(alt.Y, title="Norm of the value state (model units)", scale=alt.Scale(zero=True))
    tooltip = [*_POSITIONS, *_spread(".4~g"), alt.Tooltip("kv_heads:Q", title="KV heads")]
    description = f"Line chart of the mean norm of value states against position. {words.value_norm(rows)}"
    return _layer(rows, "Norm of value states by position", description, *_along_positions(rows, x, y, tooltip))


def attention(weights: pa.Table, *, query: int) -> alt.LayerChart:
    """Attention weight of one key against its position, the sink and the query's own position marked (Figure 4).

    Parameters
    ----------
    weights
        ``attention_over_heads``: first_position, last_position, heads, mean, p10, p90 (shares that sum to 1 over keys).
    query
        Position of the query.
    """
    rows = _labelled(weights, {0: "sink, position 0", query: "the query itself"})
    x = alt.X("position:Q", scale=alt.Scale(nice=False, zero=False, padding=10)).title("Position of the key (token)")
    x = x.axis(format=",d", grid=False, tickCount=10, tickMinStep=1)
    floor = _floor(rows)
    scale = alt.Scale(type="log", nice=False, clamp=True, domain=[floor, 1])
    axis = alt.Axis(format="~%", values=[10.0**-power for power in range(1 + int(-log10(floor)))])
    y = partial(alt.Y, title="Attention weight of one key (share, log scale)", scale=scale, axis=axis)
    tooltip = [*_POSITIONS, *_spread(".3~p"), alt.Tooltip("heads:Q", title="Heads that see it")]
    description = f"Line chart of the mean attention weight against position. {words.attention(rows, query)}"
    layers = _along_positions(rows, x, y, tooltip)
    return _layer(rows, "Attention weight by position", description, _uniform_share(1 / (query + 1)), *layers)


def sink_by_layer(sinks: pa.Table) -> alt.LayerChart:
    """Attention weight every head gives the sink, by layer, with each layer's mean.

    Parameters
    ----------
    sinks
        ``sink_by_head``: layer, head, sink_weight (share, or NULL: left out), uniform_weight (share).
    """
    rows = words.known(sinks.to_pylist(), "sink_weight")
    x = alt.X("layer:O").title("Layer").axis(grid=False, labelAngle=0, labelOverlap=True)
    axis, scale = alt.Axis(format="~%"), alt.Scale(zero=True)
    y = partial(alt.Y, title="Attention weight of position 0 (share)", scale=scale, axis=axis)
    layer, head = alt.Tooltip("layer:O", title="Layer"), alt.Tooltip("head:O", title="Head")
    share = partial(alt.Tooltip, format=".3~p")
    weight, mean = "sink_weight:Q", "mean(sink_weight):Q"
    ticks = alt.Chart().mark_tick(style="head", orient="horizontal", thickness=1.5).encode(x=x, y=y(weight))
    means = alt.Chart().mark_point(style="average", filled=True).encode(x=x, y=y(mean))
    return _layer(
        rows,
        "Attention on the sink by layer",
        f"Strip chart of the weight each head gives position 0. {words.sink_by_layer(sinks.to_pylist())}",
        _uniform_share(min(row["uniform_weight"] for row in rows)),
        ticks.encode(tooltip=[layer, head, share(weight, title="Weight of position 0")]),
        means.encode(tooltip=[layer, share(mean, title="Mean over its heads")]),
    )


_POSITIONS = [
    alt.Tooltip("first_position:Q", title="From position", format=",d"),
    alt.Tooltip("last_position:Q", title="to", format=",d"),
]


def _spread(number_format: str) -> list[alt.Tooltip]:
    """Tooltip lines for a mean and the quantiles around it."""
    return [
        alt.Tooltip("mean:Q", title="Mean over heads", format=number_format),
        alt.Tooltip("p10:Q", title="10 % of heads below", format=number_format),
        alt.Tooltip("p90:Q", title="10 % of heads above", format=number_format),
    ]


def _layer(rows: Sequence[Row], title: str, description: str, *layers: alt.Chart | alt.LayerChart) -> alt.LayerChart:
    """Layers over the same rows, as wide as the place they are put in.

    Six significant digits of each number are embedded: more than a screen shows.
    """
    data = alt.InlineData(values=[{name: _short(value) for name, value in row.items()} for row in rows])
    chart = alt.LayerChart(layer=list(layers), data=data)
    return chart.properties(title=title, description=description, width="container")


def _short(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _log_ticks(last: int) -> list[int]:
    """Labels of a log axis from 1 to ``last``: 1, 2, 5, 10, 20 ... (powers of ten alone where those would be many)."""
    mantissas = (1, 2, 5) if last < 10_000 else (1,)
    ticks = [mantissa * 10**power for power in range(len(str(last))) for mantissa in mantissas]
    return [tick for tick in ticks if tick <= last]


def _floor(rows: Sequence[Row]) -> float:
    """Where a log axis of shares begins: at the smallest spread, but at most a decade below the smallest mean."""
    means: list[float] = [row["mean"] for row in rows if row["mean"] > 0]
    spreads: list[float] = [row["p10"] for row in rows if row["p10"] > 0]
    return min(max(min(spreads, default=1), min(means) / 10), 0.1)


def _uniform_share(share: float) -> alt.LayerChart:
    """A rule at the weight that every key would get if all got the same."""
    base = alt.Chart(alt.InlineData(values=[{"share": share, "note": "uniform"}])).encode(y="share:Q")
    label = base.mark_text(style="reference-label", align="left", dx=6).encode(x=alt.value("width"), text="note:N")
    return alt.LayerChart(layer=[base.mark_rule(style="reference"), label])


def _by_n(curves: pa.Table, metrics: Sequence[str], title: str, marked_n: int) -> alt.LayerChart:
    """Mean and spread over heads of some metrics against N."""
    rows = _with_partners([row for row in curves.to_pylist() if row["metric"] in metrics])
    labels = [words.NAMES[metric] for metric in metrics]
    last = max(row["n"] for row in rows)
    scale = alt.Scale(type="log", nice=False, domain=[1, max(last, 2)], padding=6)
    x = alt.X("n:Q", scale=scale).title("N, number of selected keys (log scale)")
    x = x.axis(format=",d", values=_log_ticks(last), grid=False)
    y = partial(alt.Y, title=f"{', '.join(labels)} (ratio)", scale=alt.Scale(domain=[0, 1]))
    color = alt.Color("label:N", title=None, scale=alt.Scale(domain=labels), legend=alt.Legend(orient="top"))
    dash = alt.StrokeDash("label:N", title=None, scale=alt.Scale(domain=labels, range=[[1, 0], [7, 4]]))
    base = alt.Chart().encode(x=x, color=color)
    means = [alt.Tooltip(f"{metric}:Q", title=words.NAMES[metric], format=".3~g") for metric in metrics]
    tooltip = [alt.Tooltip("n:Q", title="N", format=",d"), *means, alt.Tooltip("heads:Q", title="Heads", format=",d")]
    findings = " ".join(words.course(rows, metric) for metric in metrics)
    return _layer(
        rows,
        title,
        f"Line chart against N on a log axis. {findings}",
        _rule_at(marked_n),
        base.mark_area().encode(y=y("p10:Q"), y2="p90:Q"),
        base.mark_line().encode(y=y("mean:Q"), strokeDash=dash),
        _points(base.encode(y=y("mean:Q"), tooltip=tooltip), always=last == 1),
    )


def _with_partners(rows: Sequence[Row]) -> list[Row]:
    """Rows of ``curves_by_n`` with the metric's name and, beside each mean, the means of all metrics at the same N.

    The tooltip shows these, and no text: with ``nearest``, Vega-Lite 6.4 finds no text field (it shows ``undefined``).
    """
    means: dict[int, dict[str, float]] = {}
    for row in rows:
        means.setdefault(row["n"], {})[row["metric"]] = row["mean"]
    return [{**row, "label": words.NAMES[row["metric"]], **means[row["n"]]} for row in rows]


def _rule_at(n: int) -> alt.LayerChart:
    """A rule at the N that the maps show."""
    base = alt.Chart(alt.InlineData(values=[{"n": n, "note": f"maps: N = {n}"}])).encode(x="n:Q")
    label = base.mark_text(style="reference-label", align="left", baseline="top", dx=5)
    return alt.LayerChart(layer=[base.mark_rule(style="reference"), label.encode(y=alt.value(0), text="note:N")])


def _points(base: alt.Chart, *, always: bool = False) -> alt.Chart:
    """Points that carry the tooltip: the one nearest to the pointer shows, or all do."""
    points: alt.Chart = base.mark_point(filled=True, size=70, opacity=1)
    if always:
        return points
    nearest = alt.selection_point("nearest", nearest=True, on="pointerover", clear="pointerout", empty=False)
    opacity = alt.when(nearest).then(alt.value(1)).otherwise(alt.value(0))
    return points.encode(opacity=opacity).properties(name="points").add_params(nearest)


def _map(heads: pa.Table, metric: str, n: int) -> alt.LayerChart:
    """Layers by heads, coloured by one metric; the value is written where there is room."""
    rows: list[Row] = heads.to_pylist()
    layers, columns = (sorted({row[axis] for row in rows}) for axis in ("layer", "head"))
    name, middle = words.NAMES[metric], _middle(rows, metric)
    base = alt.Chart().encode(
        x=alt.X("head:O", scale=alt.Scale(domain=columns)).title("Head").axis(labelAngle=0, labelOverlap=True),
        y=alt.Y("layer:O", scale=alt.Scale(domain=layers)).title("Layer").axis(labelOverlap=True),
    )
    least, most = theme.ROW_HEIGHTS
    height = len(layers) * max(least, min(most, theme.MAP_HEIGHT // len(layers)))
    legend = alt.Legend(format=".2~f", gradientLength=height)
    tooltip = [alt.Tooltip("layer:O", title="Layer"), alt.Tooltip("head:O", title="Head")]
    cells = base.mark_rect().encode(
        color=alt.Color(f"{metric}:Q", title=None, legend=legend),
        tooltip=[*tooltip, alt.Tooltip(f"{metric}:Q", title=name, format=".4~f")],
    )
    written = [_written(base, metric, f"<= {middle}", "on-small"), _written(base, metric, f"> {middle}", "on-large")]
    return _layer(
        words.known(rows, metric),
        f"{name} of every head at N = {n}",
        f"Heat map of {name}, layers by heads, at N = {n}. {words.extremes(rows, metric)}",
        cells,
        *(written if len(columns) <= WRITTEN_HEADS else []),
    ).properties(height=height)


def _middle(rows: Sequence[Row], metric: str) -> float:
    """The value whose colour lies in the middle of the ramp."""
    values: list[float] = [row[metric] for row in words.known(rows, metric)]
    return (min(values) + max(values)) / 2


def _written(base: alt.Chart, metric: str, which: str, style: str) -> alt.Chart:
    """The values of some cells as text that stands out from the colour below."""
    text: alt.Chart = base.mark_text(style=style).encode(text=alt.Text(f"{metric}:Q", format=".2f"))
    return text.transform_filter(f"datum.{metric} {which}")


def _labelled(table: pa.Table, marked: dict[int, str]) -> list[Row]:
    """Rows of runs of positions with the middle ``position``, and a ``label`` where one is marked (else empty)."""
    return [
        {
            **row,
            "position": (row["first_position"] + row["last_position"]) / 2,
            "label": marked.get(row["first_position"], ""),
        }
        for row in table.to_pylist()
    ]


def _along_positions(
    rows: Sequence[Row], x: alt.X, y: Callable[[str], alt.Y], tooltip: list[alt.Tooltip]
) -> list[alt.Chart]:
    """Mean and spread over heads by position, the marked positions apart from the line."""
    plain, marked = ([row for row in rows if bool(row["label"]) is labelled] for labelled in (False, True))
    line = alt.Chart().encode(x=x).transform_filter("datum.label == ''")
    layers = [
        line.mark_area(style="band").encode(y=y("p10:Q"), y2="p90:Q"),
        line.mark_line(style="mean").encode(y=y("mean:Q")),
        _points(line.encode(y=y("mean:Q"), tooltip=tooltip), always=len(plain) == 1),
    ]
    return [*(layers if plain else []), *(mark for row in marked for mark in _marked(row, x, y, tooltip))]


def _marked(row: Row, x: alt.X, y: Callable[[str], alt.Y], tooltip: list[alt.Tooltip]) -> list[alt.Chart]:
    """One position with its spread and its name, which stands inside the plotting area."""
    base = alt.Chart().encode(x=x).transform_filter(f"datum.first_position == {row['first_position']}")
    first = row["first_position"] == 0
    name = base.mark_text(style="accent-label", align="left" if first else "right", dx=11 if first else -11)
    return [
        base.mark_rule(style="accent-spread").encode(y=y("p10:Q"), y2="p90:Q", tooltip=tooltip),
        base.mark_point(style="accent", filled=True).encode(y=y("mean:Q"), tooltip=tooltip),
        name.encode(y=y("mean:Q"), text="label:N"),
    ]
