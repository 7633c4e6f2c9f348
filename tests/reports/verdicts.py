"""What a page says of the paper's claims, held against their verdicts."""

import re
from collections.abc import Iterable, Iterator

from reports.findings.claims import CLAUSES
from reports.findings.numbers import Row

JUDGEMENT = re.compile(
    r"(?:as|like|unlike) (?:in )?the paper(?!:)|beyond chance|contradict|refute|confirm|says nothing of|"
    r"this study supports (?:no|\d)|supports \d+ (?:of|and)",
    re.IGNORECASE,
)
"""Words by which a sentence judges the paper."""


def contradictions(text: str, claims: Iterable[Row]) -> list[str]:
    """What a page says that no verdict says.

    Parameters
    ----------
    text
        The text of a page, words one space apart.
    claims
        The rows of the view ``claims`` for its study.
    """
    verdicts = {row["claim"]: row["verdict"] for row in claims}
    found = []
    for claim, (clause, denial) in CLAUSES.items():
        said = {
            "supported": _begins(clause, text),
            "not supported": _begins(denial, text),
            "undecided": f"Whether {clause} is undecided" in text,
            "not testable": f"Whether {clause} cannot be tested" in text,
        }
        found += [f"{claim}: {verdict}" for verdict, there in said.items() if there and verdicts.get(claim) != verdict]
    rest = text
    for clause in _clauses():
        rest = rest.replace(clause, "")
    return found + [match.group() for match in JUDGEMENT.finditer(rest)]


def _begins(clause: str, text: str) -> bool:
    """Whether a verdict's sentence begins with a clause; the paper's own statements have no interval behind them."""
    sentence = re.escape(f"{clause[0].upper()}{clause[1:]}")
    return re.search(rf"{sentence}(?:, as with random weights)? \(", text) is not None


def _clauses() -> Iterator[str]:
    """All clauses, at the beginning of a sentence and within one."""
    for both in CLAUSES.values():
        for clause in both:
            yield clause
            yield f"{clause[0].upper()}{clause[1:]}"
