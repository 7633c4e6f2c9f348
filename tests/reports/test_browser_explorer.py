"""The explorer in a real browser: choosing a head shows that head's rows, by pointer and by keyboard, soon enough."""

import re
import time
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from reports.explorer.figures import LINES
from reports.kinds.labels import add_nearest
from reports.page import ReportSummary
from reports.queries import ask
from tests.made_up import MadeUp
from tests.reports.conftest import SMALL, Writer
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
def report(written: Writer) -> ReportSummary:
    return written(SMALL, 4)


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
        column = next(name for name, title in LINES[axes[axis]].items() if title == said["line"])
        found.setdefault(column, {})[int(said["N"].replace(",", ""))] = float(said[axis].replace("−", "-"))
    return found


def expected(
    connection: duckdb.DuckDBPyConnection, study: MadeUp, layer: int, head: int
) -> dict[str, dict[int, float]]:
    rows = of_shown(connection, study, "explorer_curves")
    (row,) = (row for row in rows if (row["layer"], row["head"]) == (layer, head))
    curves = {column: dict(zip(row["n"], row[column], strict=True)) for lines in LINES.values() for column in lines}
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


LEGENDS = f"""
return [...{EXPLORER}.querySelectorAll('g.role-legend')].slice(0, 3).map(legend =>
    [...legend.querySelectorAll('g.role-legend-label text')].some(text => text.getAttribute('fill-opacity') != '0'))
""".strip()
"""Whether the legend of kinds is seen, that of numbers, and that of signed ones."""


def find_numbers(texts: list[str]) -> list[float]:
    """The texts that are numbers, ascending."""
    plain = [text.replace("−", "-") for text in texts]
    return sorted(float(text) for text in plain if re.fullmatch(r"-?[\d.]+", text))


@pytest.mark.slow
def test_the_dropdown_colours_the_map_with_its_own_legend(opened: Browser, small: duckdb.DuckDBPyConnection) -> None:
    heads = ask(small, "explorer_heads", study=SMALL.study, query=SMALL.query, n=4).rows()
    colours = (
        f"return [...{EXPLORER}.querySelectorAll('g.mark-rect.role-mark')].slice(0, 3)"
        ".map(marks => [...marks.querySelectorAll('path')]"
        ".map(path => [path.getAttribute('fill'), path.getAttribute('opacity')]))"
    )
    choose(opened, "Colour", "Kind of head")
    opened.wait(f"{LEGENDS}[0]")
    kinds, *hidden = opened.run(colours)
    near = add_nearest(heads)
    by_kind = {row["near"]: colour for row, (colour, _) in zip(near, kinds, strict=True)}
    assert [by_kind[row["near"]] for row in near] == [colour for colour, _ in kinds]
    assert len(set(by_kind.values())) == len(by_kind)
    assert {opacity for group in hidden for _, opacity in group} == {"0"}
    assert opened.run(LEGENDS) == [True, False, False]
    shown = f"return [...{EXPLORER}.querySelectorAll('g.mark-text.role-mark text')].map(text => text.textContent)"
    for title, column, place in (("Elbow (N)", "elbow_n", 1), ("ρ₀, mean cosine with the sink", "rho_0", 2)):
        choose(opened, "Colour", title)
        known = sorted(row[column] for row in heads if row[column] is not None)
        opened.wait(f"{LEGENDS}[{place}]")
        assert opened.run(LEGENDS) == [False, place == 1, place == 2]
        assert len(opened.run(colours)[place]) == len(known)
        end = time.monotonic() + 10
        while find_numbers(opened.run(shown)) != pytest.approx(known, abs=0.0051):
            assert time.monotonic() < end, "the numbers of this quantity are not written"
    choose(opened, "Colour", "Kind of head")
    opened.wait(f"{LEGENDS}[0]")


@pytest.mark.slow
def test_the_choice_outlives_a_change_of_colours_and_of_width(opened: Browser) -> None:
    choose(opened, "Layer", 2)
    choose(opened, "Head", 1)
    choose(opened, "Colour", "Elbow (N)")
    before = opened.wait(
        f"{NAMED}.startsWith('Layer 2, head 1') && {EXPLORER}.querySelector('svg.marks').getAttribute('width')"
    )
    opened.prefer("dark")
    opened.wait(f"return {EXPLORER}.querySelector('svg.marks').style.backgroundColor == 'rgb(23, 28, 35)'")
    opened.wait(f"{NAMED}?.startsWith('Layer 2, head 1')")
    assert inputs(opened) == ["2", "1", "Elbow (N)"]
    opened.prefer("light")
    with opened.wide(390):
        opened.wait(f"return +{EXPLORER}.querySelector('svg.marks').getAttribute('width') < {before} * 0.6")
        opened.wait(f"{NAMED}?.startsWith('Layer 2, head 1')")
        assert inputs(opened) == ["2", "1", "Elbow (N)"]
        assert opened.run("return document.documentElement.scrollWidth <= innerWidth")


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
