"""Tables of claims with their verdicts, each a word and a symbol."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter

from reports.findings.claims import VERDICTS, format_decisive
from reports.findings.listings import DASH, Cell, Listing, tabulate
from reports.findings.numbers import Row


def tabulate_claims(rows: Sequence[Row], shown_by: Mapping[str, str]) -> Listing:
    """Claims with what this study shows, by verdict, and the figure by which each is ``shown_by`` (``claims``)."""
    ordered = sorted(rows, key=lambda row: list(VERDICTS).index(row["verdict"]))
    of_twin: dict[str, Cell] = {"Random weights": _format_twin}
    columns: dict[str, Cell] = {
        "Claim": itemgetter("statement"),
        "Verdict": lambda row: _format_verdict(row["verdict"]),
        **(of_twin if any(row["twin"] for row in rows) else {}),
        "This study; required": lambda row: format_decisive(row) or row["sentence"],
    }
    links = tuple((f"{row['source']}:", shown_by[row["claim"]]) for row in ordered)
    folded = tuple(row["sentence"] if format_decisive(row) else "" for row in ordered)
    return replace(tabulate(ordered, columns), links=links, folded=folded)


def tabulate_studies(rows: Mapping[str, Sequence[Row]]) -> Listing:
    """Claims of the paper with what each study shows (``claims`` of each)."""
    return Listing(
        ("Claim", "Source", *rows),
        tuple(
            (same[0]["statement"], same[0]["source"], *(_format_judgement(row) for row in same))
            for same in zip(*rows.values(), strict=True)
            if any(row["verdict"] != "not testable" for row in same)
        ),
    )


def _format_judgement(claim: Row) -> str:
    measured = "" if claim["verdict"] == "not testable" else format_decisive(claim)
    return f"{_format_verdict(claim['verdict'])}\u2002{measured}".rstrip()


def _format_twin(claim: Row) -> str:
    """The verdict for random weights, and for a supported claim whether its measures differ from theirs.

    A claim that is itself a difference from them has none.
    """
    if claim["twin_verdict"] is None:
        return DASH
    compared = {True: "; differs", False: "; does not differ", None: ""}[claim["beyond_twin"]]
    return f"{_format_verdict(claim['twin_verdict'])}{compared}"


def _format_verdict(verdict: str | None) -> str:
    """A verdict with its symbol."""
    return DASH if verdict is None else f"{VERDICTS[verdict][0]}\u00a0{verdict}"
