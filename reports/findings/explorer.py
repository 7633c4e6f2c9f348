"""Findings on the explorer: what it shows, and what its blank cells mean."""

from collections.abc import Sequence

from reports.findings.numbers import Row, count, drop_nulls, join_sentences, name_head
from reports.findings.sink import NO_RHO_0
from reports.findings.taxonomy import OTHER


def describe_explorer(heads: Sequence[Row], n: int) -> str:
    """Number of heads, and which maps have blank cells (``explorer_heads`` at ``n``)."""
    others = [row for row in heads if row["label"] == OTHER]
    flagged = (
        f"{count(len(others), 'head')} {'meets' if len(others) == 1 else 'meet'} no rule and "
        f"{_describe_others(others)}."
    )
    return join_sentences(
        f"{count(len(heads), 'head')} to choose from; the map starts at the one whose kind is clearest, "
        f"{name_head(find_clearest(heads))}.",
        flagged if others else "",
        _describe_blank(heads, "elbow_n", "an elbow"),
        _describe_blank(heads, "recall", f"a Recall at N = {n:,}: they attend to {n} keys or fewer"),
        _describe_blank(heads, "rho_0", f"a ρ₀: {NO_RHO_0}"),
    )


def find_clearest(heads: Sequence[Row]) -> Row:
    """Find the head that is most clearly of its kind (``explorer_heads``)."""
    return max(heads, key=lambda row: (row["label"] not in {None, OTHER}, row["margin"] or 0))


def _describe_others(others: Sequence[Row]) -> str:
    return f"{'is' if len(others) == 1 else 'are'} shown as Other, with the nearest kind"


def _describe_blank(heads: Sequence[Row], column: str, without: str) -> str:
    """Say how many cells of one map are blank; empty if none is."""
    blank = len(heads) - len(drop_nulls(heads, column))
    return f"Blank: {count(blank, 'head')} without {without}." if blank else ""
