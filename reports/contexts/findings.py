"""Findings on context size: how Precision, Recall and specificity, the elbow, and the kinds of heads change.

The size of a context is its query's position plus 1.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from math import isnan
from statistics import fmean

from geometry.statistics.intervals import estimate_mean
from reports.chance.figures import MEASURES
from reports.findings.claims import format_interval
from reports.findings.numbers import Row, count_sides, describe_range, drop_nulls, format_ends, join_sentences, number
from reports.kinds.findings import LABELS

METRICS = ("precision", "recall", "specificity")
"""The measures that are drawn against the size of the context."""


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
        return f"{MEASURES[metric]} has no N to compare between {first + 1:,} and {last + 1:,} tokens."
    most = max(shared, key=lambda n: abs(after[n]["mean"] - before[n]["mean"]))
    return (
        f"From {first + 1:,} to {last + 1:,} tokens {MEASURES[metric]} changes most at N = {most:,}, from "
        f"{format_interval(before[most], 'mean')} to {format_interval(after[most], 'mean')}."
    )


def average_sequences(rows: Iterable[Row], *keys: str) -> list[Row]:
    """The mean of ``value`` over the sequences of rows, which are sorted by these columns: mean, low, high."""
    averaged = []
    for place, some in groupby(rows, key=lambda row: [row[key] for key in keys]):
        found = list(some)
        ends = estimate_mean([row["value"] for row in found]).name_ends("mean")
        mean, low, high = (None if isnan(end) else float(end) for end in ends.values())
        averaged.append(dict(zip(keys, place, strict=True)) | {"mean": mean, "low": low, "high": high})
    return averaged


def describe_slopes(rows: Sequence[Row], n: int) -> str:
    """Change of the mean over heads of each metric as the context doubles (``context_slopes`` at N = n)."""
    told = []
    for kept, words in {"number": f"At N = {n:,}", "share": "With a quarter of the keys selected"}.items():
        points = sorted((row for row in rows if row["kept"] == kept), key=lambda row: int(row["sequence"]))
        if points:
            first, last = min(row["first_context"] for row in points), max(row["last_context"] for row in points)
            changes = [f"{MEASURES[metric]} {_describe_slope(points, metric)}" for metric in METRICS]
            told.append(f"{words}, each doubling of the context from {first:,} to {last:,} keys: {', '.join(changes)}.")
    return join_sentences(*told)


def _describe_slope(points: Iterable[Row], metric: str) -> str:
    """Say which way the mean over heads goes, if its interval over sequences says it."""
    by_sequence = groupby(points, key=lambda row: row["sequence"])
    values = [{"value": fmean(row[metric] for row in some)} for _, some in by_sequence]
    (row,) = average_sequences(values)
    if row["low"] is None:
        return f"changes by {number(row['mean'])}"
    if row["low"] <= 0 <= row["high"]:
        return f"neither falls nor rises for certain ({format_ends(row['low'], row['high'], number)})"
    small, mean, large = sorted(abs(end) for end in row.values())
    return f"{'rises' if row['low'] > 0 else 'falls'} by {number(mean)} ({format_ends(small, large, number)})"


def average_slopes(rows: Iterable[Row], metric: str) -> list[Row]:
    """The change of a metric of every head as the context doubles at one N, with its interval over sequences."""
    at_n = ({**row, "value": row[metric]} for row in rows if row["kept"] == "number")
    return average_sequences(at_n, "layer", "head")


def describe_heads(slopes: Sequence[Row], metric: str) -> str:
    """How many heads change for certain, and between which values (``average_slopes``)."""
    return f"{MEASURES[metric]} changes by {describe_range(slopes, 'mean')}. {count_sides(slopes)}".strip()


def describe_elbows(rows: Sequence[Row]) -> str:
    """Change of the elbows with the context (``elbows_by_query``)."""
    ordered = sorted(rows, key=lambda row: int(row["query"]))
    return join_sentences(
        _describe_move("The elbow of the model’s mean curves", drop_nulls(ordered, "model_elbow_n"), "model_elbow_n"),
        _describe_move("The median elbow of heads", drop_nulls(ordered, "median_elbow_n"), "median_elbow_n"),
    )


def _describe_move(what: str, rows: Sequence[Row], column: str) -> str:
    if not rows:
        return f"{what} exists at none of the context sizes."
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
