"""What scripts, shells and hosts use: JSON, completion, pages as one folder, and processes that end."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from dagster_project.command import completion
from dagster_project.command.cli import app
from dagster_project.study.home import Home
from dagster_project.study.studies import list_studies
from extract import checks
from storage.errors import UserError
from tests.dagster_project.driver import CHECKOUT, attention_geometry, environment


def told(*arguments: object, home: Path) -> dict[str, object]:
    done = attention_geometry(*arguments, "--json", home=home)
    assert done.code == 0, done.errors
    found: dict[str, object] = json.loads(done.text)
    return found


def test_what_scripts_read_is_json(mine: Path) -> None:
    ran = told("run", "mine", home=mine)
    assert (ran["study"], ran["report"]) == ("mine", f"{mine}/reports/mine.html")
    assert {"N", "precision", "recall"} <= ran["results"][0].keys()
    assert {"claim", "verdict"} <= ran["claims"][0].keys()
    examined = told("doctor", home=mine)
    assert {row["store"] for row in examined["stores"]} >= {"tensors", "metrics", "warehouse"}
    planned = told("refresh", "mine", "--dry-run", home=mine)
    assert (planned["study"], planned["state"], planned["why"]) == ("mine", "fresh", {})


def test_doctor_verify_says_what_is_wrong_and_one_line_of_what_is_well(copied: Path) -> None:
    whole = told("doctor", "--verify", home=copied)["checksums"]
    assert len(whole) == 1
    assert re.fullmatch(r"\d+ intact", whole[0]["state"])
    table = min(copied.glob("parts/mine/*/*.parquet"))
    table.write_bytes(b"")
    done = attention_geometry("doctor", "--verify", "--json", home=copied)
    found = json.loads(done.text)["checksums"]
    assert done.code == 1
    assert [row["read"] for row in found] == [str(table), "all others"]
    assert "attention-geometry run mine" in found[0]["state"]


def test_the_shell_completes_studies_formats_assets_and_tables(mine: Path) -> None:
    context = typer.Context(get_command(app))
    context.params = {"home": mine}
    assert completion.complete_study(context, "mi") == ["mine", "mistral-7b", "mistral-7b-random"]
    assert completion.complete_relation("head_t") == ["head_taxonomy"]
    assert "tensors" in completion.complete_asset("")
    assert completion.complete_one_of("table", "csv")("c") == ["csv"]
    context.params = {"home": mine / "studies.yaml" / "below"}
    assert completion.complete_study(context, "mi") == ["mistral-7b", "mistral-7b-random"]


def test_studies_that_need_a_gpu_are_marked_and_refused_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    studies = list_studies(Home(tmp_path))
    large = {name for name, study in studies.items() if study.needs_gpu}
    assert large == {f"{name}{twin}" for name in ("llama-2-7b", "gemma-7b", "mistral-7b") for twin in ("", "-random")}
    rows = [json.loads(line) for line in attention_geometry("studies", "--json", home=tmp_path).text.splitlines()]
    assert {row["study"] for row in rows if row["state"] == "not run; needs a GPU"} == large
    monkeypatch.setattr(checks, "_count_gpus", lambda: 0)
    for name in sorted(large):
        assert "The study needs a GPU (needs_gpu)" in attention_geometry("run", name, home=tmp_path).complaint
    for count in (1, None):  # none: another system than Linux has to say
        monkeypatch.setattr(checks, "_count_gpus", lambda found=count: found)
        checks.check_device("auto", needs_gpu=True)
    monkeypatch.setattr(checks, "_count_gpus", lambda: 1)
    with pytest.raises(UserError, match="has 1 CUDA devices"):
        checks.check_device("cuda:1")


SERVING = """
import subprocess, sys
from dagster_project.command.serving import serve

child = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)'])"
sys.exit(serve([sys.executable, "-c", child + "; print('serving', flush=True); time.sleep(99)"]))
"""
"""A server with a process of its own, which does not end that when it is asked to end."""


@pytest.mark.one_case
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_all_processes_of_the_web_ui_end_with_it(number: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVING],
        env=environment(PYTHONPATH=str(CHECKOUT)),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"serving\n"
    children = process_group_of_child(process.pid)
    process.send_signal(number)
    assert process.wait(20) == 128 + number
    process.stdout.close()
    deadline = time.monotonic() + 60
    while is_there(children):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def process_group_of_child(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return os.getpgid(int(child))


def is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
