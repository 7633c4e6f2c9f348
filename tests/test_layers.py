"""Packages, and sub-packages within them, import downwards only; no modules import one another in a circle."""

import ast
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.imports import Imports

ROOT = Path(__file__).parents[1]

PACKAGES = {
    "geometry": set(),
    "sql": {"geometry.quantities"},
    "storage": {"geometry.grids", "geometry.quantities", "sql"},
    "extract": {"geometry", "storage"},  # geometry for what synthetic studies are drawn from
    "reports": {"geometry", "sql", "storage"},  # geometry for the example of Figure 1, which no warehouse holds
    "attention_geometry": {"extract", "geometry", "reports", "sql", "storage"},
    "dagster_project": {"attention_geometry", "extract", "geometry", "reports", "sql", "storage"},
    "benchmarks": {"dagster_project", "extract", "geometry", "reports", "sql", "storage"},
    "gallery": {"geometry", "reports", "storage"},
    "model_training": {"extract"},
}
"""What each package may import of the others; the data flows one way. A module stands for itself alone."""

STUDY, RECORDS, ANALYSIS = "dagster_project.study", "dagster_project.records", "dagster_project.analysis"
ASSETS = "dagster_project.assets"
UPKEEP, DEFS = "dagster_project.upkeep", "dagster_project.defs"
SUB_PACKAGES = {
    STUDY: set(),
    RECORDS: {STUDY},
    ANALYSIS: {STUDY},
    ASSETS: {STUDY, ANALYSIS},
    UPKEEP: {STUDY, RECORDS, ANALYSIS, ASSETS},
    DEFS: {STUDY, RECORDS, ANALYSIS, ASSETS, UPKEEP},
    "dagster_project.definitions": {DEFS},
    "dagster_project.command": {STUDY, RECORDS, ANALYSIS, ASSETS, UPKEEP, DEFS, "dagster_project.definitions"},
    "dagster_project": set(),
    "storage.errors": set(),
    "storage.files": {"storage.errors"},
    "storage.zarr": {"storage.errors", "storage.files"},
    "storage.memory": set(),
    "storage.warehouse": {"storage.errors", "storage.files", "storage.memory", "storage.zarr"},
    "storage": {"storage.errors", "storage.files", "storage.warehouse"},
}
"""The sub-packages, and what each may import of its own package."""

HEAVY = {
    "altair", "dagster", "dask", "datasets", "distributed", "duckdb", "jinja2", "numba", "numpy", "obstore", "pyarrow",
    "pydantic", "scipy", "sqlalchemy", "torch", "transformers", "vl_convert", "zarr",
}  # fmt: skip
"""Libraries that take longer to import than all of the command line without them."""

ATTENDED = {("dagster_project.command.program", name) for name in ("attention_geometry", "dagster_project.command.cli")}
"""Modules that are imported in a function so that Ctrl-C, and packages that are not ours, are handled."""


@pytest.fixture(scope="module")
def imports() -> Imports:
    return Imports(ROOT, tuple(PACKAGES))


def lies_in(module: str, place: str) -> bool:
    return module == place or module.startswith(f"{place}.")


def find_sub_package(module: str, sub_packages: Mapping[str, set[str]]) -> str:
    """The sub-package that contains a module."""
    return max((sub_package for sub_package in sub_packages if lies_in(module, sub_package)), key=len)


def upwards(imports: Imports, sub_packages: Mapping[str, set[str]]) -> Iterator[tuple[str, str]]:
    """The imports from one sub-package into another that are not allowed."""
    divided = {sub_package.split(".")[0] for sub_package in sub_packages}
    for module, imported in imports.graph.items():
        package = module.split(".")[0]
        for other in sorted(other for other in imported if package in divided and lies_in(other, package)):
            here = find_sub_package(module, sub_packages)
            if find_sub_package(other, sub_packages) not in sub_packages[here] | {here}:
                yield module, other


def of_packages(imports: Imports) -> Iterator[tuple[str, str]]:
    """The imports of modules of other packages that are not allowed; the packages around a module do not count."""
    for module, imported in imports.modules.items():
        package = module.split(".")[0]
        for other in {imports.find(name) for name in imported.imported} - {None}:
            if not any(lies_in(other, allowed) for allowed in PACKAGES[package] | {package}):
                yield module, other


def needless(imports: Imports) -> Iterator[tuple[str, str]]:
    """The imports in functions of modules of these packages that keep no heavy library from being loaded."""
    for module, imported in imports.modules.items():
        loaded = imports.libraries_of(module)
        for other in {imports.find(name) for name in imported.in_functions} - {None, module}:
            if (module, other) in ATTENDED:
                continue
            if not (imports.libraries_of(other) - loaded) & HEAVY:
                yield module, other


def test_packages_import_only_what_lies_below_them(imports: Imports) -> None:
    assert len(imports.modules) > 150
    assert {module.split(".")[0] for module in imports.modules} == PACKAGES.keys()
    assert list(of_packages(imports)) == []


def test_sub_packages_import_only_what_lies_below_them(imports: Imports) -> None:
    own = {sub_package.split(".")[0] for sub_package in SUB_PACKAGES}
    inside = {module for module in imports.modules if module.split(".")[0] in own}
    assert {find_sub_package(module, SUB_PACKAGES) for module in inside} == SUB_PACKAGES.keys(), (
        "a sub_package is not listed, or does not exist"
    )
    assert all((ROOT / package).is_dir() for package in own)
    assert list(upwards(imports, SUB_PACKAGES)) == []


def test_no_modules_import_one_another_in_a_circle(imports: Imports) -> None:
    """Imports in functions count, and those for type checkers."""
    assert imports.circle() == []


def test_modules_are_imported_in_functions_only_where_that_saves_loading_a_heavy_library(imports: Imports) -> None:
    assert sorted(needless(imports)) == []


def test_importing_storage_or_the_command_line_loads_no_heavy_library(imports: Imports) -> None:
    for module in ("storage", "dagster_project.command.cli", "dagster_project.study.home", "sql"):
        assert not imports.libraries_of(module) & HEAVY, module


def rooms_of(imports: Imports, package: str) -> dict[str, set[str]]:
    """The sub-packages and modules of a package, and those that each imports, also for type checkers."""
    rooms: dict[str, set[str]] = {}
    for module, imported in imports.graph_with_types.items():
        if lies_in(module, package) and module != package:
            here = module.split(".")[1]
            others = {other.split(".")[1] for other in imported if lies_in(other, package) and other != package}
            rooms[here] = rooms.get(here, set()) | others - {here}
    return rooms


def floors_of(rooms: Mapping[str, set[str]]) -> dict[str, int]:
    """The floor of every room, one above the highest that it imports."""
    floors: dict[str, int] = {}
    for room in TopologicalSorter(rooms).static_order():
        floors[room] = 1 + max((floors[other] for other in rooms[room]), default=0)
    return floors


@pytest.mark.parametrize("package", ["storage", "dagster_project", "reports"])
def test_the_page_on_the_architecture_draws_rooms_floors_and_arrows_as_they_are(imports: Imports, package: str) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition(f"| floor | `{package}.` | holds |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.split("\n")[2:]]
    rooms = rooms_of(imports, package)
    floors = floors_of(rooms)
    assert {name: int(floor) for floor, names, *_ in rows for name in names.split("`")[1::2]} == floors
    drawn = {name.strip("`"): {*others[0].split("`")[1::2]} for _, name, _, *others in rows if others}
    assert drawn == ({} if package == "reports" else rooms), "arrows of reports are too many to be drawn"
    assert max(floors.values()) <= 8


# --- controls: a package that breaks a rule is noticed ---

SOUND = {
    "storage/__init__.py": "",
    "storage/errors.py": "import os\n",
    "storage/files/__init__.py": "",
    "storage/files/places.py": "from storage.errors import UserError\n",
    "storage/zarr/__init__.py": "",
    "storage/zarr/arrays.py": "import zarr\nfrom storage.files import places\n",
    "storage/zarr/light.py": "from storage.errors import UserError\n",
    "geometry/__init__.py": "",
    "geometry/quantities.py": "",
    "geometry/separation/chance.py": "import numpy as np\n",
}
FOR_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from "
IN_FUNCTION = "import zarr\nimport storage.zarr.more\ndef f():\n    "
BROKEN = {
    "a circle": ("storage/errors.py", "from storage.files.places import Place", "circle"),
    "a circle in a function": ("storage/errors.py", "def f():\n    from storage.files import places", "circle"),
    "a circle by type": ("storage/errors.py", f"{FOR_TYPES}storage.files.places import Place", "circle"),
    "a circle of a package": ("storage/files/__init__.py", "import storage.zarr.arrays", "circle"),
    "upwards": ("storage/files/places.py", "import storage.zarr.light", "sub_package"),
    "upwards in a function": ("storage/errors.py", "async def f():\n    import storage.zarr.light as l", "sub_package"),
    "another package": ("geometry/separation/chance.py", "from storage.errors import UserError", "package"),
    "more than declarations": ("storage/errors.py", "from geometry import separation", "package"),
    "light in a function": ("storage/zarr/arrays.py", IN_FUNCTION + "from storage.zarr import light", "function"),
    "loaded already": ("storage/zarr/arrays.py", IN_FUNCTION + "import storage.zarr.more", "function"),
}
"""A change of one of these files, and the rule that it breaks."""


def broken(root: Path, files: Mapping[str, str]) -> set[str]:
    """The rules that the packages of these files break."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    found = Imports(root, ("storage", "geometry"))
    rules = {
        "circle": found.circle(),
        "sub_package": list(upwards(found, SUB_PACKAGES)),
        "package": list(of_packages(found)),
        "function": list(needless(found)),
    }
    return {rule for rule, violations in rules.items() if violations}


def test_sound_packages_break_no_rule(tmp_path: Path) -> None:
    checked = f"{FOR_TYPES}geometry.quantities import Quantity\n"
    saving = "def f():\n    import storage.zarr.arrays\n"
    assert broken(tmp_path, SOUND | {"storage/errors.py": checked, "storage/zarr/light.py": saving}) == set()


@pytest.mark.parametrize("what", BROKEN)
def test_what_breaks_a_rule_is_noticed(tmp_path: Path, what: str) -> None:
    name, text, rule = BROKEN[what]
    assert rule in broken(tmp_path, SOUND | {"storage/zarr/more.py": "import zarr\n", name: text})


def test_tests_import_helpers_and_no_other_tests() -> None:
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            imported = [part for name in names for part in name.split(".") if part.startswith("test_")]
            assert not imported, path
