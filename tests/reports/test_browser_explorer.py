"""The explorer in a real browser: choosing a head shows that head's rows, by pointer and by keyboard, soon enough."""

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from reports.explorer.figures import LINES
from reports.page import ReportSummary
from tests.made_up import MadeUp
from tests.reports.conftest import SMALL
from tests.reports.drawings import of_shown
from tests.reports.driver import Browser

EXPLORER = "document.getElementById('chart-explorer')"
POINTS = f"""
return [...{EXPLORER}.querySelectorAll('g.mark-symbol.role-mark path')].map(path => path.ariaLabel)
"""
NAMED = f"""
return [...{EXPLORER}.querySelectorAll('text')].map(text => text.textContent).find(text => /^Layer [0-9]/.test(text))
""".strip()
TAB, DOWN = "\ue004", "\ue015"


@pytest.fixture(scope="module")
def shown(browser: Browser, report: ReportSummary) -> Browser:
    browser.show(report.path)
    return browser


@pytest.fixture
def opened(shown: Browser) -> Iterator[Browser]:
    """A browser with the report in it, as the test before left it."""
    yield shown
    assert shown.log("browser") == []


def drawn(browser: Browser) -> dict[str, dict[int, float]]:
    """What the points on the page say: for each column of the curves, value by N."""
    axes = {
        "Precision (ratio)": "precision",
        "Recall (ratio)": "recall",
        "Norm (model units)": "norms",
        "Cosine": "cosines",
        "Error (share of output)": "errors",
    }
    found: dict[str, dict[int, float]] = {}
    for label in browser.run(POINTS):
        said = dict(part.split(": ", 1) for part in label.split("; "))
        (axis,) = axes.keys() & said.keys()
        column = next(name for name, title in LINES[axes[axis]][1].items() if title == said["line"])
        found.setdefault(column, {})[int(said["N"].replace(",", ""))] = float(said[axis].replace("−", "-"))
    return found


def expected(
    connection: duckdb.DuckDBPyConnection, study: MadeUp, layer: int, head: int
) -> dict[str, dict[int, float]]:
    rows = of_shown(connection, study, "explorer_curves")
    (row,) = (row for row in rows if (row["layer"], row["head"]) == (layer, head))
    curves = {column: dict(zip(row["n"], row[column], strict=True)) for _, lines in LINES.values() for column in lines}
    known = {column: {n: value for n, value in curve.items() if value is not None} for column, curve in curves.items()}
    return {column: curve for column, curve in known.items() if curve}


def agree(shown: dict[str, dict[int, float]], rows: dict[str, dict[int, float]]) -> None:
    assert shown.keys() == rows.keys()
    for column, curve in rows.items():
        assert shown[column] == {n: pytest.approx(value, rel=6e-3, abs=1e-6) for n, value in curve.items()}, column


def choose(browser: Browser, name: str, value: Any) -> None:
    """Choose in one of the inputs, as a browser does when a reader has."""
    browser.run(
        f"const labels = [...{EXPLORER}.querySelectorAll('label')];"
        "const input = labels.find(label => label.textContent.startsWith(arguments[0]))"
        ".querySelector('select');"
        "input.selectedIndex = [...input.options].findIndex(option => option.textContent == arguments[1]);"
        "input.dispatchEvent(new Event('input', {bubbles: true}));"
        "input.dispatchEvent(new Event('change', {bubbles: true}))",
        name,
        str(value),
    )


def inputs(browser: Browser) -> list[str]:
    chosen: list[str] = browser.run(
        f"return [...{EXPLORER}.querySelectorAll('select')].map(input => input.selectedOptions[0].textContent)"
    )
    return chosen


@pytest.mark.slow
def test_a_click_on_a_cell_shows_that_head(opened: Browser, small: duckdb.DuckDBPyConnection) -> None:
    paths = set()
    for layer, head in ((2, 3), (0, 1)):
        x, y = opened.run(
            f"{EXPLORER}.scrollIntoView({{block: 'center', behavior: 'instant'}});"
            f"const cell = [...{EXPLORER}.querySelectorAll('g.cells_0_marks path')]"
            f".find(path => path.ariaLabel.startsWith('Head: {head}; Layer: {layer};')).getBoundingClientRect();"
            "return [cell.x + cell.width / 2, cell.y + cell.height / 2]"
        )
        opened.point_at(x, y, click=True)
        opened.wait(f"{NAMED}.startsWith('Layer {layer}, head {head}')")
        agree(drawn(opened), expected(small, SMALL, layer, head))
        assert inputs(opened)[:2] == [str(layer), str(head)]
        lines = f"[...{EXPLORER}.querySelectorAll('g.mark-line path')]"
        paths.add(opened.run(f"return {lines}.map(path => path.getAttribute('d')).join()"))
    assert len(paths) == 2


@pytest.mark.slow
def test_the_keyboard_alone_chooses(opened: Browser, small: duckdb.DuckDBPyConnection) -> None:
    choose(opened, "Layer", 0)
    choose(opened, "Head", 0)
    opened.run(f"{EXPLORER}.querySelector('select').focus()")
    opened.press(DOWN)
    opened.wait(f"{NAMED}.startsWith('Layer 1, head 0')")
    opened.press(TAB, DOWN, DOWN)
    opened.wait(f"{NAMED}.startsWith('Layer 1, head 2')")
    agree(drawn(opened), expected(small, SMALL, 1, 2))
    opened.run(f"{EXPLORER}.querySelector('svg').focus()")
    opened.press("\ue013", "\ue012")  # up, left
    opened.wait(f"{NAMED}.startsWith('Layer 0, head 1')")
    opened.press("\ue013")
    opened.wait(f"{NAMED}.startsWith('Layer 0, head 1')")
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert opened.run(outline) == "solid"
    labelled = f"return [...{EXPLORER}.querySelectorAll('select')].map(input => input.labels[0].firstChild.textContent)"
    assert opened.run(labelled) == ["Layer", "Head", "Colour"]


def test_the_address_leads_to_a_head(browser: Browser, report: ReportSummary, small: duckdb.DuckDBPyConnection) -> None:
    browser.show(report.path, "#explorer/2/1")
    browser.wait(f"{NAMED}?.startsWith('Layer 2, head 1')")
    agree(drawn(browser), expected(small, SMALL, 2, 1))
    assert inputs(browser)[:2] == ["2", "1"]
    choose(browser, "Head", 3)
    browser.wait("return location.hash == '#explorer/2/3'")
    browser.run("location.hash = '#explorer/0/2'")
    browser.wait(f"{NAMED}.startsWith('Layer 0, head 2')")
    browser.run("location.hash = '#explorer/77/1'")
    assert browser.run(NAMED).startswith("Layer 0, head 2")
    assert browser.log("browser") == []
