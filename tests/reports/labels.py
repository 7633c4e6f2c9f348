"""What is wrong with the labels of a page's charts, as a browser draws them."""

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
}
return found;
"""


def flaws(browser: Browser) -> list[str]:
    """Texts of charts that are cut by their chart's box, or overlap another; only of charts that are shown.

    A text overlaps another where their boxes share more than 1 px across and 3 px along: a line of text has room above
    and below its letters.
    """
    found: list[Any] = browser.run(_FLAWS)
    return [str(flaw) for flaw in found]
