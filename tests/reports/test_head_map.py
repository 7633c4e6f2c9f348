"""The map of heads: regions that hold their kinds, what colours the points, its sentence, and the choice of a head."""

from typing import Any

import duckdb
import pytest

from reports.kinds import head_map as charts
from reports.queries import ask
from tests.reports.conftest import THREE, Writer
from tests.reports.drawings import changed
from tests.reports.driver import Browser

MAP = "document.getElementById('chart-head-map')"
HEADS: list[dict[str, Any]] = [
    {"layer": 0, "head": 0, "x": 0.0, "y": 0.0, "label": "Mixer", "kept": True, "patterns": ["previous", "local"]},
    {"layer": 0, "head": 1, "x": 1.0, "y": 0.0, "label": "Mixer", "kept": False, "patterns": []},
    {"layer": 1, "head": 0, "x": 0.0, "y": 1.0, "label": "Mixer", "kept": True, "patterns": ["sink"]},
    {"layer": 1, "head": 1, "x": 0.2, "y": 0.2, "label": "Other", "kept": False, "patterns": ["sink"]},
    {"layer": 2, "head": 0, "x": 2.0, "y": 2.0, "label": "Other", "kept": True, "patterns": []},
]
REACHED = (["Mixer"], ["Mixer", "Other"], ["Mixer"], ["Other", "Reset"], ["Other"])
AXES = [
    {"axis": "x", "curve": "cos_sink", "share": 0.625, "direction": -1.0},
    {"axis": "y", "curve": "recall", "share": 0.5, "direction": 1.0},
]


def rows(**changed: Any) -> list[dict[str, Any]]:
    given = {"nearest": "Mixer", "delta_loss": None}
    return [row | given | {"reached": reached} | changed for row, reached in zip(HEADS, REACHED, strict=True)]


def draw(heads: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = charts.head_map(heads, AXES).to_dict()
    return found


def regions(spec: dict[str, Any]) -> dict[str, dict[str, set[tuple[float, float]]]]:
    """Corners of the region of each kind, by style."""
    found: dict[str, dict[str, set[tuple[float, float]]]] = {}
    for layer in spec["layer"]:
        style = layer["mark"].get("style", "")
        for corner in spec["datasets"][layer["data"]["name"]] if style.startswith("region") else ():
            found.setdefault(style, {}).setdefault(corner["label"], set()).add((corner["x"], corner["y"]))
    return found


def test_a_region_holds_the_heads_of_its_kind() -> None:
    found = regions(draw(rows()))
    corners = {(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)}
    assert found["region"] == {"Mixer": corners}
    assert found["region-moved"] == {"Mixer": corners}, "one head of a kind spans no region"


def offered(heads: list[dict[str, Any]]) -> list[str]:
    (quantity,) = (param for param in draw(heads)["params"] if param["name"] == "quantity")
    names: list[str] = quantity["bind"]["options"]
    return names


def test_only_what_was_measured_colours_the_points() -> None:
    assert offered(rows()) == ["near", "pattern", "layer"]
    assert offered(rows(delta_loss=0.5)) == ["near", "pattern", "layer", "delta_loss"]
    assert offered(rows(patterns=None)) == ["near", "layer"]
    values = next(iter(draw(rows())["datasets"].values()))
    assert [row["pattern"] for row in values] == ["previous", "none", "sink", "sink", "none"]
    assert values[0]["patterns"] == "previous, local"


def test_rows_are_those_of_their_tables(three: duckdb.DuckDBPyConnection) -> None:
    found = ask(three, "head_map", study="three", query=23).rows()
    places = three.sql(
        "SELECT layer, head, x, y FROM head_plane WHERE study = 'three' AND curve IS NULL ORDER BY ALL"
    ).fetchall()
    assert [(row["layer"], row["head"], row["x"], row["y"]) for row in found] == places
    assert len(found) == 18
    for row in found:
        head = f"study = 'three' AND layer = {row['layer']} AND head = {row['head']}"
        own = f"SELECT DISTINCT label FROM head_taxonomy WHERE query = 23 AND {head}"
        moved = f"SELECT DISTINCT label FROM kinds_moved WHERE query = 23 AND {head}"
        labels = {label for statement in (own, moved) for (label,) in three.sql(statement).fetchall()}
        assert (set(row["reached"]), row["kept"]) == (labels, len(labels) == 1)
        asked = f"SELECT label FROM head_labels WHERE {head} ORDER BY lift DESC, label"
        assert row["patterns"] == [label for (label,) in three.sql(asked).fetchall()]
        assert row["delta_loss"] is not None
    assert {row["kept"] for row in found} == {True, False}
    with changed(three, "DELETE FROM head_pattern_means"):
        without = ask(three, "head_map", study="three", query=23).rows()
    assert {row["patterns"] is None for row in without} == {True}


# --- in a browser ---


@pytest.mark.slow
def test_a_click_on_a_point_chooses_its_head_everywhere(browser: Browser, written: Writer) -> None:
    browser.show(written(THREE, 4).path)
    browser.wait("return !document.querySelector('.reader').hidden")
    x, y, label = browser.run(
        f"{MAP}.scrollIntoView({{block: 'center', behavior: 'instant'}});"
        f"for (const point of {MAP}.querySelectorAll('g.heads_marks path')) {{"
        "  const box = point.getBoundingClientRect(), x = box.x + box.width / 2, y = box.y + box.height / 2;"
        "  const { ariaLabel } = document.elementFromPoint(x, y);"  # where points overlap, the upper one
        "  if (!ariaLabel.includes(`Layer: ${window.chosenHead[0]};`)) return [x, y, ariaLabel];"
        "}"
    )
    browser.point_at(x, y, click=True)
    said = dict(part.split(": ", 1) for part in label.split("; "))
    layer, head = said["Layer"], said["Head"]
    browser.wait(f"return location.hash == '#explorer/{layer}/{head}'")
    assert browser.run("return document.querySelector('.reader .chosen').textContent").startswith(
        f"Layer {layer}, head {head}"
    )
    ring = (
        f"return [...{MAP}.querySelectorAll('g.role-mark path')].filter(one => one.getAttribute('stroke-width') == 2.5)"
    )
    shapes = browser.wait(f"{ring}.map(one => one.getBoundingClientRect()).map(box => [box.x, box.right])")
    assert [low < x < high for low, high in shapes] == [True]
    assert browser.log("browser") == []
