"""Findings on the explorer: what it shows, and what its blank cells mean."""

from collections.abc import Sequence
from typing import Any

from reports.findings.numbers import Row, count, drop_nulls, join_sentences, name_head
from reports.findings.sink import NO_RHO_0
from reports.findings.taxonomy import OTHER

WORTH_SEEING = ("induction", "duplicate", "previous")
"""Labels of heads that look at one place in the text, the one that is best shown first."""


def describe_explorer(heads: Sequence[Row], n: int) -> str:
    """Which head is shown first and why, and which maps have blank cells (``explorer_heads`` at ``n``)."""
    first = choose_first(heads)
    label = _find_label(first)
    why = (
        f"of those labelled {label}, the one with the least weight on the sink"
        if label
        else "the one that is most clearly of its kind"
    )
    return join_sentences(
        f"Of {count(len(heads), 'head')}, {name_head(first)} is shown first: {why}.",
        _describe_blank(heads, "elbow_n", "an elbow"),
        _describe_blank(heads, "recall", f"a Recall at N = {n:,}: they attend to {n} keys or fewer"),
        _describe_blank(heads, "rho_0", f"a ρ₀: {NO_RHO_0}"),
    )


def choose_first(heads: Sequence[Row]) -> Row:
    """The head that is shown first: of the first label of ``WORTH_SEEING``, that of the least weight on the sink.

    Without such labels, the head that is most clearly of its kind.
    """
    labels = [*WORTH_SEEING, ""]

    def rank(head: Row) -> tuple[Any, ...]:
        label = _find_label(head)
        on_sink = (head.get("sink_weight") or 0) if label else 0
        return labels.index(label), on_sink, head["label"] in {None, OTHER}, -(head["margin"] or 0)

    return min(heads, key=rank)


def _find_label(head: Row) -> str:
    """The first of ``WORTH_SEEING`` that a head has; empty if it has none."""
    known = (head.get("patterns") or "").split(", ")
    return next((label for label in WORTH_SEEING if label in known), "")


def _describe_blank(heads: Sequence[Row], column: str, without: str) -> str:
    """Say how many cells of one map are blank; empty if none is."""
    blank = len(heads) - len(drop_nulls(heads, column))
    return f"Blank: {count(blank, 'head')} without {without}." if blank else ""
