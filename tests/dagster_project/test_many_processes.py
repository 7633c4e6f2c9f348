"""Processes that compute for this one: they make what it would make, and none outlives it.

And tables made together: those made each alone, and what is made stays if one fails.
"""

import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from dagster_project.analysis import processes
from dagster_project.analysis.processes import compute_in_processes
from dagster_project.assets.asset import Work
from dagster_project.assets.catalogue import find_asset, make_each
from dagster_project.assets.summaries import SUMMARIES
from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from storage.errors import UserError
from storage.warehouse.rows import MEASURED
from tests.dagster_project import making
from tests.dagster_project.drawn_study import NAME, STUDY
from tests.dagster_project.driver import CHECKOUT, environment

SLEEPER = """
import os, time
from dagster_project.analysis import processes
from dagster_project.command.process import start_tracker

if __name__ == "__main__":
    start_tracker()
    processes.count_processes = lambda: 2
    print(processes.start_processes().submit(os.getpid).result(), flush=True)
    processes.start_processes().submit(time.sleep, 600)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "count_processes", lambda: 2)


def refuse() -> None:
    raise UserError("There is no more of it; get some")


def write_late(file: Path) -> None:
    time.sleep(2)
    file.touch()


def test_tasks_are_computed_after_those_that_they_need_and_told_of(tmp_path: Path) -> None:
    first = tmp_path / "first"
    told: list[object] = []
    tasks = {"second": first.read_bytes, "first": partial(first.write_bytes, b"seen"), "here": os.getpid}
    seen, written, there = compute_in_processes(tasks, told.append, {"second": ["first"]}, what="it")
    assert (seen, written) == (b"seen", 4)
    assert there != os.getpid()
    assert sorted(map(repr, told)) == sorted(map(repr, (seen, written, there)))


def test_chains_are_begun_first_then_tasks_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadPoolExecutor(1) as one:
        monkeypatch.setattr(processes, "start_processes", lambda: one)
        told: list[object] = []
        tasks = {name: partial(str, name) for name in ("long", "middle", "a short", "needed", "needing")}
        made = compute_in_processes(tasks, told.append, {"needing": ["needed"]}, what="it")
    assert made == [*tasks]
    assert told == ["needed", "needing", "long", "middle", "a short"]


@pytest.mark.parametrize(
    ("sequences", "scheduler", "is_expected"), [(8, None, True), (1, None, False), (8, "tcp://h:1", False)]
)
def test_libraries_are_loaded_early_for_a_study_that_may_be_large(
    monkeypatch: pytest.MonkeyPatch, sequences: int, scheduler: str | None, is_expected: bool
) -> None:
    started: list[bool] = []
    monkeypatch.setattr(processes, "start_server", lambda: started.append(True))
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    given = {"model": "m", "corpus": "c", "context_length": 512, "sequences": sequences}
    processes.expect(Study.model_validate(given | {"dask": {"scheduler": scheduler}}))
    assert any(started) == is_expected


FAULTS = """
import resource, numpy as np
from storage.memory import keep_freed_memory

keep_freed_memory()
np.ones(2**21)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    np.ones(2**21)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_memory_serves_the_next_array() -> None:
    """Fifty arrays of 16 MiB; were the memory given back, each would cause a fault for each of its pages."""
    ended = subprocess.run([sys.executable, "-c", FAULTS], cwd=CHECKOUT, capture_output=True, check=True)
    assert int(ended.stdout) < 50


def test_mistakes_are_told_as_they_are_and_an_ended_process_with_its_remedy(tmp_path: Path) -> None:
    late, later = (partial(write_late, tmp_path / name) for name in ("late", "later"))
    with pytest.raises(UserError) as refused:
        compute_in_processes({"it": refuse, "late": late, "later": later}, print, {"later": ["late"]}, what="it")
    assert [file.name for file in tmp_path.iterdir()] == ["late"], "what has begun is done, nothing else is begun"
    assert type(refused.value) is UserError
    assert str(refused.value) == "There is no more of it; get some"
    with pytest.raises(UserError, match="computed the tables was ended, most likely for lack of memory"):
        compute_in_processes({"it": partial(signal.raise_signal, signal.SIGKILL)}, print, what="the tables")
    assert compute_in_processes({"it": os.getpid}, print, what="it") != [os.getpid()]  # others have been started


def test_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SLEEPER)
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(PYTHONPATH=str(CHECKOUT))) as started:
        assert started.stdout is not None
        worker = int(started.stdout.readline())
        assert Path(f"/proc/{worker}").exists()
        started.kill()
    latest = time.monotonic() + 30
    while Path(f"/proc/{worker}").exists() and time.monotonic() < latest:
        time.sleep(0.05)
    assert not Path(f"/proc/{worker}").exists()


WANTED = [asset for asset in SUMMARIES if asset.is_wanted(STUDY)]


@pytest.fixture
def work(drawn: Home, tmp_path: Path) -> Work:
    """The drawn study in a data root of its own, measured, in which no table has been made."""
    home = Home(Path(shutil.copytree(drawn.root, tmp_path / "copied")))
    shutil.rmtree(home.parts(NAME))
    return making.work(home, NAME, STUDY)


def read_tables(work: Work) -> dict[str, list[dict[str, object]]]:
    """The rows of all small tables."""
    return {table: making.rows(work.home, work.name, table) for asset in WANTED for table in asset.tables}


def test_metrics_are_the_same_from_processes(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> dict[str, bytes]:
        return {str(part): part.read_bytes() for part in Path(str(work.home.metrics(NAME))).glob("*/*.parquet")}

    before = read()
    assert len(before) == len(MEASURED) * 2
    monkeypatch.setattr(processes, "FEW_SELECTIONS", 0)
    making.make(work.home, NAME, ["selection_metrics"], STUDY, force=True)
    assert read() == before


@pytest.mark.slow
@pytest.mark.parametrize("where", ["here", "apart"])
def test_tables_made_together_are_those_made_alone(work: Work, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if where == "apart":
        monkeypatch.setattr(processes, "FEW_SELECTIONS", 0)
    make_each(work, WANTED)
    together = read_tables(work)
    dates = {path: path.stat().st_mtime_ns for path in work.home.parts(NAME).glob("*/*.parquet")}
    make_each(work, WANTED, ["top_keys"])
    assert [path.stem for path, date in dates.items() if path.stat().st_mtime_ns != date] == ["top_keys"]
    for asset in WANTED:
        making.make(work.home, NAME, [asset.name], STUDY, force=True)
    assert together == read_tables(work)


def test_what_is_made_before_a_mistake_stays_and_no_other_process_interferes(work: Work) -> None:
    making.find_measured(work.home, NAME, "selection_counts").unlink()
    some = [find_asset(name) for name in ("assumption_weights", "regimes_by_sequence")]
    with pytest.raises(UserError, match=r"selection_counts\.parquet cannot be read") as refused:
        make_each(work, some)
    assert "\n" not in str(refused.value)
    assert {part.stem for part in work.home.parts(NAME).glob("*/*.parquet")} == {*some[0].tables}
    with work.lock(), pytest.raises(UserError, match="Another process is working on study"):
        make_each(work, some)
