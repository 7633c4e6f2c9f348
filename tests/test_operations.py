"""The operations page, followed step by step in an empty folder."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from dagster_project.defs.schedules import SCHEDULE_VARIABLE
from dagster_project.study.home import HOME_VARIABLE
from tests.dagster_project.driver import attention_geometry

PAGE = Path(__file__).parents[1] / "docs" / "operations.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
UNIT = re.compile(r"^```ini\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SET = re.compile(r"^Environment=(\w+)=")
EXPORT = re.compile(r'export (\w+)="\$PWD/(\w+)"')


def steps() -> list[str]:
    lines = [line for block in BLOCK.findall(PAGE.read_text(encoding="utf-8")) for line in block.splitlines()]
    assert all(line.startswith("$ ") for line in lines)
    return [line.removeprefix("$ ") for line in lines]


@pytest.mark.long
def test_every_step_works_in_an_empty_folder(tmp_path: Path) -> None:
    variables: dict[str, str] = {}
    said = {}
    for step in steps():
        if export := EXPORT.fullmatch(step):
            variables[export[1]] = str(tmp_path / export[2])
        elif step.startswith("attention-geometry "):
            done = attention_geometry(*shlex.split(step)[1:], cwd=tmp_path, **variables)
            assert done.code == 0, (step, done.text, done.errors)
            said[step] = done.text
        else:
            subprocess.run(["bash", "-c", step], cwd=tmp_path, check=True, env=os.environ | variables)
    backed_up, moved = (said[step] for step in said if step.startswith("attention-geometry sql"))
    assert re.search(r"first +2", backed_up)
    assert moved.split() == ['"studies"', "2"]
    home = tmp_path / "moved"
    stored = {path.relative_to(home).parts[0] for path in home.rglob("*") if path.is_file()}
    assert {"studies.yaml", "dagster"} <= stored
    assert not {"tensors", "metrics", "parts", "reports"} & stored
    assert not list((home / "warehouse").glob("*.duckdb"))


def test_the_units_set_what_our_commands_set() -> None:
    (unit,) = [block for block in UNIT.findall(PAGE.read_text(encoding="utf-8")) if "ExecStart" in block]
    given = {name for line in shlex.split(unit, comments=True) for name in SET.findall(line)}
    assert given == {HOME_VARIABLE, SCHEDULE_VARIABLE}
    assert re.search(r"^ExecStart=\S+/attention-geometry ui$", unit, re.MULTILINE), "others obey any website"
