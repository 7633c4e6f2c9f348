"""Heads that look at a known pattern, beside the others: how many there are, and how they differ."""

from collections.abc import Sequence

import altair as alt

from reports.elements import INTERVAL, layer_chart, points, tooltips
from reports.figures import Draft, Figure, Source
from reports.findings.listings import DASH, Listing, format_own_interval
from reports.findings.numbers import Row, count, join_sentences, name_share, number
from reports.kinds.findings import LABELS as KINDS

ROW = 24
"""Height of the row of a label, in pixels."""


def label_differences(rows: Sequence[Row], *, quantity: str) -> alt.LayerChart:
    """How heads of each label differ from all others in a quantity, with intervals (``measures_by_label``)."""
    chosen = [row for row in rows if row["quantity"] == quantity]
    labels = [label for label in LABELS if any(row["label"] == label for row in chosen)]
    name, base = QUANTITIES[quantity], alt.Chart().encode(y=alt.Y("label:N", sort=labels).title("Label"))
    zero = alt.Chart(alt.InlineData(values=[{"value": 0}])).mark_rule(style="reference").encode(x=alt.X("value:Q"))
    spans = base.mark_rule(style="average-span").encode(x=alt.X("value_low:Q"), x2=alt.X2("value_high:Q"))
    shown = tooltips(".3~g", value="Minus other heads", **INTERVAL)
    tooltip = [*tooltips(label="Label", heads="Heads"), *shown]
    marks = points(base, always=True).encode(x=alt.X("value:Q").title("Difference to other heads"), tooltip=tooltip)
    said = "; ".join(f"{row['label']} {format_own_interval(row, 'value')}" for row in chosen)
    return layer_chart(chosen, name, f"{name}, minus that of other heads: {said}.", zero, spans, marks, height=7 * ROW)


LABELS = ("sink", "self", "previous", "local", "duplicate", "induction", "diffuse")
"""Labels of ``head_labels``, in the order of charts and tables."""

QUANTITIES = {
    "recall": "Recall (mean over ln N)",
    "specificity": "Specificity (mean over ln N)",
    "auc": "AUC (mean over ln N)",
    "rho_0": "ρ₀",
    "effective_keys": "Effective keys",
    "loss": "Loss without the head (nats)",
}
"""What heads are compared in, by the names of ``measures_by_label``."""


def describe_hidden_sinks(row: Row) -> str:
    """Over how many queries weights on the sink are means where a window hides it (``queries_that_see_the_sink``)."""
    if not row["layers"]:
        return ""
    where = name_share(row["layers"] / row["all_layers"], row["all_layers"], "layer")
    seeing = " to ".join(dict.fromkeys(number(row[end]) for end in ("fewest", "most")))
    return (
        f"In {where} a window hides position 0: weights on the sink are means over the {seeing} of "
        f"{count(row['queries'], 'query', 'queries')} that see it."
    )


def describe_patterns(rows: Sequence[Row], hidden: Row) -> str:
    """Number of heads of each label, and those whose interval in Recall excludes 0 (``measures_by_label``)."""
    known = {row["label"]: row for row in rows if row["quantity"] == "recall"}
    recall = {label: known[label] for label in LABELS if label in known}
    numbers = ", ".join(f"{label} {row['heads']:,}" for label, row in recall.items())
    clear = [
        f"{label} {format_own_interval(row, 'value')}"
        for label, row in recall.items()
        if row["value_low"] is not None and row["value_low"] * row["value_high"] > 0
    ]
    return join_sentences(
        f"Heads by what they look at: {numbers}; a head may have several labels, or none.",
        f"The 95 % interval of the difference in Recall to all other heads excludes 0 for {'; '.join(clear)}."
        if clear
        else "The 95 % interval of the difference in Recall to all other heads excludes 0 for none.",
        describe_hidden_sinks(hidden),
    )


def tabulate_patterns(rows: Sequence[Row]) -> Listing:
    """How much more Recall heads of each label have, and how much more often they are of each kind, than all others.

    The rows are those of ``measures_by_label``.
    """
    row_of = {(row["label"], row["quantity"]): row for row in rows}

    def write(label: str, kind: str) -> str:
        row = row_of.get((label, kind.lower()))
        known = row is not None and any(row[end] for end in ("value", "value_low", "value_high"))
        return format_own_interval(row, "value") if row is not None and known else DASH

    return Listing(
        ("Label", "Heads: strongest (layer.head)", "Recall", *KINDS),
        tuple(
            (label, f"{row['heads']:,}: {row['strongest']}", *(write(label, name) for name in ("recall", *KINDS)))
            for label in LABELS
            if (row := row_of.get((label, "recall")))
        ),
    )


def build_patterns(source: Source) -> Figure:
    """Heads that look at a known pattern, beside the others."""
    draft = Draft("kinds-patterns", "Kinds of heads and what they look at", source.ask_study("measures_by_label"))
    rows = draft.rows
    if not rows:
        why = "What heads look at was not measured, or no head looks at a known place as only some do."
        return draft.leave_empty(why)
    quantities = [name for name in QUANTITIES if any(row["quantity"] == name for row in rows)]
    return draft.show(
        describe_patterns(rows, source.ask_study("queries_that_see_the_sink").rows()[0]),
        "Labels are those of the view head_labels: at least 0.4 of the weight, over all queries, on the sink, the "
        "query itself, the token before, the last eight, earlier copies (duplicate) or what followed them (induction), "
        "these two on repeated tokens, the others in the text, above chance; diffuse: nearly uniform weights. Each "
        "number is the mean over the heads of a label minus that over all others, in the table also of the share of a "
        "kind (–: no head of it). The paper has no such labels.",
        marks="Dots: differences; lines: 95 % intervals over sequences.",
        tab="What heads look at",
        charts=tuple(label_differences(rows, quantity=name) for name in quantities),
        listing=tabulate_patterns(rows),
    )
