"""Charts of the limits of selection: distances from the rest, uniform weights, shares told apart, temperature."""

from collections.abc import Sequence
from functools import partial
from math import ceil, floor, log10

import altair as alt

from reports.elements import (
    DASHES,
    ENDS,
    HEAD,
    colour_bars,
    count_axis,
    draw_dotted_lines,
    keep_columns,
    layer_axis,
    layer_chart,
    level,
    log_axis,
    n_axis,
    points,
    style_line,
    tooltips,
)
from reports.findings import numbers
from reports.findings.numbers import Row
from reports.limits import findings

DISTANCES = {"relative_distance": "largest weights", "relative_random_distance": "random keys", "fitted": "power of N"}
"""Lines of the chart of distances, as its legend names them."""

NORMS = {"spectral_norm": "mean norm", "quarter": "1/(4T), reported", "half": "1/(2T)"}
"""Lines of the chart of sensitivity."""

LOWEST = 1e-4
"""Lower end of the band of norms: a norm of 0 has no place on a log axis."""


def distances(rows: Sequence[Row]) -> alt.LayerChart:
    """Distance of selected and of random keys from the rest against N, at the last query (``distances_by_n``)."""
    last_rows = findings.select_last_query(rows)
    last = max(row["n"] for row in last_rows)
    y = partial(alt.Y, title="Distance over the output’s norm (ratio)", scale=alt.Scale(zero=True))
    base = alt.Chart().encode(x=n_axis(last))
    shown = {"relative_distance": "Distance", **ENDS}
    shown |= {"relative_random_distance": "Random keys", "fitted": "Fit"}
    tooltip = tooltips(".3~g", n="N", **shown)
    drawn = {column: name for column, name in DISTANCES.items() if numbers.drop_nulls(last_rows, column)}
    return layer_chart(
        last_rows,
        f"Against N, with {last_rows[0]['n_keys']:,} keys",
        f"Line chart against N on a log axis. {findings.describe_distance(last_rows)}",
        *(
            [base.mark_area(style="band").encode(y=y("low:Q"), y2=alt.Y2("high:Q"))]
            if numbers.drop_nulls(last_rows, "low")
            else []
        ),
        *(
            style_line(base.mark_line(point=last == 1).encode(y=y(f"{column}:Q")), list(drawn.values()), name)
            for column, name in reversed(drawn.items())
        ),
        points(base.encode(y=y("relative_distance:Q"), tooltip=tooltip), always=last == 1),
    )


def distance_ratios(rows: Sequence[Row]) -> alt.LayerChart:
    """The same distance over that of random keys, a line for each size of the context (``distances_by_n``)."""
    known = numbers.drop_nulls(rows, "beside_random")
    sizes = findings.list_sizes(known)
    scale = alt.Scale(domain=sizes)
    legend = alt.Legend(orient="top", title="Keys", format=",d")
    dashes = [list(DASHES[index % len(DASHES)]) for index in range(len(sizes))]
    y = alt.Y("beside_random:Q", title="Distance over that of random keys (ratio)", scale=alt.Scale(zero=False))
    base = alt.Chart().encode(
        x=n_axis(max(row["n"] for row in known)), y=y, color=alt.Color("n_keys:O", scale=scale, legend=legend)
    )
    dash = alt.StrokeDash("n_keys:O", scale=alt.Scale(domain=sizes, range=dashes), legend=legend)
    tooltip = tooltips(".3~g", n="N", n_keys="Keys", beside_random="Distance over that of random keys")
    return layer_chart(
        known,
        "Relative to random keys",
        "Line chart against N on a log axis, one line for each number of keys; below 1 the selected keys are nearer to "
        "the rest than random keys.",
        level(1, "as random"),
        base.mark_line().encode(strokeDash=dash),
        points(base.encode(tooltip=tooltip)),
    )


def convergence(rows: Sequence[Row]) -> alt.LayerChart:
    """Effective keys and N_90 over the number of keys, mean and spread over heads (``convergence_by_query``)."""
    x = log_axis("n_keys", "Number of keys (log scale)", findings.list_sizes(rows), padding=14)
    y = partial(alt.Y, title="Share of the keys (ratio)", scale=alt.Scale(domain=[0, 1]))
    shown = {"effective_share": "Effective keys over all", "effective_share_p10": "10 % of heads below"}
    shown |= {"effective_share_p90": "10 % of heads above", "n_90_share": "N₉₀ over all"}
    tooltip = tooltips(".3~g", n_keys="Keys", **shown)
    base = alt.Chart().encode(x=x, tooltip=tooltip)
    return layer_chart(
        rows,
        "Against the number of keys",
        f"Line chart against the number of keys on a log axis. {findings.describe_convergence(rows, [])}",
        level(1, "uniform"),
        base.mark_area(style="band").encode(y=y("effective_share_p10:Q"), y2=alt.Y2("effective_share_p90:Q")),
        *draw_dotted_lines(base, y, findings.SHARES),
    )


def convergence_of_heads(rows: Sequence[Row]) -> alt.LayerChart:
    """Effective keys over all keys, a dot for each head, layer by layer (``convergence``)."""
    y = alt.Y("effective_share:Q", title="Effective keys over all (ratio)", scale=alt.Scale(domain=[0, 1]))
    shown = {"effective_share": "Effective keys over all", "n_90_share": "N₉₀ over all"}
    shown |= {"largest_deviation": "Largest |p − 1/n|"}
    tooltip = [*HEAD, *tooltips(".3~g", **shown)]
    return layer_chart(
        keep_columns(rows, "layer", "head", "n_keys", *shown),
        "Head by head",
        f"Dot plot, a dot for each head, layer by layer. {findings.describe_head_convergence(rows)}",
        level(1, "uniform"),
        alt.Chart().mark_point(style="head", filled=True, size=45).encode(x=layer_axis(rows), y=y, tooltip=tooltip),
    )


def distinguishable(rows: Sequence[Row]) -> alt.LayerChart:
    """Share of the selected keys told apart against N, with the reported band (``distinguishable_by_n``)."""
    last, low, high = rows[-1]["n"], rows[0]["band_low"], rows[0]["band_high"]
    y = partial(alt.Y, title="Share told apart (Recall, ratio)", scale=alt.Scale(domain=[0, 1]))
    base = alt.Chart().encode(x=n_axis(last))
    shown = {"share": "Share told apart", **ENDS, "p10": "10 % of heads below"}
    shown |= {"p90": "10 % of heads above", "heads_within": "Share of the heads within the band"}
    tooltip = tooltips(".3~g", n="N", **shown)
    return layer_chart(
        rows,
        "Share of the selected keys that can be told apart",
        f"Line chart against N on a log axis, with the reported band. {findings.describe_distinguishable(rows)}",
        level(low, f"{low:.2f}"),
        level(high, f"{high:.2f}"),
        base.mark_area(style="band").encode(y=y("p10:Q"), y2=alt.Y2("p90:Q")),
        *(
            [base.mark_area(style="band").encode(y=y("low:Q"), y2=alt.Y2("high:Q"))]
            if numbers.drop_nulls(rows, "low")
            else []
        ),
        base.mark_line(style="mean").encode(y=y("share:Q")),
        points(base.encode(y=y("share:Q"), tooltip=tooltip), always=len(rows) == 1),
    )


def sensitivity(rows: Sequence[Row]) -> alt.LayerChart:
    """Spectral norm of the softmax Jacobian against the temperature, with bounds (``sensitivity_bounds_model``)."""
    floored = [{**row, "lowest": max(row["norm_p10"], LOWEST)} for row in rows]
    powers = range(
        floor(log10(min(row["lowest"] for row in floored))), 1 + ceil(log10(max(row["half"] for row in floored)))
    )
    y = partial(
        alt.Y,
        title="Spectral norm (log scale)",
        scale=alt.Scale(type="log", nice=False, domain=[10.0 ** powers[0], 10.0 ** powers[-1]]),
        axis=alt.Axis(values=[10.0**power for power in powers], format=".4~g"),
    )
    shown = {"spectral_norm": "Mean norm", "norm_p10": "10 % of norms below", "norm_p90": "10 % of norms above"}
    shown |= {"norm_max": "Largest norm", "quarter": "1/(4T)", "half": "1/(2T)"}
    shown |= {"reported_holds": "Share of norms within the reported bound"}
    temperatures = sorted(row["temperature"] for row in floored)
    x = log_axis("temperature", "Temperature T (log scale)", temperatures, written=".3~g", padding=14)
    base = alt.Chart().encode(x=x, tooltip=tooltips(".3~g", temperature="T", **shown))
    return layer_chart(
        floored,
        "Sensitivity of weights to their logits",
        f"Line chart against the temperature, both axes logarithmic. {findings.describe_sensitivity(floored)}",
        base.mark_area(style="band").encode(y=y("lowest:Q"), y2=alt.Y2("norm_p90:Q")),
        *(
            style_line(mark.encode(y=y(f"{column}:Q")), list(NORMS.values()), name)
            for column, name in NORMS.items()
            for mark in (
                base.mark_line(),
                *([base.mark_point(filled=True, size=50)] if column == "spectral_norm" else []),
            )
        ),
    )


def best_temperatures(rows: Sequence[Row]) -> alt.LayerChart:
    """Number of heads whose AUC, or Recall, is largest at each temperature (``best_temperatures``)."""
    labelled = [{**row, "line": findings.BEST_OF[row["measure"]]} for row in rows]
    labels = list(findings.BEST_OF.values())
    tooltip = tooltips(
        ".3~g",
        temperature="T",
        line="Measure",
        heads="Heads",
        gain_above_0="Heads whose gain has an interval above 0",
        mean_gain="Mean gain",
    )
    bars = alt.Chart().mark_bar()
    return layer_chart(
        labelled,
        f"Best temperature of heads, N = {max(row['n'] or 0 for row in labelled)}",
        f"Bars of the number of heads by the temperature that is best. {findings.describe_best_temperatures(labelled)}",
        bars.encode(
            x=alt.X("temperature:O", title="Temperature T").axis(labelAngle=0, grid=False, format=".3~g"),
            xOffset=alt.XOffset("line:N", sort=labels),
            y=alt.Y("heads:Q", **count_axis("Heads", max(row["heads"] for row in labelled))),
            color=colour_bars("line", labels),
            tooltip=tooltip,
        ),
    )
