"""The map of heads: regions that hold their kinds, what colours the points, its sentence, and the choice of a head."""

import duckdb
import pytest

from reports.queries import ask
from tests.reports.conftest import THREE, Writer
from tests.reports.drawings import changed
from tests.reports.driver import Browser

MAP = "document.getElementById('chart-head-map')"


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
