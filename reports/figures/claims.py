"""The paper's claims at a glance.

What does not belong here: the claims themselves (``sql/views/claims.sql``).
"""

from reports import listings, words
from reports.figures.parts import NOT_ANALYSED, Figure, Section, Source, missing


def section(source: Source) -> Section:
    """What of the paper this study supports."""
    return Section(
        "claims",
        "What of the paper this study supports",
        "Each row is a statement of the paper with the number that is compared with it. Thresholds are settings of one "
        "SQL view, and a claim that is not supported is a finding about this study, not an error.",
        (_claims(source),),
    )


def _claims(source: Source) -> Figure:
    key, title, answer = "claims-table", "Claims of the paper", source.of_study("claims")
    rows = answer.rows()
    if not rows:
        return missing(key, title, answer, NOT_ANALYSED)
    reading = "Figures and tables are the paper’s, measured there on LLaMA-2-7B and others at 1024 tokens."
    return Figure(key, title, words.claims(rows), reading, answer.table, answer, listing=listings.claims(rows))
