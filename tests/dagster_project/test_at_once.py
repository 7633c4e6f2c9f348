"""Commands that start at the same time on one data root: each works, or says in a line what it waits for."""

import multiprocessing
import os
import subprocess
from importlib import import_module
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from dagster_project.records.registration import register_studies, use_instance
from dagster_project.study.home import Home
from tests.dagster_project.driver import PROGRAM, attention_geometry, environment, instance_of
from tests.dagster_project.recorded import TINY, write_studies

AT_ONCE = 3


def _open_records(home: Path, barrier: Barrier, complaint: Path) -> None:
    os.environ.pop("DAGSTER_HOME", None)
    try:
        barrier.wait(60)
        with use_instance(Home(home)) as instance:
            register_studies(instance, Home(home))
    except BaseException as error:
        complaint.write_text(repr(error))
        raise


@pytest.mark.slow
def test_records_of_a_fresh_data_root_are_opened_by_several_processes(tmp_path: Path) -> None:
    """Dagster itself creates its tables, and adds partitions, with no lock."""
    import_module("dagster._core.storage.sqlite_storage")  # here, and not by each of the processes
    home = tmp_path / "home"
    home.mkdir()
    write_studies(home, **{f"study-{number}": TINY for number in range(20)})
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(AT_ONCE)
    processes = [
        context.Process(target=_open_records, args=(home, barrier, tmp_path / f"{number}.txt"))
        for number in range(AT_ONCE)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    complaints = [path.read_text() for path in tmp_path.glob("*.txt")]
    assert complaints == []
    assert [process.exitcode for process in processes] == [0] * AT_ONCE
    with instance_of(home) as instance:
        assert {f"study-{number}" for number in range(20)} < set(instance.get_dynamic_partitions("study"))


@pytest.mark.long  # pairs of runs in processes of their own
def test_two_new_studies_are_run_at_once_on_a_fresh_data_root(tmp_path: Path) -> None:
    write_studies(tmp_path, one=TINY, two=TINY)
    running = [
        subprocess.Popen(
            [PROGRAM, "run", name, "--home", tmp_path],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in ("one", "two")
    ]
    said = [process.communicate(timeout=600)[0] for process in running]
    assert all("Traceback" not in text for text in said), said
    assert [process.returncode for process in running] == [0, 0], said
    landed = attention_geometry("sql", "SELECT count(*) AS c FROM studies", "--format", "csv", home=tmp_path)
    assert landed.text == '"c"\n2\n'
