"""What the explorer shows, and what its blank cells mean."""

from collections.abc import Sequence

from reports.words.numbers import Row, count, known, place, sentences
from reports.words.separation import WITHOUT_ELBOW
from reports.words.sink import NO_RHO_0


def explorer(heads: Sequence[Row], n: int) -> str:
    """How many heads there are to look at, and which map has blank cells (``explorer_heads`` at ``n``)."""
    nearest = [row for row in heads if row["label"] is not None and not row["fits_rule"]]
    flagged = f"{count(len(nearest), 'head')} {'fits' if len(nearest) == 1 else 'fit'} no rule and {_named(nearest)}."
    return sentences(
        f"{count(len(heads), 'head')} to choose from; the map begins with the one whose kind is clearest, "
        f"{place(clearest(heads))}.",
        flagged if nearest else "",
        _blank(heads, "elbow_n", "an elbow: " + ", or ".join(WITHOUT_ELBOW.values())),
        _blank(heads, "recall", f"a Recall at N = {n}: they attend to {n} keys or fewer"),
        _blank(heads, "rho_0", f"a ρ₀: {NO_RHO_0}"),
    )


def clearest(heads: Sequence[Row]) -> Row:
    """The head that is most clearly of its kind (``explorer_heads``)."""
    return max(heads, key=lambda row: (bool(row["fits_rule"]), row["margin"] or 0))


def _named(nearest: Sequence[Row]) -> str:
    return f"{'bears' if len(nearest) == 1 else 'bear'} the name of the nearest kind"


def _blank(heads: Sequence[Row], column: str, without: str) -> str:
    """Say how many cells of one map are blank; empty if none is."""
    blank = len(heads) - len(known(heads, column))
    return f"Blank: {count(blank, 'head')} without {without}." if blank else ""
