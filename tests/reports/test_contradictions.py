"""No two sentences of one page contradict each other: what judges the paper follows from a verdict."""

from pathlib import Path

import pytest

from reports.findings import claims as findings
from reports.findings import numbers
from reports.findings.claims import CLAUSES
from reports.page import write_report
from reports.queries import ask
from tests.made_up import MadeUp, warehouse
from tests.reports.conftest import DEGENERATE
from tests.reports.pages import Page
from tests.reports.verdicts import contradictions

STUDIES = {
    **{name: DEGENERATE[name] for name in ("least", "one head", "one sequence", "hidden sink", "only itself")},
    "synthetic": MadeUp("synthetic", model="synthetic"),
    "two sequences": MadeUp("two sequences", sequences=2),
    "beside a twin": MadeUp("beside a twin", twin="random"),
    "no estimates": MadeUp("no estimates", without=("claim_estimates",)),
}


def page_of(study: MadeUp, folder: Path, *changes: str) -> tuple[str, list[numbers.Row]]:
    """The text of a study's page, and its claims."""
    with warehouse(study, MadeUp("random", layers=1, seed=5)) as connection:
        for change in changes:
            connection.execute(change)
        path = write_report(connection, study.study, folder / "report.html", map_n=4).path
        claims = ask(connection, "claims", study=study.study).rows()
    page = Page(path)
    return f"{page.text('header')} {page.text('main')}", claims


@pytest.mark.one_case
@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_a_page_says_what_its_verdicts_say(study: MadeUp, tmp_path: Path) -> None:
    text, claims = page_of(study, tmp_path)
    assert contradictions(text, claims) == []


@pytest.mark.slow
@pytest.mark.parametrize("verdict", ["supported", "not supported", "undecided", "not testable"])
def test_every_verdict_reaches_the_page_alike(verdict: str, tmp_path: Path) -> None:
    """With all claims alike, so that every sentence that can be said is said in one of the pages."""
    inward = "CASE WHEN direction IN ('<=', '<') THEN -1 ELSE 1 END"
    moved = {"supported": inward, "not supported": f"-{inward}", "undecided": "0", "not testable": "NULL"}[verdict]
    value = f"(SELECT threshold + {moved} FROM paper_claims WHERE paper_claims.claim = claim_estimates.claim)"
    change = (
        f"UPDATE claim_estimates SET value = {value}, low = {value} - 0.1, high = {value} + 0.1, "
        f"reason = {'NULL' if moved != 'NULL' else repr('nothing to test')}"
    )
    text, claims = page_of(MadeUp("alike", twin="random"), tmp_path, change)
    assert {row["verdict"] for row in claims} == {verdict}
    assert contradictions(text, claims) == []
    told = [row["claim"] for row in claims if findings.describe_claim(row) in text]
    assert (len(told) > 10) == (verdict != "not testable")


@pytest.mark.one_case
@pytest.mark.parametrize("claim", ["intermediate_weakest", "sink_predicts_recall", "kinds_in_order"])
def test_a_sentence_against_its_verdict_is_noticed(claim: str, tmp_path: Path) -> None:
    text, claims = page_of(MadeUp(), tmp_path)
    (verdict,) = (row["verdict"] for row in claims if row["claim"] == claim)
    clause, denial = CLAUSES[claim]
    against = denial if verdict == "supported" else clause
    assert contradictions(f"{text} {against[0].upper()}{against[1:]} (0.5).", claims)
    other = "cannot be tested" if verdict == "undecided" else "is undecided"
    assert contradictions(f"{text} Whether {clause} {other}: so.", claims)
    for judgement in ("lies there, unlike the paper’s", "This study supports 4 of 31 claims", "lies beyond chance"):
        assert contradictions(f"{text} It {judgement}.", claims)


def test_no_clause_is_part_of_another() -> None:
    clauses = [clause for both in CLAUSES.values() for clause in both]
    assert not [(one, other) for one in clauses for other in clauses if one != other and one in other]
