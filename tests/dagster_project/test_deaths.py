"""A campaign: ``publish``, ``export``, ``scores`` and families killed before changes of files, and run again."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import sql
from dagster_project.study.home import Home
from storage.warehouse.connection import locate_database, open_database
from tests.dagster_project import recorded
from tests.dagster_project.driver import attention_geometry, files
from tests.dagster_project.dying import ALIVE, KILLED, die_at

pytestmark = pytest.mark.long  # dozens of processes

MOST = 60
"""More changes than any of these commands makes."""


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root in which a study has landed and has a page."""
    root = tmp_path_factory.mktemp("landed")
    recorded.write_studies(root, mine=recorded.TINY)
    assert attention_geometry("run", "mine", home=root).code == 0
    return root


def each_death(command: list[object], folder: Path, prepare: Callable[[], None], check: Callable[[int], None]) -> int:
    """Kill the command before each of its changes, and check what is left and that the next run completes it."""
    for change in range(1, MOST):
        prepare()
        code = die_at(change, command, folder)
        if code == ALIVE:
            return change - 1
        assert code == KILLED, (change, code)
        check(change)
    pytest.fail("it never ends")


def test_publish_is_killed_at_every_change(landed: Path, tmp_path: Path) -> None:
    """The site is the old one or the new one, or the next ``publish`` finds the old one."""
    site, command = tmp_path / "public" / "site", ["publish", tmp_path / "public" / "site", "--home", landed]
    old = {"index.html", "published.json", "reports/old.html", "reports"}
    home = Home(shutil.copytree(landed, tmp_path / "old"))
    (home.reports / "mine.html").rename(home.reports / "old.html")

    def prepare() -> None:
        shutil.rmtree(site.parent, ignore_errors=True)
        assert attention_geometry("publish", site, home=home.root).code == 0

    def check(change: int) -> None:
        found = files(site).keys()
        assert found in ({*old}, {*old} - {"reports/old.html"} | {"reports/mine.html"}, set()), change
        left = [path.name for path in site.parent.iterdir()]
        assert found or any(name.endswith(".replaced") for name in left), change
        done = attention_geometry(*command)
        assert done.code == 0, (change, done.errors)
        assert "reports/mine.html" in files(site)
        assert [path.name for path in site.parent.iterdir()] == ["site"], change

    assert each_death(command, tmp_path / "public", prepare, check) > 8


def test_export_is_killed_at_every_change(landed: Path, tmp_path: Path) -> None:
    """Each file is the old one or the new one."""
    out = tmp_path / "out" / "heads.csv"
    command = ["export", "mine", "--out", out, "--overwrite", "--home", landed]
    assert attention_geometry(*command).code == 0
    new = files(out.parent)

    def prepare() -> None:
        for name in new:
            (out.parent / name).write_bytes(b"old")

    def check(change: int) -> None:
        found = files(out.parent)
        assert all(found[name] in {b"old", new[name]} for name in new), change
        assert attention_geometry(*command).code == 0
        assert files(out.parent) == new, change

    assert each_death(command, tmp_path / "out", prepare, check) >= 4


SIZES = {**recorded.TINY, "family": {"context_length": [16, 24, 20]}}


def read_family(home: Home) -> dict[str, list[tuple[object, ...]]]:
    """All rows of the tables of the family ``sizes``."""
    with open_database(locate_database(home.warehouse, "sizes")) as connection:
        return {
            name: connection.execute(f"FROM it.{name} ORDER BY ALL").fetchall() for name in sql.list_names("families")
        }


def test_a_family_that_is_killed_and_run_again_has_the_same_tables(tmp_path: Path) -> None:
    """Killed again and again, each time later; then while its own tables and its page are made."""
    undisturbed, home = (Home(tmp_path / name) for name in ("undisturbed", "killed"))
    for one in (undisturbed, home):
        one.root.mkdir()
        recorded.write_studies(one.root, sizes=SIZES)
    assert attention_geometry("run", "sizes", home=undisturbed.root).code == 0
    wanted = read_family(undisturbed)
    assert all(wanted[name] for name in ("family_members", "family_trends", "family_differences", "onsets"))
    command, change, deaths = ["run", "sizes", "--home", home.root], 40, 0
    while (code := die_at(change, command, home.root)) == KILLED:
        change, deaths = change * 8 // 5, deaths + 1
    assert code == ALIVE
    assert deaths >= 5
    assert read_family(home) == wanted
    made = 0
    for change in range(1, MOST, 4):
        locate_database(home.warehouse, "sizes").unlink()
        if die_at(change, command, home.root) == ALIVE:
            break
        done = attention_geometry(*command)
        assert done.code == 0, (change, done.errors)
        assert read_family(home) == wanted, change
        assert (home.families / "sizes.html").exists()
        made += 1
    assert made >= 3
    assert attention_geometry("doctor", "--clean", home=home.root).code == 0
    assert "partial" not in " ".join(path.name for path in home.root.rglob("*"))
