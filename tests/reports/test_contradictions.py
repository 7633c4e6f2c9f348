"""No two sentences of one page contradict each other: what judges the paper is a verdict's sentence, word for word."""

import duckdb
import pytest

from dagster_project.analysis.claims.judging import CLAIMS
from reports.queries import ask
from tests.made_up import MadeUp, warehouse
from tests.reports.conftest import SMALL, THREE, TRAINED, Writer
from tests.reports.pages import Page
from tests.reports.verdicts import contradictions, normalise


def texts(page: Page) -> tuple[str, str]:
    """The text of a page, and the same without the tables of claims."""
    text = f"{page.text('header')} {page.text('main')}"
    tables = page.text("section", id="claims") if any(page.find("section", id="claims")) else ""
    return text, text.replace(tables, "")


@pytest.mark.one_case
@pytest.mark.parametrize("study", [SMALL, TRAINED, THREE], ids=lambda study: study.study)
def test_a_page_says_what_its_verdicts_say(study: MadeUp, written: Writer) -> None:
    text, outside = texts(Page(written(study, 4).path))
    with warehouse(study, *([study.twin] if study.twin else [])) as connection:
        claims = ask(connection, "claims", study=study.study).rows()
    assert contradictions(text, claims) == []
    assert not [row for row in claims if normalise(row["sentence"]) in outside]


@pytest.mark.slow
def test_a_sentence_against_its_verdict_is_noticed(small: duckdb.DuckDBPyConnection, written: Writer) -> None:
    (text, _), claims = texts(Page(written(SMALL, 4).path)), ask(small, "claims", study=SMALL.study).rows()
    clauses = [clause for claim in CLAIMS for clause in (claim.clause, claim.denial)]
    said = " ".join(f"{clause[0].upper()}{clause[1:]} (0.5)." for clause in clauses)
    assert set(clauses) <= set(contradictions(f"{text} {said}", claims))
    for judgement in ("lies there, unlike the paper’s", "This study supports 4 of 31 claims", "lies beyond chance"):
        assert contradictions(f"{text} It {judgement}.", claims)
