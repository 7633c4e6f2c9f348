"""Findings on context size: how Precision and Recall, the elbow, and the kinds of heads change.

The size of a context is its query's position plus 1.
"""

from collections.abc import Sequence

from reports.findings.claims import format_interval
from reports.findings.numbers import NAMES, Row, drop_nulls, join_sentences, number
from reports.findings.taxonomy import LABELS


def count_tokens(row: Row) -> int:
    """Number of tokens up to and including the query."""
    size: int = row["query"] + 1
    return size


def has_several_contexts(rows: Sequence[Row]) -> bool:
    """Whether there is more than one query to compare."""
    return len({row["query"] for row in rows}) > 1


def describe_metric(rows: Sequence[Row], metric: str) -> str:
    """The N at which one metric changes most from the smallest context to the largest (``metrics_by_query``)."""
    points = [row for row in rows if row["metric"] == metric]
    first, last = (pick(row["query"] for row in points) for pick in (min, max))
    before, after = ({row["n"]: row for row in points if row["query"] == query} for query in (first, last))
    shared = sorted(set(before) & set(after) - ({1} if metric == "recall" else set()))
    if not shared:
        return f"{NAMES[metric]} has no N to compare between {first + 1:,} and {last + 1:,} tokens."
    most = max(shared, key=lambda n: abs(after[n]["mean"] - before[n]["mean"]))
    return (
        f"From {first + 1:,} to {last + 1:,} tokens {NAMES[metric]} changes most at N = {most:,}, from "
        f"{format_interval(before[most], 'mean')} to {format_interval(after[most], 'mean')}."
    )


def describe_elbows(rows: Sequence[Row]) -> str:
    """Change of the elbows with the context (``elbows_by_query``)."""
    ordered = sorted(rows, key=lambda row: int(row["query"]))
    return join_sentences(
        _describe_move("The elbow of the model’s mean curves", drop_nulls(ordered, "model_elbow_n"), "model_elbow_n"),
        _describe_move("The median elbow of heads", drop_nulls(ordered, "median_elbow_n"), "median_elbow_n"),
    )


def _describe_move(what: str, rows: Sequence[Row], column: str) -> str:
    if not rows:
        return f"{what} exists at no context size."
    first, last = rows[0], rows[-1]
    if first is last:
        return f"{what} exists only at {count_tokens(first):,} tokens, at N = {number(first[column])}."
    way = "stays at" if first[column] == last[column] else f"moves from N = {number(first[column])} to"
    return f"{what} {way} N = {number(last[column])} between {count_tokens(first):,} and {count_tokens(last):,} tokens."


def describe_labels(shares: Sequence[Row], changes: Sequence[Row]) -> str:
    """Change of the numbers of heads of each kind, and number of heads that change theirs.

    Rows are those of ``labels_by_query`` and ``label_changes``.
    """
    first, last = (pick(row["query"] for row in shares) for pick in (min, max))
    before, after = ({row["label"]: row["heads"] for row in shares if row["query"] == query} for query in (first, last))
    moved = [
        f"{label} from {before[label]:,} to {after[label]:,} heads"
        for label in LABELS
        if before.get(label) != after.get(label)
    ]
    shift = f"From {first + 1:,} to {last + 1:,} tokens: {', '.join(moved) or 'as many heads of each kind'}."
    changed = [f"{row['changed']:,} from {count_tokens(row):,} to {row['next_query'] + 1:,}" for row in changes]
    return join_sentences(
        shift,
        f"Heads that change their kind, of {changes[0]['heads']:,}: {', '.join(changed)} tokens." if changed else "",
    )
