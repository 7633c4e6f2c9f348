"""Small tables made in several processes: those of one, each after its parents, and nothing is left if one fails."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import active_children
from pathlib import Path
from types import SimpleNamespace

import pytest

from dagster_project.assets import processes
from dagster_project.assets.asset import AssetResult, Work
from dagster_project.assets.catalogue import find_asset
from dagster_project.assets.processes import count_processes, is_worthwhile, make_each, stop_processes
from dagster_project.assets.summaries import FITS, SUMMARIES
from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from storage.errors import UserError
from tests.dagster_project import making
from tests.dagster_project.drawn_study import NAME, STUDY, measured, several
from tests.dagster_project.driver import environment

WANTED = [asset for asset in SUMMARIES if asset.is_wanted(STUDY)]


@pytest.fixture(scope="module")
def tensors(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A data root with metrics, in which no table has been made."""
    return measured(tmp_path_factory.mktemp("drawn"), several())


@pytest.fixture
def work(tensors: Home, tmp_path: Path) -> Work:
    """A study in a data root of its own."""
    return making.work(Home(Path(shutil.copytree(tensors.root, tmp_path / "copied"))), NAME, STUDY)


@pytest.fixture
def in_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every study is large enough for two processes, which are kept for the next."""
    monkeypatch.setattr(processes, "FEW_SELECTIONS", 0)
    monkeypatch.setattr(processes, "count_threads", lambda: 2)
    monkeypatch.setattr(processes, "measure_free_memory", lambda: 10**12)


@pytest.fixture(scope="module", autouse=True)
def ended() -> Iterator[None]:
    """After all tests no process is left."""
    yield
    stop_processes()
    assert not active_children()


def read_tables(work: Work) -> dict[str, list[dict[str, object]]]:
    """The rows of all small tables."""
    return {table: making.rows(work.home, work.name, table) for asset in WANTED for table in asset.tables}


@pytest.mark.usefixtures("in_two")
def test_two_processes_make_the_tables_of_one(work: Work, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        made = dict(zip(("asset", "result"), zip(*make_each(work, WANTED), strict=True), strict=True))
    names = [asset.name for asset in made["asset"]]
    assert sorted(names) == sorted(asset.name for asset in WANTED)
    for asset in WANTED:
        assert all(names.index(parent) < names.index(asset.name) for parent in {*asset.parents} & {*names})
    assert caplog.messages == [f"{NAME}: {result.message}" for result in made["result"]]
    in_two = read_tables(work)
    dates = {path: path.stat().st_mtime_ns for path in work.home.parts(NAME).glob("*/*.parquet")}
    making.summarise(work.home, NAME, STUDY)
    assert dates == {path: path.stat().st_mtime_ns for path in dates}, "those of two processes are current"
    started = {process.pid for process in active_children()}
    list(make_each(work, WANTED, ["coverage"]))
    assert {process.pid for process in active_children()} == started
    assert len(started) == 2
    assert [path.stem for path, date in dates.items() if path.stat().st_mtime_ns != date] == ["coverage_by_sequence"]
    for asset in WANTED:
        making.make(work.home, NAME, [asset.name], STUDY, force=True)
    assert in_two == read_tables(work)


def test_a_free_process_makes_the_first_asset_whose_parents_are_made(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_make", lambda *_, **__: AssetResult({}))
    with ThreadPoolExecutor(1) as executor:
        pool = SimpleNamespace(executor=executor, processes=1)
        made = [asset for asset, _ in processes._make_in_processes(work, WANTED, (), pool)]
    assert made == WANTED


@pytest.mark.usefixtures("in_two")
def test_a_store_that_is_replaced_is_opened_again_and_a_mistake_ends_all_with_its_line(work: Work) -> None:
    some = ["coverage", "selection_means"]
    list(make_each(work, [find_asset(name) for name in some]))
    making.find_measured(work.home, NAME, "selection_counts").unlink()
    with pytest.raises(UserError, match=r"selection_counts\.parquet cannot be read") as refused:
        list(make_each(making.work(work.home, NAME, STUDY), [find_asset(name) for name in some], some))
    assert "\n" not in str(refused.value)
    assert not active_children()


@pytest.mark.usefixtures("in_two")
def test_a_process_that_is_killed_is_named_and_what_is_made_stays(work: Work) -> None:
    made = make_each(work, WANTED)
    first, _ = next(made)
    for process in active_children():
        os.kill(process.pid or 0, signal.SIGKILL)
    with pytest.raises(UserError, match=f"process that computed tables of '{NAME}' was ended.*run {NAME}"):
        list(made)
    assert first.explain_staleness(work.take_snapshot()) is None
    list(make_each(work, FITS))  # in new ones


@pytest.mark.usefixtures("in_two")
def test_processes_end_with_who_waits_for_them(work: Work) -> None:
    made = make_each(work, WANTED)
    next(made)
    with pytest.raises(UserError, match="Another process is working on study"):
        find_asset("coverage").make(making.work(work.home, NAME, STUDY))
    made.close()  # as an interrupt does
    assert not active_children()
    find_asset("coverage").make(making.work(work.home, NAME, STUDY))


@pytest.mark.usefixtures("in_two")
def test_with_little_memory_fewer_processes_are_started(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "count_threads", lambda: 8)
    assert count_processes() == processes.PROCESSES
    monkeypatch.setattr(processes, "measure_free_memory", lambda: 3 * processes.PROCESS_MEMORY - 1)
    assert count_processes() == 2
    monkeypatch.setattr(processes, "measure_free_memory", lambda: processes.PROCESS_MEMORY)
    stop_processes()
    list(make_each(work, FITS))
    assert not active_children()


@pytest.mark.usefixtures("in_two")
def test_few_selections_or_a_cluster_take_this_process(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "FEW_SELECTIONS", work.sources.metrics.count_selections() + 1)
    assert not is_worthwhile(work)
    monkeypatch.setattr(processes, "FEW_SELECTIONS", work.sources.metrics.count_selections())
    assert is_worthwhile(work)
    elsewhere = Study.model_validate(STUDY.model_dump() | {"dask": {"scheduler": "local"}})
    assert not is_worthwhile(making.work(work.home, NAME, elsewhere))


@pytest.mark.parametrize("quiet", [True, False])
def test_a_process_that_ends_at_once_lists_no_semaphores(*, quiet: bool) -> None:
    start = "from dagster_project.assets.processes import start_tracker; start_tracker()" if quiet else "pass"
    program = f"{start}; import os, multiprocessing as m; lock = m.get_context('spawn').Lock(); os._exit(0)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ("leaked semaphore" in done.stderr) is not quiet


def test_no_process_imports_from_the_working_directory(tmp_path: Path) -> None:
    """A file of a user may have the name of a module."""
    program, folder = tmp_path / "program.py", tmp_path / "folder"
    program.write_text(
        "from dagster_project.assets import processes\n"
        "from dagster_project.command import cli, program\n"
        "cli.main = lambda: print(processes._start_pool().executor.submit(int).result())\n"
        "if __name__ == '__main__':\n    program.program()\n"
    )
    folder.mkdir()
    (folder / "geometry.py").write_text("from pathlib import Path\nPath('imported').touch()\n")
    given = {name: value for name, value in environment().items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run([sys.executable, program], check=True, env=given, cwd=folder, stdout=subprocess.PIPE)
    assert done.stdout == b"0\n"
    assert not (folder / "imported").exists()
