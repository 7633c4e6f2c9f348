"""One number under one name, and no two sentences against each other, wherever a page says something of the model."""

import re
from collections.abc import Iterable
from pathlib import Path

import duckdb
import pytest

from dagster_project.analysis.claims.judging import CLAIMS
from reports.findings.claims import format_interval
from reports.findings.numbers import Row, number, percent
from reports.page import write_report
from reports.queries import ask
from tests.made_up import MadeUp, warehouse
from tests.reports.conftest import SMALL, THREE, TRAINED, Writer
from tests.reports.pages import Page, normalise

NUMBER = r"(−?[\d,.]+(?: · 10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)?)"

SAID = {
    "sink_weight": (percent, r"position 0 gets (−?[\d.]+ %)"),
    "phases_r2": (number, rf"R² = {NUMBER} for the log weight"),
    "sink_over_plateau": (number, rf"The sink has {NUMBER} times the plateau"),
}
"""Measures that findings tell beside claims: format, and the words around the number."""


def disagreements(page: Page, connection: duckdb.DuckDBPyConnection, study: str) -> list[str]:
    """What a page shows of the claims and measures of its study in two ways.

    Compared are the tables ``measures`` and ``claim_parts``, the sentence of each claim, its row in the table of claims
    and the findings that tell a measure by name.
    """
    measures = {row["measure"]: row for row in ask(connection, "measures", study=study).rows()}
    claims = ask(connection, "claims", study=study).rows()
    found = []
    table = page.text("figure", id="claims-table").split("Notes, table")[0]
    for claim in claims:
        for part in claim["parts"]:
            row = measures.get(part["measure"])
            ends = (part["value"], part["low"], part["high"])
            if ends != ((row["value"], row["value_low"], row["value_high"]) if row else (None, None, None)):
                found.append(f"{claim['claim']}: {part['measure']} is not that of measures")
        if claim["verdict"] == "not testable":
            continue
        if missing := [part for part in claim["parts"] if format_interval(part) not in claim["sentence"]]:
            found.append(f"{claim['claim']}: its sentence lacks {missing}")
        if normalise(claim["sentence"]) not in table:
            found.append(f"{claim['claim']}: the table lacks its sentence")
    return found + _compare_findings(page, measures)


def _compare_findings(page: Page, measures: dict[str, Row]) -> list[str]:
    text, found = page.text("main"), []
    for name, (write, words) in SAID.items():
        numbers = set(re.findall(words, text))
        if name in measures and numbers != {normalise(write(measures[name]["value"]))}:
            found.append(f"{name}: told is {numbers}, not {write(measures[name]['value'])}")
    return found


CHANGES = {
    "upper_tight": "UPDATE claim_parts SET value = value + 0.125 WHERE claim = 'upper_tight'",
    "resets_early": "UPDATE measures SET value_low = value_low - 0.25 WHERE measure = 'reset_share_early'",
    "premise_holds": "UPDATE claims SET sentence = 'It holds.' WHERE claim = 'premise_holds'",
    "sink_weight": "UPDATE attention_by_position SET mean_weight = mean_weight / 2 WHERE position = 0",
    "": "UPDATE claims SET shown_by = 'value-norm' WHERE claim = 'norms_stable'",
}
"""What makes a part, a measure, a sentence and a finding say another number, and what changes only a place."""


@pytest.mark.slow
def test_a_second_number_of_one_name_is_noticed(tmp_path: Path) -> None:
    with warehouse(SMALL) as connection:
        for change in CHANGES.values():
            assert connection.execute(change).fetchall()[0][0] > 0
        page = Page(write_report(connection, SMALL.study, tmp_path / "report.html", map_n=4).path)
        found = disagreements(page, connection, SMALL.study)
    assert {said.split(":")[0] for said in found} == CHANGES.keys() - {""}


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


def texts(page: Page) -> tuple[str, str]:
    """The text of a page, and the same without the tables of claims."""
    text = f"{page.text('header')} {page.text('main')}"
    tables = page.text("section", id="claims") if any(page.find("section", id="claims")) else ""
    return text, text.replace(tables, "")


@pytest.mark.one_case
@pytest.mark.parametrize("study", [SMALL, TRAINED, THREE], ids=lambda study: study.study)
def test_a_page_says_each_number_once_and_what_its_verdicts_say(study: MadeUp, written: Writer) -> None:
    page = Page(written(study, 4).path)
    text, outside = texts(page)
    with warehouse(study, *([study.twin] if study.twin else [])) as connection:
        assert disagreements(page, connection, study.study) == []
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
