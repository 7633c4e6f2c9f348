"""Charts of heads that look at a known pattern, beside the others."""

from collections.abc import Sequence

import altair as alt

from reports.charts.elements import INTERVAL, layer_chart, points, tooltips
from reports.findings import patterns as findings
from reports.findings.numbers import Row

ROW = 24
"""Height of the row of a label, in pixels."""


def label_differences(rows: Sequence[Row], *, quantity: str) -> alt.LayerChart:
    """How heads of each label differ from all others in a quantity, with 95 % intervals over sequences.

    Parameters
    ----------
    rows
        ``measures_by_label``: quantity, label, heads, value, value_low, value_high.
    """
    chosen = [row for row in rows if row["quantity"] == quantity]
    labels = [label for label in findings.LABELS if any(row["label"] == label for row in chosen)]
    name, base = findings.QUANTITIES[quantity], alt.Chart().encode(y=alt.Y("label:N", sort=labels).title("Label"))
    zero = alt.Chart(alt.InlineData(values=[{"value": 0}])).mark_rule(style="reference").encode(x=alt.X("value:Q"))
    spans = base.mark_rule(style="average-span").encode(x=alt.X("value_low:Q"), x2=alt.X2("value_high:Q"))
    shown = tooltips(".3~g", value="Minus other heads", **INTERVAL)
    tooltip = [*tooltips(label="Label", heads="Heads"), *shown]
    marks = points(base, always=True).encode(x=alt.X("value:Q").title("Difference to other heads"), tooltip=tooltip)
    said = "; ".join(f"{row['label']} {findings.format_difference(row)}" for row in chosen)
    return layer_chart(chosen, name, f"{name}, minus that of other heads: {said}.", zero, spans, marks, height=7 * ROW)
