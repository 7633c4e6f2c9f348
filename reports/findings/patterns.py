"""Findings on heads that look at a known pattern: how many there are, and how they differ from the others."""

from collections.abc import Sequence

from reports.findings.claims import format_interval
from reports.findings.numbers import Row, count, join_sentences, name_share, number

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


def format_difference(row: Row) -> str:
    """Format a difference with its interval (``measures_by_label``)."""
    return format_interval(row, low="value_low", high="value_high")


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
        f"{label} {format_difference(row)}"
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
