"""Attention weights: by position with the four phases (Assumption 3), on the sink, and which phases heads have."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from math import log10

import altair as alt
import pyarrow as pa

from reports import theme
from reports.charts.elements import (
    HEAD,
    INTERVAL,
    count_axis,
    head_grid,
    layer_axis,
    layer_chart,
    level,
    rule_at,
    tooltips,
)
from reports.charts.positions import POSITIONS, draw_positions, label_positions, spread_tooltip
from reports.findings import attention as findings
from reports.findings import numbers
from reports.findings.numbers import Row


def attention(weights: pa.Table, fitted: pa.Table, *, query: int, fit: Row | None) -> alt.LayerChart:
    """Attention weight of one key against its position, with the fitted phases; sink and query marked (Figure 4).

    Parameters
    ----------
    weights
        ``attention_over_heads``: first_position, last_position, heads, mean, p10, p90 (shares that sum to 1 over keys).
    fitted
        ``weights_fit_curve``: first_position, fitted (share, or NULL: no line there); it may be empty.
    query
        Position of the query.
    fit
        ``assumption_weights_model``: variant, t_1, t_2 (positions); ``None`` or NULL: no phase is marked.
    """
    curve = {row["first_position"]: row["fitted"] for row in fitted.to_pylist()}
    marked = label_positions(weights, {0: "sink, position 0", query: "the query itself"})
    rows = [{**row, "fitted": curve.get(row["first_position"])} for row in marked]
    x = alt.X("position:Q", scale=alt.Scale(nice=False, zero=False, padding=10)).title("Position of the key (token)")
    x = x.axis(format=",d", grid=False, tickCount=10, tickMinStep=1)
    floor = _find_floor(rows)
    scale = alt.Scale(type="log", nice=False, clamp=True, domain=[floor, 1])
    axis = alt.Axis(format="~%", values=[10.0**-power for power in range(1 + int(-log10(floor)))])
    y = partial(alt.Y, title="Attention weight of one key (share, log scale)", scale=scale, axis=axis)
    fit_of = tooltips(".3~p", fitted="Fit")
    tooltip = [*POSITIONS, *spread_tooltip(".3~p"), *fit_of, alt.Tooltip("heads:Q", title="Heads that see it")]
    line = alt.Chart().mark_line(style="fit").encode(x=x, y=y("fitted:Q")).transform_filter("datum.label == ''")
    description = (
        f"Line chart of the mean attention weight against position. {findings.describe_attention(rows, query)}"
    )
    return layer_chart(
        rows,
        "Attention weight by position",
        description,
        level(1 / (query + 1), "uniform"),
        *_draw_phases(fit),
        *draw_positions(rows, x, y, tooltip),
        *([line] if any(row["fitted"] is not None and not row["label"] for row in rows) else []),
    )


def _draw_phases(fit: Row | None) -> list[alt.LayerChart]:
    """Rules where the plateau ends and where the growth begins."""
    if fit is None or fit["t_1"] is None or fit["variant"] == "plateau":
        return []
    ends = {fit["t_1"]: "T₁", fit["t_2"]: "T₂"} if fit["t_1"] < fit["t_2"] else {fit["t_1"]: "T₁ = T₂"}
    return [
        rule_at("position", position, f"{name} = {position}", align="left" if name == "T₂" else "right")
        for position, name in ends.items()
    ]


def _find_floor(rows: Sequence[Row]) -> float:
    """Find where a log axis of shares begins: at the smallest spread, but at most a decade below the smallest mean.

    Half the smallest mean is above it in any case, so that a name beside that mean is clear of the axis.
    """
    means: list[float] = [row["mean"] for row in rows if row["mean"] > 0]
    spreads: list[float] = [row["p10"] for row in rows if row["p10"] > 0]
    return min(max(min(spreads, default=1), min(means) / 10), min(means) / 2, 0.1)


def sink_map(sinks: pa.Table) -> alt.LayerChart:
    """Attention weight of every head on the sink, layers by heads.

    Parameters
    ----------
    sinks
        ``sink_by_head``: layer, head, sink_weight (share, or NULL: a blank cell).
    """
    rows = sinks.to_pylist()
    base, height = head_grid(rows)
    legend = alt.Legend(format="~%", gradientLength=height)
    cells = base.mark_rect().encode(
        color=alt.Color("sink_weight:Q", title=None, legend=legend, scale=alt.Scale(zero=True)),
        tooltip=[*HEAD, *tooltips(".3~p", sink_weight="Weight of position 0")],
    )
    return layer_chart(
        numbers.drop_nulls(rows, "sink_weight"),
        "Attention on the sink of every head",
        f"Heat map of the weight of position 0, layers by heads. {findings.describe_sink_by_layer(rows)}",
        cells,
        height=height,
    )


def sink_by_layer(sinks: pa.Table, profile: pa.Table) -> alt.LayerChart:
    """Attention weight of every head on the sink, by layer, with each layer's mean and its interval.

    Parameters
    ----------
    sinks
        ``sink_by_head``: layer, head, sink_weight (share, or NULL: left out), uniform_weight (share).
    profile
        ``layer_profiles``: quantity, layer, value, value_low, value_high (shares); only ``sink_weight`` is drawn.
    """
    records = sinks.to_pylist()
    means = [row for row in profile.to_pylist() if row["quantity"] == "sink_weight"]
    rows, x = [*numbers.drop_nulls(records, "sink_weight"), *means], layer_axis(records)
    axis, scale = alt.Axis(format="~%"), alt.Scale(zero=True)
    y = partial(alt.Y, title="Attention weight of position 0 (share)", scale=scale, axis=axis)
    heads = alt.Chart().transform_filter("isValid(datum.sink_weight)")
    ticks = heads.mark_tick(style="head", orient="horizontal", thickness=1.5).encode(x=x, y=y("sink_weight:Q"))
    of_layers = alt.Chart().transform_filter("isValid(datum.value)").encode(x=x)
    spans = of_layers.mark_rule(style="average-span").encode(y=y("value_low:Q"), y2=alt.Y2("value_high:Q"))
    points = of_layers.mark_point(style="average", filled=True).encode(y=y("value:Q"))
    return layer_chart(
        rows,
        "Attention on the sink by layer",
        f"Strip chart of the weight of position 0 in each head. {findings.describe_sink_by_layer(records)}",
        level(min(row["uniform_weight"] for row in numbers.drop_nulls(records, "sink_weight")), "uniform"),
        ticks.encode(tooltip=[*HEAD, *tooltips(".3~p", sink_weight="Weight of position 0")]),
        *([spans] if any(row["value_low"] is not None for row in means) else []),
        points.encode(tooltip=[HEAD[0], *tooltips(".3~p", value="Mean over its heads", **INTERVAL)]),
        height=max(theme.HEIGHT, head_grid(records)[1]),
    )


def weight_variants(heads: pa.Table) -> alt.LayerChart:
    """Number of heads that each variant of the four-phase fit describes best.

    Parameters
    ----------
    heads
        ``assumption_weights``: variant (or NULL: no fit), status.
    """
    records = heads.to_pylist()
    counted = Counter(findings.VARIANTS.get(row["variant"], f"no fit: {row['status']}") for row in records)
    order = [*findings.VARIANTS.values(), *sorted(set(counted) - set(findings.VARIANTS.values()))]
    rows = [{"variant": name, "heads": counted[name]} for name in order]
    y = alt.Y("variant:N", sort=order, title="Variant").axis(labelLimit=240, grid=False)
    x = alt.X("heads:Q", **count_axis("Heads", max(counted.values())))
    tooltip = tooltips(variant="Variant", heads="Heads")
    bars = alt.Chart().mark_bar(style="bar").encode(x=x, y=y, tooltip=tooltip)
    description = (
        f"Bar chart of the number of heads by variant of the fit. {findings.describe_weight_variants(records)}"
    )
    return layer_chart(rows, "Phases of the heads", description, bars, height=theme.HEIGHT)
