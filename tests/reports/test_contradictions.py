"""No two sentences of one page contradict each other: what judges the paper is a verdict's sentence, word for word."""

from pathlib import Path

import pytest

from dagster_project.analysis.claims.judging import CLAIMS
from reports.findings.numbers import Row
from reports.page import write_report
from reports.queries import ask
from tests.made_up import MadeUp, warehouse
from tests.reports.conftest import DEGENERATE, SMALL, SYNTHETIC, THREE, TRAINED
from tests.reports.pages import Page
from tests.reports.verdicts import contradictions, normalise

STUDIES = {
    "small": SMALL,
    **{name: DEGENERATE[name] for name in ("least", "only itself")},
    "three": THREE,
    "synthetic": SYNTHETIC,
    "beside a twin": TRAINED,
    "no claims": MadeUp("no claims", without=("claims", "claim_parts", "measures", "measure_values")),
}


def page_of(study: MadeUp, folder: Path, *changes: str) -> tuple[str, str, list[Row]]:
    """The text of a study's page, the same without the tables of claims, and its claims."""
    with warehouse(study, *([study.twin] if study.twin else [])) as connection:
        for change in changes:
            connection.execute(change)
        path = write_report(connection, study.study, folder / "report.html", map_n=4).path
        claims = ask(connection, "claims", study=study.study).rows()
    page = Page(path)
    text = f"{page.text('header')} {page.text('main')}"
    tables = page.text("section", id="claims") if claims else ""
    return text, text.replace(tables, ""), claims


@pytest.mark.one_case
@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_a_page_says_what_its_verdicts_say(study: MadeUp, tmp_path: Path) -> None:
    text, outside, claims = page_of(study, tmp_path)
    assert contradictions(text, claims) == []
    assert not [row for row in claims if normalise(row["sentence"]) in outside]


@pytest.mark.slow
@pytest.mark.parametrize("verdict", ["supported", "not testable"])
def test_every_verdict_reaches_the_page(verdict: str, tmp_path: Path) -> None:
    sentence = f"claim || ' told as {verdict}.'"
    text, outside, claims = page_of(SMALL, tmp_path, f"UPDATE claims SET verdict = '{verdict}', sentence = {sentence}")
    assert all(row["sentence"] in text and row["sentence"] not in outside for row in claims)


@pytest.mark.slow
def test_a_sentence_against_its_verdict_is_noticed(tmp_path: Path) -> None:
    text, _, claims = page_of(SMALL, tmp_path)
    for claim in CLAIMS:
        for clause in (claim.clause, claim.denial):
            assert clause in contradictions(f"{text} {clause[0].upper()}{clause[1:]} (0.5).", claims)
    for judgement in ("lies there, unlike the paper’s", "This study supports 4 of 31 claims", "lies beyond chance"):
        assert contradictions(f"{text} It {judgement}.", claims)
