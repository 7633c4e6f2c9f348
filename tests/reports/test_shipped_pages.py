"""The pages of the shipped studies as a reader meets them: how long they are."""

import pytest

from tests.reports.driver import Browser
from tests.shipped import run_shipped

WORDS, HEIGHT = 2_500, 9_000
"""Most words of a study's page, and its greatest height at 1280 pixels across, folded as delivered."""

COUNTED = r"""
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
let words = 0;
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  const place = node.parentElement;
  if (place.closest('svg, script, style, .tokens, .vega-embed details') || !place.checkVisibility()) continue;
  words += node.textContent.split(/\s+/u).filter(word => /[\p{L}\p{N}]/u.test(word)).length;
}
return words;
"""
"""Words are runs without a space that have a letter or a digit, in sentences, headings and tables that are seen as
delivered; what is folded, the labels within charts and the text that the model read do not count."""

pytestmark = pytest.mark.long  # runs a whole study


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("study", ["embedded", "smollm2"])
def test_a_page_is_no_longer_than_a_paper(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory, study: str
) -> None:
    """The whole page, and its first screen: terms, answer and facts are seen without scrolling."""
    page = run_shipped(study, tmp_path_factory) / "reports" / f"{study}.html"
    with browser.wide(1280, 800):
        browser.show(page)
        told = "[...document.querySelectorAll('.terms div, .answer, .outstanding li')]"
        assert browser.run(f"return {told}.every(one => one.getBoundingClientRect().bottom <= innerHeight)")
        assert browser.run("return document.querySelectorAll('.outstanding li').length") > 0
        words, height = browser.run(COUNTED), browser.run("return document.documentElement.scrollHeight")
    assert 1_000 < words <= WORDS
    assert 3_000 < height <= HEIGHT
