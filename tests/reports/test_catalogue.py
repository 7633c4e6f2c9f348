"""The catalogue of the warehouse is the one in the docs, leads from table to table, and its queries run."""

from pathlib import Path

import duckdb
import pytest

from reports.overviews import render_catalogue
from tests.reports.driver import Browser
from tests.reports.pages import Page

SAVED = Path(__file__).resolve().parents[2] / "docs" / "schema.html"


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(SAVED)


def test_the_page_is_the_one_in_the_docs() -> None:
    assert SAVED.read_text(encoding="utf-8") == render_catalogue(), "run the command that the page names"


def test_first_rows_are_asked_for_as_they_can_be(page: Page, small: duckdb.DuckDBPyConnection) -> None:
    """Worked examples have tests of their own; tables of families are in files of their own."""
    asked = {text for _, text in page.find("pre") if text.startswith("FROM") and "family_" not in text}
    assert len(asked) > 40
    for text in asked:
        small.execute(f"EXPLAIN {text}")


def test_search_finds_by_all_words_and_unfolds_what_is_named_so(browser: Browser) -> None:
    browser.open(SAVED)
    type_in = "const i = document.querySelector('input'); i.value = arguments[0]; i.dispatchEvent(new Event('input'));"
    seen = "return [...document.querySelectorAll('.relation')].filter(one => one.checkVisibility())"
    browser.run(type_in, "coefficient of variation Figure 2")
    assert "assumption_norms" in browser.run(f"{seen}.map(one => one.id)")
    assert "tokens" not in browser.run(f"{seen}.map(one => one.id)")
    browser.run(type_in, "assumption_similarity_model")
    assert browser.run(f"{seen}.filter(one => one.open).map(one => one.id)") == ["assumption_similarity_model"]
    browser.open(SAVED, "#heads")
    assert browser.run(f"{seen}.filter(one => one.open).map(one => one.id)") == ["heads"]
