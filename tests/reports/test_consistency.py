"""One number under one name: wherever a page shows a measure of the model, its value and interval are the same."""

import re
from pathlib import Path

import duckdb
import pytest

from reports.findings.claims import format_interval
from reports.findings.numbers import Row, number, percent
from reports.page import write_report
from reports.queries import ask
from tests.made_up import MadeUp, warehouse
from tests.reports.conftest import SMALL, THREE, TRAINED, Writer
from tests.reports.pages import Page
from tests.reports.verdicts import normalise

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


@pytest.mark.one_case
@pytest.mark.parametrize("study", [THREE, TRAINED], ids=lambda study: study.study)
def test_a_page_says_each_number_once(study: MadeUp, written: Writer) -> None:
    with warehouse(study, *([study.twin] if study.twin else [])) as connection:
        assert disagreements(Page(written(study, 4).path), connection, study.study) == []


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
