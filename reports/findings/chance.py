"""Findings on measures against nulls."""

from collections.abc import Sequence
from statistics import median

from reports.findings.numbers import Row, count, drop_nulls, format_spans, join_sentences, name_head, number

MEASURES = {"auc": "AUC", "specificity": "Specificity", "recall": "Recall", "precision": "Precision"}
"""Measures that are compared with nulls on the page."""

NULLS = {"random_selection": "random selections", "shuffled_values": "shuffled value states"}
"""The nulls with which they are compared."""


def describe_nulls(rows: Sequence[Row], measure: str) -> str:
    """The N at which a measure of the model differs clearly from either null (``separability_by_n``)."""
    of_nulls = {
        name: [row for row in rows if (row["measure"], row["null_model"]) == (measure, null)]
        for null, name in NULLS.items()
    }
    if not any(drop_nulls(rows_of_null, "low") for rows_of_null in of_nulls.values()):
        return f"There are no intervals for {MEASURES[measure]}: these need several sequences."
    clauses = (_describe_difference(rows_of_null, name) for name, rows_of_null in of_nulls.items())
    return f"{MEASURES[measure]} is {'; '.join(clauses)}."


def _describe_difference(rows: Sequence[Row], null: str) -> str:
    """Describe the N at which the interval of the difference lies on one side of 0."""
    order = [row["n"] for row in rows]
    sides = {
        "above": [row["n"] for row in drop_nulls(rows, "low") if row["low"] > 0],
        "below": [row["n"] for row in drop_nulls(rows, "high") if row["high"] < 0],
    }
    clauses_of = {side: f"at N = {format_spans(numbers, order)}" for side, numbers in sides.items() if numbers}
    if not clauses_of:
        return f"not clearly different from that of {null} at any of the {count(len(rows), 'N', 'N')} shown"
    places = [f"{side} {{}} {where}" for side, where in clauses_of.items()]
    return f"clearly {' and '.join(places)}".format(f"that of {null}", "it")


def describe_heads(rows: Sequence[Row], null: str) -> str:
    """Number of heads whose AUC differs clearly from a null at one N (``separability_at_n``)."""
    rows_of_auc = [row for row in rows if (row["measure"], row["null_model"]) == ("auc", null)]
    n, middle = rows_of_auc[0]["n"], median(row["difference"] for row in rows_of_auc)
    most = max(rows_of_auc, key=lambda row: row["difference"])
    clear = drop_nulls(rows_of_auc, "low")
    above, below = sum(row["low"] > 0 for row in clear), sum(row["high"] < 0 for row in clear)
    return join_sentences(
        f"At N = {n}, AUC is clearly above that of {NULLS[null]} in {above} of {count(len(rows_of_auc), 'head')}, and "
        f"clearly below in {below}."
        if clear
        else "",
        f"The difference from {NULLS[null]} is {number(middle)} in the median head, and largest in {name_head(most)}, "
        f"with {number(most['difference'])}.",
    )


def describe_radii(rows: Sequence[Row]) -> str:
    """The AUC of the heads whose curves are drawn (``separation_curves``)."""
    by_rank = {row["auc_rank"]: row for row in rows}
    heads = [f"{number(row['auc'])} in {name_head(row)} ({rank} mean AUC)" for rank, row in by_rank.items()]
    first = next(iter(by_rank.values()))
    return f"In sequence {first['sequence']} at N = {first['n']:,}, AUC is {', '.join(heads)}."
