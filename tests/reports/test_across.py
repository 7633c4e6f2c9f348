"""The index of all studies and the comparison of some: what they show, whose numbers, and both in a browser."""

import re
from pathlib import Path

import duckdb
import pytest

from reports.findings.claims import format_decisive
from reports.findings.numbers import number
from reports.kinds.labels import LABELS
from reports.overviews import write_comparison, write_index
from reports.queries import ask
from storage.errors import UserError
from tests.made_up import warehouse
from tests.reports.conftest import HOSTILE, SEVERAL, TRAINED, TWIN
from tests.reports.driver import READY, Browser
from tests.reports.labels import DRAWN
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


def test_a_comparison_sets_figures_5_6_and_8_side_by_side(pair: Path) -> None:
    page = Page(pair)
    found = unpacked(next(text for _, text in page.find("script", id="charts")))
    charts = {chart["key"]: chart["spec"] for chart in found["charts"]}
    assert list(charts) == ["precision-1", "precision-2", "recall-1", "recall-2", "sink-effect", "kinds-1", "kinds-2"]
    for key in ("precision", "recall", "kinds"):
        assert [charts[f"{key}-{index}"]["title"] for index in (1, 2)] == ["small", "three"]
    for paper in ("Figure 5, left", "Figure 5, right", "Figure 6", "Figure 8"):
        assert any(f"the paper’s {paper}" in text for _, text in page.find("figure"))


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


def test_settings_and_links(pair: Path) -> None:
    page = Page(pair)
    settings = page.text("section", id="settings")
    assert "3 layers of 4 heads 3 layers of 6 heads" in settings
    assert "4 sequences of 24 tokens 4 sequences of 24 tokens" in settings
    links = [attributes["href"] for attributes, _ in page.find("a")]
    assert links.count("../index.html") == 2
    assert "../reports/first.html" in links
    lead = page.text("p", **{"class": "lead"})
    assert "three (not written)" in lead
    assert "Does the geometry of its heads separate what they select? " in lead
    assert re.search(r"three: (yes|partly|no|undecided: [a-z, ]+|not known)[;.]", lead)
    targets = {attributes["id"] for _, attributes, _ in page.elements if "id" in attributes}
    assert {link[1:] for link in links if link.startswith("#")} <= targets


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


@pytest.mark.slow
def test_the_index_has_a_picture_of_the_sinks_and_no_card_of_a_twin(tmp_path: Path) -> None:
    reports = {study.study: f"reports/{study.study}.html" for study in (TRAINED, TWIN)}
    with warehouse(TRAINED, TWIN) as connection:
        page = Page(write_index(connection, tmp_path / "index.html", reports=reports, comparisons={}, families={}))
        at_n = "SELECT precision, recall FROM selection_means_model WHERE study = $study AND n = 4 ORDER BY query DESC"
        found = connection.execute(at_n, {"study": TRAINED.study}).fetchone()
        sinks = connection.execute(
            "SELECT layer, head, mean_weight FROM attention_by_position "
            "WHERE study = $study AND position = 0 AND query = $query ORDER BY layer, head",
            {"study": TRAINED.study, "query": TRAINED.query},
        ).fetchall()
        ((held, decided, beyond),) = connection.execute(
            "SELECT count_if(verdict = 'supported'), count_if(verdict IN ('supported', 'not supported')), "
            "coalesce(count_if(beyond_twin), 0) FROM claims WHERE study = $study",
            {"study": TRAINED.study},
        ).fetchall()
    ((_, card),) = page.find("article")
    assert found is not None
    counted = f"Claims that hold{held} of {decided} decided, {beyond} beyond random weights"
    assert counted in " ".join(card.split())
    assert f"at N = 4{number(found[0])}, {number(found[1])}" in " ".join(card.split())
    assert [attributes["href"] for attributes, _ in page.find("a")][1:] == [*reports.values()]
    cells = [[attributes[name] for name in ("y", "x", "fill-opacity")] for attributes, _ in page.find("rect")]
    assert cells == [[str(layer), str(head), f"{weight:.3g}"] for layer, head, weight in sinks]


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
                assert browser.run(DRAWN)
            assert browser.log("browser") == []
            assert browser.requests(path) == [path.as_uri()]
            assert browser.run("return window.hacked ?? null") is None
            assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
