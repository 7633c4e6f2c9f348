"""The recipes of the README work after its own quick start, one after the other."""

import re
import shlex
from pathlib import Path

from dagster_project.study.home import Home
from dagster_project.study.studies import list_studies

README = Path(__file__).parents[2] / "README.md"
NEEDS_STUDY = {"report", "compare", "export"}
"""Commands that read studies that have landed."""


def recipes() -> list[list[str]]:
    """The arguments of every command of the README, in order."""
    blocks = re.findall(r"^```console\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    commands = re.findall(r"^\$ (.*(?:\n {4,}.*)*)", "\n".join(blocks), re.MULTILINE)
    words = [shlex.split(command.replace("\\\n", " "), comments=True) for command in commands]
    return [["run", "embedded"] if command == ["make", "demo"] else command[1:] for command in words]


def test_recipes_name_only_what_earlier_ones_made(tmp_path: Path) -> None:
    known, landed, written = set(list_studies(Home(tmp_path))), set[str](), set[str]()
    assert len(recipes()) > 12
    for command, *given in recipes():
        if command == "run":
            name = given[given.index("--name") + 1] if "--name" in given else given[0]
            landed |= {name, f"{name}-random"} if f"{name}-random" in known else {name}
        if command in NEEDS_STUDY:
            named = [word for word in given if word in known]
            assert named, given
            assert set(named) <= landed, f"{named} of `{command}` were not run before"
        if "--file" in given:
            assert given[-1].partition("=")[2] in written, f"nothing has written {given[-1]}"
        written |= {given[at + 1] for at, word in enumerate(given) if word == "--out"}
