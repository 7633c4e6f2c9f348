"""Charts of the sink and Recall: the correlation over heads against N, and the heads that are correlated."""

from functools import partial

import altair as alt
import pyarrow as pa

from reports.elements import HEAD, distinguish_lines, layer_chart, level, n_axis, points, tooltips
from reports.findings import numbers
from reports.findings.numbers import Row
from reports.kinds.labels import add_nearest, dots
from reports.sink import findings

TITLE = "Correlation of Recall with ρ₀"

_y = partial(alt.Y, title="Correlation over heads (−1 to 1)", scale=alt.Scale(domain=[-1, 1]))


def sink_effect(curve: pa.Table) -> alt.LayerChart:
    """Correlation over heads of Recall R(r_min, N) and ρ_0 against N, with its interval (Figure 6; ``sink_effect``)."""
    rows: list[Row] = curve.to_pylist()
    base = alt.Chart().encode(x=n_axis(max(row["n"] for row in rows)))
    return layer_chart(
        rows,
        TITLE,
        f"Line chart against N on a log axis. {findings.describe_sink_effect(rows)}",
        level(0, ""),
        base.mark_area(style="band").encode(y=_y("correlation_low:Q"), y2=alt.Y2("correlation_high:Q")),
        base.mark_line(style="mean").encode(y=_y("correlation:Q")),
        points(_add_tooltip(base), always=len(numbers.drop_nulls(rows, "correlation")) == 1),
    )


def sink_effects(curves: pa.Table) -> alt.LayerChart:
    """The same correlation for several studies, a line each (Figure 6; ``sink_effect`` with the column study)."""
    rows: list[Row] = numbers.drop_nulls(curves.to_pylist(), "correlation")
    studies = list(dict.fromkeys(row["study"] for row in rows))
    color, dash = distinguish_lines("study", studies)
    base = alt.Chart().encode(x=n_axis(max(row["n"] for row in rows)), color=color)
    return layer_chart(
        rows,
        TITLE,
        f"Line chart against N on a log axis, one line for each study. {findings.describe_sink_effects(rows)}",
        level(0, ""),
        base.mark_area().encode(y=_y("correlation_low:Q"), y2=alt.Y2("correlation_high:Q")),
        base.mark_line().encode(y=_y("correlation:Q"), strokeDash=dash),
        points(_add_tooltip(base, *tooltips(study="Study")), always=len(rows) == len(studies)),
    )


def _add_tooltip(base: alt.Chart, *first: alt.Tooltip) -> alt.Chart:
    """Add the tooltip of correlations."""
    shown = {"correlation": "Correlation", "correlation_low": "95 % interval from", "correlation_high": "to"}
    lines = tooltips(".3~f", n="N", **shown, heads="Heads")
    return base.encode(y=_y("correlation:Q"), tooltip=[*first, *lines])


def sink_heads(heads: pa.Table, *, n: int) -> alt.LayerChart:
    """Recall at one N against ρ_0, a dot for each head that has both: what Figure 6 correlates (``sink_heads``)."""
    rows = add_nearest(findings.select_sink_points(heads.to_pylist()))
    x = (
        alt.X("rho_0:Q", scale=alt.Scale(zero=False, nice=True))
        .title("ρ₀, mean cosine with the sink")
        .axis(tickCount=4)
    )
    y = alt.Y("recall:Q", scale=alt.Scale(domain=[0, 1])).title(f"Recall at N = {n} (ratio)")
    tooltip = [*HEAD, *tooltips(".3~f", label="Kind", rho_0="ρ₀", recall=f"Recall at N = {n}")]
    return layer_chart(
        rows,
        f"Recall at N = {n} against ρ₀",
        f"Dot plot of Recall against ρ₀, one dot for each head. {findings.describe_sink_heads(rows, n)}",
        *dots(rows, x, y, tooltip),
    )
