"""What a page says of the paper's claims, held against their verdicts."""

import re
from collections.abc import Iterable

from dagster_project.analysis.claims.judging import CLAIMS
from reports.findings.numbers import Row

JUDGEMENT = re.compile(
    r"(?:as|like|unlike) (?:in )?the paper(?!:)|beyond chance|contradict|refute|confirm|says nothing of|"
    r"this study supports (?:no|\d)|supports \d+ (?:of|and)",
    re.IGNORECASE,
)
"""Words by which a sentence judges the paper."""

_NOT_IN_A_TABLE = r"(?! [✓✗~?] | (?:not )?supported | undecided | not testable )"
"""In tables the paper's own statement, which may be a claim's clause, stands before the cell of the verdict."""


def contradictions(text: str, claims: Iterable[Row]) -> list[str]:
    """What a page says of claims beside the sentences of their verdicts: clauses said otherwise, and judgements.

    Parameters
    ----------
    text
        The text of a page, words one space apart.
    claims
        The rows of the query ``claims`` for its study.
    """
    for row in claims:
        text = text.replace(normalise(row["sentence"]), "")
    clauses = [clause for claim in CLAIMS for clause in (claim.clause, claim.denial)]
    said = [clause for clause in clauses if re.search(re.escape(clause) + _NOT_IN_A_TABLE, text, re.IGNORECASE)]
    return said + [match.group() for match in JUDGEMENT.finditer(text)]


def normalise(text: str) -> str:
    """A text with its words one space apart, as ``Page.text`` has it."""
    return " ".join(text.split())
