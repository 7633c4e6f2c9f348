"""The page in a real browser: every chart drawn, nothing fetched, nothing run that a text smuggled in."""

import time
from pathlib import Path

import pytest

from reports.page import ReportSummary, write_report
from tests.made_up import MadeUp, warehouse
from tests.reports.conftest import DEGENERATE, SMALL, THREE, Writer
from tests.reports.driver import READY, UNFOLDED, Browser

DRAWN = "return document.querySelectorAll('.chart svg.marks').length"


def unfold(browser: Browser, report: ReportSummary) -> None:
    """Open whatever is folded, and wait until every chart is drawn."""
    browser.wait(READY)
    browser.run(UNFOLDED)
    browser.wait(f"{DRAWN} == {report.charts}", 60)


@pytest.fixture
def unfolded(browser: Browser, report: ReportSummary) -> Browser:
    """The page ``small`` with every chart drawn; opened once for tests that follow one another and only look."""
    if not browser.run("return window.unfolded ?? false"):
        browser.open(report.path)
    unfold(browser, report)
    browser.run("window.unfolded = true")
    return browser


@pytest.mark.one_case
@pytest.mark.parametrize(
    "study",
    [SMALL, THREE, pytest.param(DEGENERATE["only itself"], marks=pytest.mark.long)],
    ids=lambda study: study.study,
)
def test_no_error_and_no_request(browser: Browser, study: MadeUp, written: Writer, tmp_path: Path) -> None:
    if study is THREE:
        with warehouse(study) as connection:
            connection.execute("UPDATE heads SET head_dim = 8 * (layer + 1)")
            report = write_report(connection, study.study, tmp_path / "report.html", map_n=8)
    else:
        report = written(study, 4 if study is SMALL else 8)
    browser.open(report.path)
    unfold(browser, report)
    assert browser.log("browser") == []
    assert browser.requests(report.path) == [report.path.as_uri()]
    assert browser.run("return document.querySelectorAll('.failed').length") == 0
    browser.run(f"window.unfolded = {str(study is SMALL).lower()}")


@pytest.mark.slow
def test_the_policy_refuses_other_scripts(browser: Browser, report: ReportSummary) -> None:
    """The guard behind the escaping: even an element that gets into the page does not run, nor fetch."""
    browser.show(report.path)
    browser.run(
        "const script = document.createElement('script'); script.textContent = 'window.hacked = 1';"
        "const image = document.createElement('img'); image.src = 'https://example.org/x.png';"
        "document.body.append(script, image)"
    )
    refused, deadline = 0, time.monotonic() + 60
    while refused < 2 and time.monotonic() < deadline:
        refused += sum("Content Security Policy" in entry["message"] for entry in browser.log("browser"))
    assert refused == 2
    assert browser.run("return window.hacked ?? null") is None


@pytest.mark.slow
def test_what_is_far_away_is_drawn_before_it_is_printed(browser: Browser, report: ReportSummary) -> None:
    """Printing begins as soon as the handlers of ``beforeprint`` and what they promised are done."""
    browser.open(report.path)
    left = browser.wait_for(
        "const failed = () => document.querySelectorAll('.failed').length;"
        "const left = () => [...document.querySelectorAll('.chart')]"
        ".filter(chart => chart.checkVisibility() && !chart.querySelector('svg.marks')).length;"
        "dispatchEvent(new Event('beforeprint')); setTimeout(() => done([left(), failed()]), 0)"
    )
    assert left == [0, 0]
    browser.run("dispatchEvent(new Event('afterprint'))")
    browser.wait(READY)
    assert browser.log("browser") == []


def test_sql_and_commands_have_a_button_that_copies(unfolded: Browser) -> None:
    texts = "document.querySelectorAll('pre.sql, pre.command')"
    assert unfolded.run(f"return [...{texts}].every(text => text.previousElementSibling.matches('button.copy'))")
    unfolded.run("document.querySelector('button.copy').click()")
    unfolded.wait("return document.querySelector('button.copy').textContent == 'Copied'")
