"""What a study shows of the paper's claims: in one sentence, and claim by claim; all from verdicts alone."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reports.words.numbers import Row, count, number

VERDICTS = {
    "supported": ("✓", "Supported"),
    "not supported": ("✗", "Not supported"),
    "undecided": ("~", "Undecided"),
    "not testable": ("?", "Not testable"),
}
"""For each verdict its symbol and its word."""

SIGNS = {"<=": "at most", "<": "below", ">=": "at least", ">": "above"}
"""What a direction means before a threshold."""


@dataclass(frozen=True)
class Claim:
    """One claim of the paper, with what this study shows of it."""

    place: str
    """Figure, table or section of the paper."""
    statement: str
    found: str
    """What is measured, what was found, and what it is held against."""
    figure: str
    """Key of the figure of this report that shows it."""


@dataclass(frozen=True)
class Verdict:
    """The claims of which the same can be said."""

    symbol: str
    word: str
    claims: tuple[Claim, ...]


def claims(rows: Sequence[Row]) -> str:
    """How many claims have each verdict, and how many of those supported are findings (``claims``)."""
    counts = Counter(row["verdict"] for row in rows)
    shared = sum(row["finding"] is False for row in rows)
    same = f" ({shared} of them like a model of random weights, so no finding)" if shared else ""
    return (
        f"Of {count(len(rows), 'claim')} of the paper, this study supports {counts['supported']}{same} and contradicts "
        f"{counts['not supported']}; {counts['undecided']} are undecided and {counts['not testable']} not testable."
    )


def verdicts(rows: Sequence[Row], shown_by: Mapping[str, str]) -> list[Verdict]:
    """The claims by what can be said of them, verdicts without a claim left out (``claims``).

    Parameters
    ----------
    rows
        ``claims``.
    shown_by
        For each claim, the key of the figure that shows it.
    """
    found = []
    for verdict, (symbol, word) in VERDICTS.items():
        among = tuple(_claim(row, shown_by) for row in rows if row["verdict"] == verdict)
        found += [Verdict(symbol, word, among)] if among else []
    return found


def agreement(rows: Mapping[str, Sequence[Row]]) -> str:
    """Of how many claims several studies say the same (``claims`` of each)."""
    found = [[row["verdict"] for row in of_study] for of_study in rows.values()]
    decided = [same for same in zip(*found, strict=True) if set(same) <= {"supported", "not supported"}]
    same = sum(len(set(verdicts)) == 1 for verdicts in decided)
    return f"Of the {count(len(decided), 'claim')} that are decided in every one, they agree on {same}."


def needed(row: Row) -> str:
    """What the measure of a claim must be."""
    return f"{SIGNS[row['direction']]} {number(row['threshold'])}"


def interval(row: Row) -> str:
    """The value of a claim with its interval; empty without a value."""
    if row["value"] is None:
        return ""
    if row["low"] is None:
        return number(row["value"])
    return f"{number(row['value'])} ({number(row['low'])} to {number(row['high'])})"


def _claim(row: Row, shown_by: Mapping[str, str]) -> Claim:
    return Claim(row["figure"], row["statement"], _found(row), shown_by[row["claim"]])


def _found(row: Row) -> str:
    """The measure of a claim with its value, what it is held against, and what its twin shows."""
    if row["verdict"] == "not testable":
        return f"{row['measure']}: {row['reason'] or 'no interval'}"
    twin = "" if row["twin_verdict"] is None else f"; random weights: {row['twin_verdict']}"
    return f"{row['measure']}: {interval(row)}, needs {needed(row)}{twin}"
