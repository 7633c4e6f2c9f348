"""The page on the architecture shows rooms as they are; what may import what stands in ``pyproject.toml``."""

from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"

FLOORS = 8
"""Most floors of a package."""


def find_rooms(package: str) -> dict[str, set[str]]:
    """The rooms of a package, modules or sub-packages, and those that each imports."""
    graph = grimp.build_graph(package)
    rooms: dict[str, set[str]] = {child.split(".")[1]: set() for child in graph.find_children(package)}
    for module in graph.modules - {package}:
        imported = graph.find_modules_directly_imported_by(module) - {package}
        here = module.split(".")[1]
        rooms[here] |= {other.split(".")[1] for other in imported} - {here}
    return rooms


@pytest.mark.parametrize("package", ["storage", "extract", "dagster_project", "reports", "geometry"])
def test_no_package_has_more_floors_than_can_be_kept_in_mind(package: str) -> None:
    assert 1 <= max(count_floors(find_rooms(package)).values()) <= FLOORS


def count_floors(rooms: dict[str, set[str]]) -> dict[str, int]:
    """The floor of every room, one above the highest that it imports."""
    floors: dict[str, int] = {}
    for room in TopologicalSorter(rooms).static_order():
        floors[room] = 1 + max((floors[other] for other in rooms[room]), default=0)
    return floors


@pytest.mark.parametrize("package", ["storage", "extract", "dagster_project", "reports"])
def test_the_page_draws_rooms_floors_and_arrows_as_they_are(package: str) -> None:
    table = PAGE.read_text(encoding="utf-8").partition(f"| floor | `{package}.` | holds |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.split("\n")[2:]]
    rooms = find_rooms(package)
    floors = count_floors(rooms)
    assert {name: int(floor) for floor, names, *_ in rows for name in names.split("`")[1::2]} == floors
    drawn = {name.strip("`"): {*others[0].split("`")[1::2]} for _, name, _, *others in rows if others}
    assert drawn == ({} if package == "reports" else rooms), "arrows of reports are too many to be drawn"
