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
    """The N at which the interval of a measure minus that of a null lies on a side of 0 (``separability_by_n``)."""
    of_nulls = {
        name: [row for row in rows if (row["measure"], row["null_model"]) == (measure, null)]
        for null, name in NULLS.items()
    }
    if not any(drop_nulls(rows_of_null, "low") for rows_of_null in of_nulls.values()):
        return f"There are no intervals for {MEASURES[measure]}: these need several sequences."
    clauses = (f"minus that of {name} {_describe_sides(rows_of_null)}" for name, rows_of_null in of_nulls.items())
    return f"The 95 % interval of {MEASURES[measure]} {', and '.join(clauses)}."


def _describe_sides(rows: Sequence[Row]) -> str:
    order = [row["n"] for row in rows]
    sides = {
        "above": [row["n"] for row in drop_nulls(rows, "low") if row["low"] > 0],
        "below": [row["n"] for row in drop_nulls(rows, "high") if row["high"] < 0],
    }
    places = [f"{side} 0 at N = {format_spans(numbers, order)}" for side, numbers in sides.items() if numbers]
    return f"lies {' and '.join(places)}" if places else f"holds 0 at all of the {count(len(rows), 'N', 'N')} shown"


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
    """The AUC of the heads whose curves are drawn (``separation_curves``)."""
    by_rank = {row["auc_rank"]: row for row in rows}
    heads = [f"{number(row['auc'])} in {name_head(row)} ({rank} mean AUC)" for rank, row in by_rank.items()]
    first = next(iter(by_rank.values()))
    return f"In sequence {first['sequence']} at N = {first['n']:,}, AUC is {', '.join(heads)}."
