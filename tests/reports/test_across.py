"""The index of all studies and the comparison of some: what they show, whose numbers, and both in a browser."""

import re
from pathlib import Path

import duckdb
import pytest

from reports.findings.claims import format_decisive
from reports.kinds.labels import LABELS
from reports.overviews import write_comparison, write_index
from reports.queries import ask
from storage.errors import UserError
from tests.made_up import warehouse
from tests.reports.conftest import HOSTILE, SEVERAL
from tests.reports.driver import READY, Browser
from tests.reports.pages import Page, unpacked


def compared(connection: duckdb.DuckDBPyConnection, path: Path, *studies: str) -> Page:
    reports = {studies[0]: "../reports/first.html"}
    return Page(write_comparison(connection, studies, path, home="../index.html", reports=reports))


@pytest.fixture(scope="module")
def pair(several: duckdb.DuckDBPyConnection, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pair") / "comparisons" / "small+three.html"
    compared(several, path, "small", "three")
    return path


@pytest.fixture(scope="module")
def index(several: duckdb.DuckDBPyConnection, tmp_path_factory: pytest.TempPathFactory) -> Path:
    links = {
        "reports": {"small": "reports/small.html"},
        "comparisons": {"small, three": "comparisons/small%2Bthree.html"},
        "families": {"steps": "families/steps.html"},
    }
    return write_index(several, tmp_path_factory.mktemp("index") / "index.html", **links)


def test_charts_and_claims_of_a_comparison_hold_the_rows_of_its_studies(
    pair: Path, several: duckdb.DuckDBPyConnection
) -> None:
    page = Page(pair)
    found = unpacked(next(text for _, text in page.find("script", id="charts")))
    claims = page.text("section", id="claims")
    for index, study in enumerate(("small", "three"), start=1):
        recalls = f"FROM selection_means_model SELECT n, recall WHERE study = '{study}' AND query = 23 ORDER BY n"
        rows = {row["n"]: row["mean"] for row in rows_of(found, f"recall-{index}", "mean")}
        assert rows == pytest.approx(dict(several.sql(recalls).fetchall()), rel=1e-5)
        for claim in (row for row in ask(several, "claims", study=study).rows() if row["verdict"] != "not testable"):
            assert " ".join(f"{claim['verdict']} {format_decisive(claim)}".split()) in claims
    effects = several.execute("SELECT study, n, correlation FROM sink_effect WHERE query = 23").fetchall()
    expected = {(study, n): correlation for study, n, correlation in effects}
    drawn = rows_of(found, "sink-effect", "correlation")
    assert {row["study"] for row in drawn} == {"small", "three"}
    for row in drawn:
        assert row["correlation"] == pytest.approx(expected[row["study"], row["n"]], rel=1e-5)


def rows_of(found: dict, key: str, column: str) -> list[dict]:
    """The rows of a chart that have a column."""
    (spec,) = (chart["spec"] for chart in found["charts"] if chart["key"] == key)
    return next(rows for rows in spec["datasets"].values() if column in rows[0])


def test_what_a_study_lacks_is_told(several: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    page = compared(several, tmp_path / "c.html", "only itself", "only again", "small")
    assert "only itself: no chart." in page.text("figure", id="precision")
    assert "Studies without a line: only itself, only again." in page.text("figure", id="sink-effect")
    nothing = compared(several, tmp_path / "d.html", "only itself", "only again")
    assert "In no study do enough heads attend to the sink." in nothing.text("figure", id="sink-effect")


def test_a_study_that_is_not_landed_is_refused(several: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'absent'.*attention-geometry run absent"):
        compared(several, tmp_path / "c.html", "small", "absent")
    assert not list(tmp_path.iterdir())


def test_the_index_shows_every_study_with_its_numbers(index: Path, several: duckdb.DuckDBPyConnection) -> None:
    page = Page(index)
    shown = [" ".join(text.split()) for _, text in page.find("article")]
    assert len(shown) == len(SEVERAL)
    for study in SEVERAL:
        (card,) = (text for text in shown if text.startswith(" ".join(study.study.split())))
        assert re.search(rf"(?<!\d){study.layers} layers? of {study.heads} heads?\b", card)
        judged, supported = several.execute(
            "SELECT count(*) FILTER (verdict IN ('supported', 'not supported')), "
            "count(*) FILTER (verdict = 'supported') FROM claims WHERE study = $study",
            {"study": study.study},
        ).fetchall()[0]
        assert f"Claims that hold{supported} of {judged} decided" in card
    labels = dict(
        several.sql(
            "SELECT label, count(*) FROM head_taxonomy WHERE study = 'three' AND query = 23 GROUP BY label"
        ).fetchall()
    )
    (bars,) = (a["aria-label"] for a, text in page.find("div", **{"class": "kinds"}) if "three" in nearest(page, a))
    assert dict(reversed(told.split(" ")) for told in bars.split(", ")) == {
        label: str(labels.get(label, 0)) for label in LABELS
    }
    assert len(labels) > 1


def nearest(page: Page, attributes: dict[str, str]) -> str:
    """The text of the card that an element stands in."""
    position = next(index for index, element in enumerate(page.elements) if element[1] is attributes)
    return next("".join(text) for tag, _, text in reversed(page.elements[:position]) if tag == "article")


def test_the_index_links_what_there_is(index: Path) -> None:
    page = Page(index)
    assert [attributes["href"] for attributes, _ in page.find("a")] == [
        "#main",
        "reports/small.html",
        "families/steps.html",
        "comparisons/small%2Bthree.html",
    ]
    assert page.text("a", href="comparisons/small%2Bthree.html") == "small, three"
    assert "attention-geometry report three" in page.text("main")
    assert not list(page.find("script"))
    (policy,) = [a["content"] for a, _ in page.find("meta", **{"http-equiv": "Content-Security-Policy"})]
    assert "script-src 'none'" in policy


def test_an_empty_warehouse_has_an_index_that_says_how_to_begin(tmp_path: Path) -> None:
    with warehouse() as connection:
        page = Page(write_index(connection, tmp_path / "index.html", reports={}, comparisons={}, families={}))
    assert "attention-geometry run embedded" in page.text("main")
    assert "0 studies" in page.text("p", **{"class": "lead"})


def test_hostile_names_stay_text(several: duckdb.DuckDBPyConnection, index: Path, tmp_path: Path) -> None:
    page = compared(several, tmp_path / "c.html", HOSTILE[0], "small")
    assert HOSTILE[0] in page.text("h1")
    for shown in (page, Page(index)):
        assert not {"img", "svg", "b"} & {tag for tag, attributes, _ in shown.elements if "hacked" in str(attributes)}
        assert "hacked" not in "".join(text for _, text in shown.find("script"))


@pytest.mark.slow
def test_both_pages_in_a_browser(
    browser: Browser, index: Path, several: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    compared(several, tmp_path / "c.html", "small", "three", HOSTILE[0])
    for path in (index, tmp_path / "c.html"):
        with browser.wide(390):
            browser.open(path)
            if path != index:
                browser.wait(READY)
                assert browser.run("return document.querySelectorAll('.failed').length") == 0
            assert browser.log("browser") == []
            assert browser.requests(path) == [path.as_uri()]
            assert browser.run("return window.hacked ?? null") is None
            assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
