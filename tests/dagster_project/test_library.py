"""The page on the library runs as it stands."""

import doctest
from pathlib import Path

from tests.dagster_project.driver import CHECKOUT


def test_the_examples_of_the_page_give_what_they_show(mine: Path) -> None:
    page = CHECKOUT / "docs" / "library.md"
    found = doctest.testfile(str(page), module_relative=False, globs={"ROOT": mine}, encoding="utf-8")
    assert found.attempted >= 9
    assert found.failed == 0
