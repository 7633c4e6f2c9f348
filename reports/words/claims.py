"""Which of the paper's claims a model supports: in one sentence, and claim by claim."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reports.words.numbers import Row, count, number

_VERDICTS = {True: ("✓", "Supported"), False: ("✗", "Not supported"), None: ("?", "Cannot be judged")}

IF_SO = " (1 if so)"
"""How a measure ends that is 1 or 0 (``paper_claims``)."""


@dataclass(frozen=True)
class Claim:
    """One claim of the paper, with what this study shows of it."""

    place: str
    """Figure or theorem of the paper."""
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
    """How many claims are supported (``claims``)."""
    supported, contradicted, unknown = (
        sum(row["supported"] is verdict for row in rows) for verdict in (True, False, None)
    )
    left = f"; {unknown} cannot be judged" if unknown else ""
    return f"Of {count(len(rows), 'claim')} of the paper, this study supports {supported} and not {contradicted}{left}."


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
    for supported, (symbol, word) in _VERDICTS.items():
        among = tuple(_claim(row, shown_by) for row in rows if row["supported"] is supported)
        found += [Verdict(symbol, word, among)] if among else []
    return found


def agreement(rows: Mapping[str, Sequence[Row]]) -> str:
    """Of how many claims several studies say the same (``claims`` of each)."""
    found = [[row["supported"] for row in of_study] for of_study in rows.values()]
    judged = [verdicts for verdicts in zip(*found, strict=True) if None not in verdicts]
    same = sum(len(set(verdicts)) == 1 for verdicts in judged)
    return f"Of the {count(len(judged), 'claim')} that can be judged in every one, they agree on {same}."


def _claim(row: Row, shown_by: Mapping[str, str]) -> Claim:
    return Claim(row["figure"], row["statement"], _found(row), shown_by[row["claim"]])


def _found(row: Row) -> str:
    """The measure of a claim with its value, and what it is held against."""
    measure = row["measure"].removesuffix(IF_SO)
    if row["value"] is None:
        return f"{measure}: cannot be judged here"
    if measure != row["measure"]:
        return f"{measure}: {'yes' if row['value'] else 'no'}"
    needed = f"{'at most' if row['direction'] == '<=' else 'at least'} {number(row['threshold'])}"
    return f"{measure}: {number(row['value'])}, needs {needed}"
