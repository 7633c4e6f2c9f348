"""The code of the documents about the warehouse, run as it stands."""

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

from storage.files.root import HOME_VARIABLE
from storage.warehouse.connection import write_entry
from tests.dagster_project.driver import attention_geometry

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = (DOCS / "warehouse.md").read_text(encoding="utf-8")
NOTEBOOK = json.loads((DOCS / "notebook.ipynb").read_text(encoding="utf-8"))


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def landed(landed_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose ``data`` is a data root with a landed study."""
    folder = tmp_path_factory.mktemp("documents")
    write_entry(shutil.copytree(landed_root, folder / "data") / "warehouse")
    return folder


@pytest.fixture
def here(landed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a reader of the page."""
    (tmp_path / "data").symlink_to(landed / "data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(HOME_VARIABLE, raising=False)
    return tmp_path


@pytest.mark.slow
@pytest.mark.comments
def test_the_notebook_runs_from_top_to_bottom(here: Path) -> None:
    assert NOTEBOOK["nbformat"] == 4
    cells = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
    assert [cell["outputs"] for cell in cells] == [[]] * len(cells)
    names: dict[str, Any] = {}
    for cell in cells:
        exec("".join(cell["source"]), names)
    assert names["study"] == "small"
    assert names["patterns"].iloc[0]["value"] > 3 * names["patterns"].iloc[0]["chance"]
    assert (names["selection"]["n"] == [*range(1, len(names["selection"]) + 1)]).all(), "one head"
    assert len(names["curves"]) == 23 + 23 + 13  # a window of 14 keys in layer 2
    assert len(names["bounds"]) == 23
    assert len(names["claims"]) > 20
    assert names["together"]["heads"].max() == 3 * 6
    drawn = names["chart"].to_dict()
    (rows,) = drawn["datasets"].values()
    assert rows == names["curves"].to_dict("records")
    names["connection"].close()
    assert list(here.iterdir()) == [here / "data"]


def test_the_commands_of_the_page(here: Path) -> None:
    found = (re.findall(r"^\S.*(?:\n {4,}.*)*", block, re.MULTILINE) for block in blocks("sh"))
    commands = [shlex.split(command.replace("\\\n", " ")) for of_block in found for command in of_block]
    ours = [rest for program, *rest in commands if program == "attention-geometry"]
    assert len(ours) == 5
    (here / "scores.csv").write_text("layer,head,score\n0,0,1\n0,1,2\n", encoding="utf-8")
    for arguments in ours:
        done = attention_geometry(*arguments)
        assert (done.code, done.errors) == (0, ""), arguments
        assert done.text
    assert (here / "studies.parquet").exists()


def test_the_python_of_the_page(here: Path) -> None:
    names: dict[str, Any] = {}
    first, second = blocks("python")
    exec(first, names)
    names["connection"].close()
    assert names["table"].num_rows == 4 * 3 * 3 * 6 * 3
    assert len(names["curve"]) == 5 + 11 + 23
    exec(second, names)
    assert duckdb.read_csv(str(here / "studies.csv")).count("*").fetchall() == [(1,)]
