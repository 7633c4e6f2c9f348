"""What is wrong with the labels of a page's charts and the headings of its tables, as a browser draws them."""

from typing import Any

from tests.reports.driver import Browser

UNFOLDED = """
for (const details of document.querySelectorAll('.more, .part')) details.open = true;
for (const panel of document.querySelectorAll('[role=tabpanel]')) panel.hidden = false;
"""
"""Opens whatever is folded and every tab."""

DRAWN = "return [...document.querySelectorAll('.chart')].every(chart => chart.querySelector('svg.marks, .failed'))"

_FLAWS = """
const seen = text => {
  for (let place = text; place.localName !== 'svg'; place = place.parentElement) {
    const style = getComputedStyle(place);
    if (+style.opacity === 0 || +style.fillOpacity === 0 || style.display === 'none') return false;
  }
  return text.textContent.trim() !== '';
};
const found = [];
for (const svg of document.querySelectorAll('.chart svg.marks')) {
  if (!svg.checkVisibility()) continue;
  const key = svg.closest('.chart').id, card = svg.closest('.chart').getBoundingClientRect();
  const box = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll('text')].filter(seen)
    .map(text => ({ text: text.textContent, box: text.getBoundingClientRect() }));
  for (const { text, box: own } of texts) {
    const right = Math.min(box.right, card.right), left = Math.max(box.left, card.left);
    if (own.left < left - 1 || own.right > right + 1 || own.top < box.top - 1 || own.bottom > box.bottom + 1)
      found.push(`${key}: '${text}' is cut`);
  }
  texts.forEach((one, index) => texts.slice(index + 1).forEach(other => {
    const across = Math.min(one.box.right, other.box.right) - Math.max(one.box.left, other.box.left);
    const along = Math.min(one.box.bottom, other.box.bottom) - Math.max(one.box.top, other.box.top);
    if (across > 1 && along > 3) found.push(`${key}: '${one.text}' over '${other.text}'`);
  }));
  const marks = [...svg.querySelectorAll('.mark-rect.role-mark path')].map(mark => mark.getBoundingClientRect());
  for (const { text, box: own } of texts)
    if (marks.some(mark => Math.min(own.right, mark.right) - Math.max(own.left, mark.left) > 1
        && Math.min(own.bottom, mark.bottom) - Math.max(own.top, mark.top) > 3
        && (own.left < mark.left - 1 || own.right > mark.right + 1)))
      found.push(`${key}: '${text}' crosses the edge of a bar or cell`);
}
return found;
"""

_BROKEN = r"""
const found = [];
const range = document.createRange();
for (const heading of document.querySelectorAll('th')) {
  if (!heading.checkVisibility()) continue;
  const walker = document.createTreeWalker(heading, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode())
    for (const word of node.textContent.matchAll(/[^\s-]+-?/gu)) {
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      if (range.getClientRects().length > 1) found.push(word[0]);
    }
}
return found;
"""

_BEYOND = """
return [...document.querySelectorAll('.listing td, .listing tbody th')]
  .filter(cell => cell.checkVisibility() && cell.getBoundingClientRect().right > innerWidth + 1)
  .map(cell => cell.textContent);
"""


def flaws(browser: Browser) -> list[str]:
    """Texts of charts that are cut by their chart's box, or overlap another or a bar; only of charts that are shown.

    A text overlaps another where their boxes share more than 1 px across and 3 px along: a line of text has room above
    and below its letters.
    """
    found: list[Any] = browser.run(_FLAWS)
    return [str(flaw) for flaw in found]


def broken_headings(browser: Browser) -> list[str]:
    """Words of headings of tables that continue on another line."""
    found: list[str] = browser.run(_BROKEN)
    return found


def cells_beyond(browser: Browser) -> list[str]:
    """Cells of the tables in the open that lie beyond the screen."""
    found: list[str] = browser.run(_BEYOND)
    return found
