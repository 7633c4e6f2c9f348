"""Planted parameters against what the fits recover, for studies whose tensors are drawn from the assumptions."""

import altair as alt
import pyarrow as pa

from reports import theme
from reports.elements import HEAD, layer_chart, tooltips
from reports.recovery import findings

SHOWN = ("layer", "head", "planted", "fitted", "low", "high")
"""Columns of ``planted_recovery`` that a chart needs; there may be thousands of rows."""


def recovery(heads: pa.Table, *, parameter: str) -> alt.LayerChart:
    """A fitted parameter against its planted value, with the diagonal where they agree (``planted_recovery``)."""
    compared = findings.select_compared(heads.to_pylist())
    rows = [{column: row[column] for column in SHOWN} for row in compared]
    ends = [value for row in rows for value in (row["planted"], row["fitted"])]
    scale = alt.Scale(zero=False, nice=True, domain=[min(ends), max(ends)] if min(ends) < max(ends) else alt.Undefined)
    x = alt.X("planted:Q", scale=scale).title("planted").axis(format=".4~g", tickCount=4)
    y = alt.Y("fitted:Q", scale=scale).title("fitted").axis(format=".4~g", tickCount=4)
    diagonal = alt.Chart(alt.InlineData(values=[{"planted": end, "fitted": end} for end in (min(ends), max(ends))]))
    tooltip = [
        *HEAD,
        *tooltips(".4~g", planted="Planted", fitted="Fitted"),
        *tooltips(".3~g", low="95 % interval from", high="to"),
    ]
    name = findings.PARAMETERS[parameter]
    return layer_chart(
        rows,
        name,
        f"Scatter plot of the fitted against the planted {name}. {findings.describe_parameter(compared, parameter)}",
        diagonal.mark_line(style="reference").encode(x=x, y=y),
        alt.Chart().mark_point(style="head", filled=True, size=40).encode(x=x, y=y, tooltip=tooltip),
        height=theme.PANEL_HEIGHT,
    )
