"""Findings on measures against nulls."""

from collections.abc import Sequence
from statistics import median

from reports.findings.numbers import (
    Row,
    count,
    count_sides,
    drop_nulls,
    format_spans,
    join_sentences,
    join_words,
    name_head,
    name_share,
    number,
)

MEASURES = {"auc": "AUC", "specificity": "Specificity", "recall": "Recall", "precision": "Precision"}
"""Measures that are compared with nulls on the page."""

NULLS = {"random_selection": "random selections", "shuffled_values": "shuffled value states"}
"""The nulls with which they are compared."""


def name_drawn_sequences(row: Row, of_study: int) -> str:
    """The sequences of a study for which nulls are drawn (``separability_by_n``)."""
    drawn: int = row["sequences"]
    return name_share(1, drawn, "sequence") if drawn == of_study else f"the first {count(drawn, 'sequence')}"


def describe_nulls(rows: Sequence[Row], measure: str) -> str:
    """The N at which a measure differs from that of each null (``separability_by_n``)."""
    of_nulls = {
        name: [row for row in rows if (row["measure"], row["null_model"]) == (measure, null)]
        for null, name in NULLS.items()
    }
    if not any(drop_nulls(rows_of_null, "low") for rows_of_null in of_nulls.values()):
        return f"There are no intervals for {MEASURES[measure]}: these need several sequences."
    clauses = (_describe_sides(rows_of_null, name) for name, rows_of_null in of_nulls.items())
    return f"{MEASURES[measure]} is {', and '.join(clauses)} (95 % intervals of differences)."


def _describe_sides(rows: Sequence[Row], name: str) -> str:
    order = [row["n"] for row in rows]
    sides = {
        "above": [row["n"] for row in drop_nulls(rows, "low") if row["low"] > 0],
        "below": [row["n"] for row in drop_nulls(rows, "high") if row["high"] < 0],
    }
    places = [f"{side} {{}} at N = {format_spans(numbers, order)}" for side, numbers in sides.items() if numbers]
    return (
        " and ".join(places).replace("{}", f"that of {name}", 1).replace("{}", "it")
        or f"at no N different from that of {name}"
    )


def describe_heads(rows: Sequence[Row], null: str) -> str:
    """AUC of every head minus that of a null at one N (``separability_at_n``)."""
    of_auc = [row for row in rows if (row["measure"], row["null_model"]) == ("auc", null)]
    most = max(of_auc, key=lambda row: row["difference"])
    return join_sentences(
        f"At N = {most['n']}, AUC minus that of {NULLS[null]} is {number(median(row['difference'] for row in of_auc))} "
        f"in the median head, and largest in {name_head(most)}, with {number(most['difference'])}.",
        count_sides(of_auc),
    )


def describe_radii(rows: Sequence[Row]) -> str:
    """The heads whose curves are drawn, and their AUC in that sequence (``separation_curves``)."""
    by_rank = {row["auc_rank"]: row for row in rows}
    ranks, heads = join_words([*by_rank]), join_words([name_head(row) for row in by_rank.values()])
    first, areas = rows[0], join_words([number(row["auc"]) for row in by_rank.values()])
    return (
        f"Of all heads, the mean AUC at N = {first['n']:,} is {ranks} in {heads}; in sequence {first['sequence']} "
        f"alone, which is drawn, it is {areas}."
    )


FLOOR = "Precision is never below N/n, the share of the keys that is selected, so it rises towards 1 in any head."
"""Note on Precision wherever it is drawn."""
