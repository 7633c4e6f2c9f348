"""Findings on the explorer: what it shows, and what its blank cells mean."""

from collections.abc import Sequence

from reports.findings.numbers import Row, count, drop_nulls, join_sentences, name_head
from reports.kinds.findings import OTHER
from reports.sink.findings import NO_RHO_0

WORTH_SEEING = ("induction", "previous", "duplicate")
"""Labels of heads that look at one place in the text, the one that is best shown first."""

CLEAR = 0.5
"""Least share of a head's weight on the keys of its label, at one query, of a clear example."""


def describe_explorer(heads: Sequence[Row], n: int, first: Row, example: Row | None) -> str:
    """Which head is shown first and why, and which maps have blank cells (``explorer_heads`` at ``n``)."""
    why = (
        f"of those labelled {example['label']} that do not rest on the sink, the strongest with a clear example"
        if example
        else "the one that is most clearly of its kind"
    )
    return join_sentences(
        f"Of {count(len(heads), 'head')}, {name_head(first)} is shown first: {why}.",
        _describe_blank(heads, "elbow_n", "an elbow"),
        _describe_blank(heads, "recall", f"a Recall at N = {n:,}: they attend to {n} keys or fewer"),
        _describe_blank(heads, "rho_0", f"a ρ₀: {NO_RHO_0}"),
    )


def choose_first(heads: Sequence[Row], examples: Sequence[Row]) -> tuple[Row, Row | None]:
    """The head that is shown first, and the example to show it at (``explorer_heads``, ``label_strongest``).

    Of the first label of ``WORTH_SEEING`` that has one, the head of largest share that does not rest on the sink and
    has a clear example. Without any, the head that is most clearly of its kind, if possible one that does not rest on
    the sink, and no example.
    """
    by_place = {(head["layer"], head["head"]): head for head in heads}
    for label in WORTH_SEEING:
        for example in (row for row in examples if row["label"] == label and row["held"] >= CLEAR):
            head = by_place[example["layer"], example["head"]]
            if not _rests(head):
                return head, example
    return min(heads, key=lambda head: (_rests(head), head["label"] in {None, OTHER}, -(head["margin"] or 0))), None


def _rests(head: Row) -> bool:
    """Whether a head is known to look at the sink, or gives it most of its weight."""
    return "sink" in (head.get("patterns") or "").split(", ") or (head.get("sink_weight") or 0) > CLEAR


def _describe_blank(heads: Sequence[Row], column: str, without: str) -> str:
    """Say how many cells of one map are blank; empty if none is."""
    blank = len(heads) - len(drop_nulls(heads, column))
    return f"Blank: {count(blank, 'head')} without {without}." if blank else ""
