"""The command line's own things: data root, help, doctor, guides, completion, JSON, and terminals of every kind."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import torch
import typer
from typer.main import get_command

from dagster_project.assets.summaries import SUMMARIES
from dagster_project.command import options
from dagster_project.command.cli import app
from dagster_project.study.home import Home
from dagster_project.study.studies import find_study
from extract.models import checks
from reports.overviews import render_catalogue
from storage.errors import UserError
from storage.warehouse.documentation import list_examples, render_example
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore
from tests.dagster_project import making
from tests.dagster_project.driver import PROGRAM, attention_geometry, environment

COUNT = ("sql", "SELECT count(*) AS c FROM studies", "--format", "csv")


def test_the_data_root_may_be_named_before_or_after_the_command(mine: Path, tmp_path: Path) -> None:
    assert attention_geometry("--home", mine, *COUNT, cwd=tmp_path).text == '"c"\n1\n'
    assert attention_geometry(*COUNT, "--home", mine, cwd=tmp_path).text == '"c"\n1\n'
    assert attention_geometry(*COUNT, cwd=tmp_path).text == '"c"\n0\n'


def test_doctor_tells_versions_devices_and_stores(mine: Path) -> None:
    found = attention_geometry("doctor", home=mine)
    assert (found.code, found.errors) == (0, "")
    for word in ("torch", "duckdb", "zarr", "cpu", "free space", "published", "written"):
        assert word in found.text
    study = find_study(Home(mine), "mine")
    tables = sum(len(step.tables) for step in SUMMARIES if step.is_wanted(study))
    for kind, state in (("tensors", "4 sequences"), ("metrics", "2 layers"), ("parts", f"{tables} tables")):
        assert re.search(rf"{kind} +│ mine +│ complete: {state}", found.text)
    assert re.search(r"leftovers of killed runs +│ none", found.text)


def test_doctor_names_what_is_incomplete_broken_or_left_over(copied: Path) -> None:
    SequenceStore.open(Home(copied).tensors("mine"), TENSORS).array("finished")[1:3] = 0
    (copied / "tensors" / "other.zarr").mkdir()
    (copied / "warehouse" / f"mine.{'0123' * 8}.partial").touch()
    table = making.find_part(Home(copied), "mine", "coverage_by_sequence")
    table.write_bytes(b"")
    found = attention_geometry("doctor", home=copied)
    assert found.code == 0
    assert "incomplete: 2 of 4 sequences are missing; run the study again" in found.text
    assert "is damaged" in found.text
    assert "incomplete: coverage_by_sequence missing or damaged; run the study again" in found.text
    assert f"mine.{'0123' * 8}.partial" in found.text
    verified = attention_geometry("doctor", "--verify", "--json", home=copied)
    damaged = {row["read"]: row["state"] for row in json.loads(verified.text)["checksums"]}
    assert verified.code == 1
    assert "attention-geometry run mine" in damaged[str(table)]
    assert re.fullmatch(r"\d+ intact", damaged["all others"])


def test_names_of_folders_are_text_and_no_markup(tmp_path: Path) -> None:
    home = tmp_path / "[bold]my data[/bold] [/]"
    assert str(home) in attention_geometry("doctor", home=home).text
    (home / "studies.yaml").write_text(
        "studies: {own: {model: '/m[red]/[/x]', corpus: embedded, context_length: 8, sequences: 1}}"
    )
    assert "/m[red]/[/x]" in attention_geometry("studies", home=home).text


# --- what scripts and shells use ---


def test_what_scripts_read_is_json(mine: Path) -> None:
    def tell(*arguments: object) -> dict[str, object]:
        done = attention_geometry(*arguments, "--json", home=mine)
        assert done.code == 0, done.errors
        found: dict[str, object] = json.loads(done.text)
        return found

    ran = tell("run", "mine")
    assert (ran["study"], ran["report"]) == ("mine", f"{mine}/reports/mine.html")
    assert {"N", "precision", "recall"} <= ran["results"][0].keys()
    assert {"claim", "verdict"} <= ran["claims"][0].keys()
    assert {row["store"] for row in tell("doctor")["stores"]} >= {"tensors", "metrics", "warehouse"}
    planned = tell("refresh", "mine", "--dry-run")
    assert (planned["study"], planned["state"], planned["why"]) == ("mine", "fresh", {})


def test_the_shell_completes_studies_assets_and_tables(mine: Path) -> None:
    context = typer.Context(get_command(app))
    context.params = {"home": mine}
    assert options.complete_study(context, "mi") == ["mine", "mistral-7b", "mistral-7b-random"]
    assert options.complete_relation("head_t") == ["head_taxonomy"]
    assert "tensors" in options.complete_asset("")
    context.params = {"home": mine / "studies.yaml" / "below"}
    assert options.complete_study(context, "mi") == ["mistral-7b", "mistral-7b-random"]


def test_studies_that_need_a_gpu_are_refused_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = {f"{name}{twin}" for name in ("llama-2-7b", "gemma-7b", "mistral-7b") for twin in ("", "-random")}
    rows = [json.loads(line) for line in attention_geometry("studies", "--json", home=tmp_path).text.splitlines()]
    assert {row["study"] for row in rows if row["state"] == "not run; needs a GPU"} == large
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "The study needs a GPU (needs_gpu)" in attention_geometry("run", "gemma-7b", home=tmp_path).complaint
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    checks.check_device("auto", needs_gpu=True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UserError, match="has 1 CUDA devices"):
        checks.check_device("cuda:1")


# --- tour, schema and assets ---


def test_a_question_shows_its_statement_and_its_answer(landed_root: Path) -> None:
    shown = attention_geometry("tour", 11, home=landed_root)
    text = render_example(list_examples()[10], "small")
    assert (shown.code, shown.errors) == (0, "")
    assert list_examples()[10].meaning in shown.text
    assert text in shown.text
    assert shown.text.split(";\n", 1)[1].split()[:4] == ["layer", "Retriever", "Mixer", "Reset"]
    alone = attention_geometry("tour", 11, "--study", "small", "--sql", home=landed_root).text
    assert alone == f"-- {list_examples()[10].meaning}\n{text}\n"
    rows = json.loads(attention_geometry("sql", "--format", "json", home=landed_root, stdin=alone).text)
    assert list(rows[0])[:4] == ["layer", "Retriever", "Mixer", "Reset"]


def test_the_schema_lists_what_there_is_and_describes_one() -> None:
    assert attention_geometry("schema", "--html").text == render_catalogue()
    listed = attention_geometry("schema").text
    assert all(name in listed for name in ("selection_counts", "claims", "best_n", "weighted_level"))
    described = attention_geometry("schema", "selection").text
    assert described.startswith("view selection\none row per (study, sequence, query, layer, head, n)\n")
    assert "f_r_min" in described
    assert "best_n(measure := 'f_r_max', first_n := 2, last_n := NULL)" in attention_geometry("schema", "best_n").text
    assert "no table, view or macro 'selections'" in attention_geometry("schema", "selections").complaint
    assert "omit it to see 'selection'" in attention_geometry("schema", "selection", "--html").complaint


# --- terminals and pipes ---


def run_in_shell(line: str, **variables: str) -> tuple[int, bytes, str]:
    """Exit code, standard output and standard error of the command line in a shell."""
    done = subprocess.run(
        ["bash", "-c", line.replace("AG", str(PROGRAM))],
        env=environment(**variables),
        capture_output=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.mark.slow
def test_a_terminal_of_latin_1_keeps_what_it_has_and_formats_are_utf_8(tmp_path: Path) -> None:
    line = f"AG sql \"SELECT 'é ρ' AS a\" --home {tmp_path} --format "
    code, shown, errors = run_in_shell(f"{line} table", PYTHONIOENCODING="latin-1")
    assert (code, errors) == (0, "")
    assert r"é \u03c1" in shown.decode("latin-1")
    assert run_in_shell(f"{line} json", PYTHONIOENCODING="latin-1") == (0, '[{"a": "é ρ"}]\n'.encode(), "")


@pytest.mark.slow
def test_output_that_nobody_reads_is_no_error() -> None:
    assert run_in_shell("AG tour | true; exit ${PIPESTATUS[0]}") == (0, b"", "")
    assert run_in_shell("AG sql 'FROM range(1000000)' --format csv | head -n 1; exit ${PIPESTATUS[0]}")[::2] == (0, "")
    assert run_in_shell("AG tour >&-") == (0, b"", "")
    assert run_in_shell("AG tour 99 >&- 2>&-") == (1, b"", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_output_that_is_full_is_named_as_such() -> None:
    code, _, errors = run_in_shell("AG tour > /dev/full")
    said = "attention-geometry: Standard output cannot be written (No space left on device); redirect it to a disk"
    assert (code, errors) == (1, f"{said} with free space\n")
