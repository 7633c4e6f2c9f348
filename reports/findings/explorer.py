"""Findings on the explorer: what it shows, and what its blank cells mean."""

from collections.abc import Sequence

from reports.findings.numbers import Row, count, known, place, sentences
from reports.findings.separation import WITHOUT_ELBOW
from reports.findings.sink import NO_RHO_0
from reports.findings.taxonomy import OTHER


def explorer(heads: Sequence[Row], n: int) -> str:
    """Number of heads, and which maps have blank cells (``explorer_heads`` at ``n``)."""
    others = [row for row in heads if row["label"] == OTHER]
    flagged = f"{count(len(others), 'head')} {'meets' if len(others) == 1 else 'meet'} no rule and {_named(others)}."
    return sentences(
        f"{count(len(heads), 'head')} to choose from; the map starts at the one whose kind is clearest, "
        f"{place(clearest(heads))}.",
        flagged if others else "",
        _blank(heads, "elbow_n", "an elbow: " + ", or ".join(WITHOUT_ELBOW.values())),
        _blank(heads, "recall", f"a Recall at N = {n}: they attend to {n} keys or fewer"),
        _blank(heads, "rho_0", f"a ρ₀: {NO_RHO_0}"),
    )


def clearest(heads: Sequence[Row]) -> Row:
    """Find the head that is most clearly of its kind (``explorer_heads``)."""
    return max(heads, key=lambda row: (row["label"] not in {None, OTHER}, row["margin"] or 0))


def _named(others: Sequence[Row]) -> str:
    return f"{'is' if len(others) == 1 else 'are'} shown as Other, with the nearest kind"


def _blank(heads: Sequence[Row], column: str, without: str) -> str:
    """Say how many cells of one map are blank; empty if none is."""
    blank = len(heads) - len(known(heads, column))
    return f"Blank: {count(blank, 'head')} without {without}." if blank else ""
