"""The schedule, driven for real: a daemon, ticks, runs in processes of their own, and studies that change between."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import dagster as dg
import pytest

from dagster_project.defs.assets import select_steps
from dagster_project.defs.schedules import SCHEDULE_VARIABLE
from dagster_project.records.registration import LOCK_TAG, use_instance
from dagster_project.study.home import HOME_VARIABLE, Home
from dagster_project.upkeep.plan import REFRESH_TAG, WHY_TAG
from tests.dagster_project.driver import CHECKOUT, attention_geometry, environment, files, instance_of
from tests.dagster_project.making import NAMES
from tests.dagster_project.recorded import LOST, TINY, write_studies

PATIENCE = 600.0
"""Seconds to wait for what takes one or two: a tick comes once a minute, and other tests may take the processor."""


@contextmanager
def daemon(home: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon with the schedule on, every minute; killed at the end, with all that it started."""
    places = {HOME_VARIABLE: str(home), SCHEDULE_VARIABLE: "* * * * *", "OMP_NUM_THREADS": "1"}
    variables = environment(DAGSTER_HOME=str(home / "dagster"), **places)
    with mock.patch.dict(os.environ, environment(), clear=True), use_instance(Home(home)):
        pass
    module = ("-m", "dagster_project.definitions")
    start = [Path(sys.executable).with_name("dagster"), "schedule", "start", "all_studies_daily", *module]
    subprocess.run(start, cwd=CHECKOUT, env=variables, check=True, capture_output=True, timeout=PATIENCE)
    with log.open("wb") as out:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("dagster-daemon"), "run", *module],
            cwd=CHECKOUT,
            env=variables,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def wait_for(happened: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-3000:]
        time.sleep(1)


def reports(home: Path) -> list[dict[str, Any]]:
    """The entries of every report by study, the oldest first."""
    read = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((home / "refreshes").glob("*.json"))]
    return [{entry["study"]: entry for entry in report["entries"]} for report in read]


def ended(records: dg.DagsterInstance, number: int) -> bool:
    """Whether there are so many runs, and all have ended."""
    found = records.get_runs()
    return len(found) >= number and all(run.is_finished for run in found)


def of(found: list[dg.DagsterRun]) -> dict[str, str]:
    return {run.tags["dagster/partition"]: run.status.value for run in found}


@pytest.mark.long
@pytest.mark.timeout(3 * PATIENCE)
def test_ticks_run_what_is_stale_and_nothing_else(tmp_path: Path) -> None:
    home, log = tmp_path / "data", tmp_path / "daemon.log"
    home.mkdir()
    write_studies(home, one=TINY, two=TINY)
    made = attention_geometry("refresh", "one", "two", home=home)
    assert made.code == 0, made.errors
    (by_command,) = reports(home)
    with daemon(home, log), instance_of(home) as records:
        # nothing has changed: a tick finds that out and starts nothing; the shipped studies were never asked for
        wait_for(lambda: reports(home)[-1] != by_command, log)
        states = {name: entry["state"] for name, entry in reports(home)[-1].items()}
        assert states == {"one": "fresh", "two": "fresh"} | dict.fromkeys(states.keys() - {"one", "two"}, "never run")
        assert len(states) > 2
        assert of(records.get_runs()) == {"one": "SUCCESS", "two": "SUCCESS"}
        # one changes, another cannot be made and a third not be read: the first alone is rebuilt, from its metrics on
        before = files(home)
        write_studies(home, one=TINY | {"analysis": {"kappas": [2]}}, two=TINY, lost=LOST, bad={"model": "embedded"})
        wait_for(lambda: ended(records, 4), log)
        wait_for(lambda: not list((home / "locks" / "runs").iterdir()), log)
        later = records.get_runs()[:-2]
    assert of(later) == {"one": "SUCCESS", "lost": "FAILURE"}
    (again,) = [run for run in later if run.tags["dagster/partition"] == "one"]
    assert again.asset_selection == {*select_steps({*NAMES} - {"tensors"})}
    assert again.tags[LOCK_TAG] == again.run_id
    assert "setting 'analysis.kappas' is [2.0], was [0.5]" in again.tags[WHY_TAG]
    asked = json.loads((home / "refreshes" / f"{again.tags[REFRESH_TAG]}.json").read_text(encoding="utf-8"))
    found = {entry["study"]: entry for entry in asked["entries"]}
    assert (found["two"]["state"], found["lost"]["state"], found["bad"]["state"]) == ("fresh", "stale", "error")
    assert "study 'bad'" in found["bad"]["message"]
    after = files(home)
    kept = [name for name in before if "two" in name or name.startswith("tensors/")]
    assert kept
    assert {name: before[name] for name in kept} == {name: after[name] for name in kept}
    assert after["warehouse/one.duckdb"] != before["warehouse/one.duckdb"]
