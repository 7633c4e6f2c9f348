"""What changes as the context grows: Precision and Recall, the elbow, and the kinds of heads.

A context is as large as its query's position plus 1.
"""

from collections.abc import Sequence

from reports.findings.numbers import NAMES, Row, known, number, percent, sentences, spans
from reports.findings.taxonomy import LABELS


def context(row: Row) -> int:
    """Tokens up to the query and with it."""
    size: int = row["query"] + 1
    return size


def several_contexts(rows: Sequence[Row]) -> bool:
    """Whether there is more than one query to compare."""
    return len({row["query"] for row in rows}) > 1


def context_metric(rows: Sequence[Row], metric: str) -> str:
    """How one metric moves from the smallest context to the largest, N by N (``metrics_by_query``)."""
    points = [row for row in rows if row["metric"] == metric]
    first, last = (pick(row["query"] for row in points) for pick in (min, max))
    before, after = ({row["n"]: row["mean"] for row in points if row["query"] == query} for query in (first, last))
    shared = sorted(set(before) & set(after) - ({1} if metric == "recall" else set()))
    if not shared:
        return f"No N gives {NAMES[metric]} both at {first + 1:,} and at {last + 1:,} tokens anything to compare."
    most = max(shared, key=lambda n: abs(after[n] - before[n]))
    ways = {
        "falls": [n for n in shared if after[n] < before[n]],
        "rises": [n for n in shared if after[n] > before[n]],
    }
    told = [f"{way} at N = {spans(found, shared)}" for way, found in ways.items() if found]
    return (
        f"From {first + 1:,} to {last + 1:,} tokens, {NAMES[metric]} {' and '.join(told) or 'stays as it is'}; most at "
        f"N = {most}, from {number(before[most])} to {number(after[most])}."
    )


def context_elbows(rows: Sequence[Row]) -> str:
    """How the elbows move with the context (``elbows_by_query``)."""
    ordered = sorted(rows, key=lambda row: int(row["query"]))
    return sentences(
        _moved("The elbow of the model’s mean curves", known(ordered, "model_elbow_n"), "model_elbow_n"),
        _moved("The median elbow of heads", known(ordered, "median_elbow_n"), "median_elbow_n"),
    )


def _moved(what: str, rows: Sequence[Row], column: str) -> str:
    if not rows:
        return f"{what} exists at no context."
    first, last = rows[0], rows[-1]
    if first is last:
        return f"{what} exists at {context(first):,} tokens alone, with N = {number(first[column])}."
    way = "stays at" if first[column] == last[column] else f"moves from N = {number(first[column])} to"
    return f"{what} {way} N = {number(last[column])} between {context(first):,} and {context(last):,} tokens."


def context_labels(shares: Sequence[Row], changes: Sequence[Row]) -> str:
    """How the kinds of heads shift, and how many heads change theirs (``labels_by_query``, ``label_changes``)."""
    first, last = (pick(row["query"] for row in shares) for pick in (min, max))
    before, after = ({row["label"]: row["share"] for row in shares if row["query"] == query} for query in (first, last))
    moved = [
        f"{label} from {percent(before[label])} to {percent(after[label])}"
        for label in LABELS
        if before.get(label) != after.get(label)
    ]
    shift = f"From {first + 1:,} to {last + 1:,} tokens: {', '.join(moved) or 'as many of each kind'}."
    told = [f"{row['changed']:,} from {context(row):,} to {row['next_query'] + 1:,}" for row in changes]
    return sentences(
        shift, f"Heads that change their kind, of {changes[0]['heads']:,}: {', '.join(told)}." if told else ""
    )
