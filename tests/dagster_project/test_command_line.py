"""The command line's own things: the data root, doctor, help, and what a folder's name may be."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dagster_project.assets.summaries import SUMMARIES
from dagster_project.study.home import Home
from dagster_project.study.studies import find_study
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore
from tests.dagster_project import making
from tests.dagster_project.driver import PROGRAM, attention_geometry, files, in_own_process
from tests.storage.earlier import rewrite_inputs

COUNT = ("sql", "SELECT count(*) AS c FROM studies", "--format", "csv")
ONE, NONE = '"c"\n1\n', '"c"\n0\n'


def test_the_data_root_may_be_named_before_or_after_the_command(mine: Path, tmp_path: Path) -> None:
    assert attention_geometry("--home", mine, *COUNT, cwd=tmp_path).text == ONE
    assert attention_geometry(*COUNT, "--home", mine, cwd=tmp_path).text == ONE
    assert attention_geometry(*COUNT, cwd=tmp_path).text == NONE


def test_doctor_tells_versions_devices_and_stores(mine: Path) -> None:
    found = attention_geometry("doctor", home=mine)
    assert (found.code, found.errors) == (0, "")
    for word in ("torch", "duckdb", "zarr", "cpu", "free space", "published", "written"):
        assert word in found.text
    assert re.search(r"tensors +│ mine +│ complete: 4 sequences", found.text)
    assert re.search(r"metrics +│ mine +│ complete: 2 layers", found.text)
    study = find_study(Home(mine), "mine")
    tables = sum(len(step.tables) for step in SUMMARIES if step.is_wanted(study))
    assert re.search(rf"parts +│ mine +│ complete: {tables} tables", found.text)
    assert re.search(r"leftovers of killed runs +│ none", found.text)


def test_doctor_names_what_is_incomplete_broken_or_left_over(copied: Path) -> None:
    store = SequenceStore.open(Home(copied).tensors("mine"), TENSORS)
    store.array("finished")[1:3] = 0
    (copied / "tensors" / "other.zarr").mkdir()
    (copied / "warehouse" / f"mine.{'0123' * 8}.partial").touch()
    making.find_part(Home(copied), "mine", "coverage_by_sequence").write_bytes(b"")
    found = attention_geometry("doctor", home=copied)
    assert found.code == 0
    assert "incomplete: 2 of 4 sequences are missing; run the study again" in found.text
    assert "is damaged" in found.text
    assert "incomplete: coverage_by_sequence missing or damaged; run the study again" in found.text
    assert f"mine.{'0123' * 8}.partial" in found.text


def test_doctor_has_metrics_of_an_earlier_version_made_anew_without_extracting(copied: Path) -> None:
    rewrite_inputs(copied / "metrics" / "mine.parts", metrics_version=1)
    found = attention_geometry("doctor", home=copied).text
    assert "incomplete: 2 of 2 layers are missing; run the study again" in found
    assert "--fresh" not in found


def test_names_of_folders_are_text_and_no_markup(tmp_path: Path) -> None:
    home = tmp_path / "[bold]my data[/bold] [/]"
    assert str(home) in attention_geometry("doctor", home=home).text
    (home / "studies.yaml").write_text(
        "studies: {own: {model: '/m[red]/[/x]', corpus: embedded, context_length: 8, sequences: 1}}"
    )
    assert "/m[red]/[/x]" in attention_geometry("studies", home=home).text


@pytest.mark.parametrize("command", [(), ("run",), ("studies",), ("report",), ("sql",), ("doctor",), ("ui",)])
def test_help_teaches(command: tuple[str, ...], tmp_path: Path) -> None:
    shown = attention_geometry(*command, "--help", cwd=tmp_path)
    assert shown.code == 0
    assert "--home" in shown.text
    of_the_library = {"--help", "--install-completion", "--show-completion"}
    options = {words[1]: words for line in shown.text.splitlines() if (words := line.split())[1:]}
    assert {name for name, words in options.items() if "<bool>" in words} <= of_the_library  # flags have no value
    if command in {(), ("run",), ("sql",), ("report",)}:
        assert f"attention-geometry {command[0] if command else 'run'}" in shown.text
    assert files(tmp_path) == {}


def test_the_console_script_is_this_program(mine: Path) -> None:
    assert PROGRAM.exists()
    done = in_own_process("--home", mine, *COUNT)
    assert (done.code, done.text, done.errors) == (0, ONE, "")


ENDINGS = """
import atexit, sys
from types import ModuleType

from dagster_project.command import cli, program

class Taken:
    def __del__(self):
        print("taken apart", flush=True)

def main():
    sys.modules["kept"] = kept = ModuleType("kept")
    kept.taken = Taken()
    atexit.register(print, "handled")
    print("written")
    {end}

cli.main = main
program.program()
"""


@pytest.mark.parametrize(("end", "code"), [("pass", 0), ("sys.exit(3)", 3), ("1 / 0", 1)])
def test_a_process_ends_with_its_exit_handlers(end: str, code: int) -> None:
    done = subprocess.run([sys.executable, "-c", ENDINGS.format(end=end)], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (code, "written\nhandled\n"), done.stderr
    assert ("ZeroDivisionError" in done.stderr) == ("/" in end)


def test_a_machine_without_a_browser_says_so_at_once(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("dagster_project.command.runs.run_report", lambda *_: None)
    monkeypatch.setattr("webbrowser.open", lambda url: bool(opened.append(url)))
    refused = attention_geometry("report", "mine", "--open", home=mine).complaint
    assert refused == f"No browser could be started; open {mine}/reports/mine.html by hand"
    assert opened == [(mine / "reports" / "mine.html").as_uri()]
