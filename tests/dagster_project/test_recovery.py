"""Killed at any moment and started again: no stuck slot or lock, the same bytes and rows, honest records."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

import sql
from storage.warehouse import connect
from tests.dagster_project.conftest import settings
from tests.dagster_project.driver import attention_geometry, environment, files, instance_of

pytestmark = pytest.mark.slow

HELD = """
import sys, time
from storage.sequences import SequenceStore

folder, seconds = sys.argv[1], float(sys.argv[2])
write = SequenceStore.write

def and_wait(store, *arguments):
    write(store, *arguments)
    if store.path.parent.name == folder:
        time.sleep(seconds)

SequenceStore.write = and_wait
sys.argv[:3] = ["attention-geometry"]
from dagster_project.cli import main
main()
"""
"""The command line, but it waits after every sequence that it writes into one of the folders of the data root."""


def held(folder: str, seconds: float, *arguments: object) -> list[str]:
    return [sys.executable, "-c", HELD, folder, str(seconds), *map(str, arguments)]


def wait_for(happened: Callable[[], bool], process: subprocess.Popen[bytes], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert process.poll() is None, "the process ended too early"
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def kill_after_first_sequence(folder: str, home: Path, *arguments: object, during: Callable[[], None]) -> None:
    """Start a run, wait for the first entry of a ledger, do something, and kill it without warning."""
    command = held(folder, 600, "run", *arguments, "--home", home)
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for((home / folder / "mine.zarr" / "finished" / "c" / "0").exists, process)
        during()
    finally:
        process.send_signal(signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL


def tables(home: Path) -> dict[str, pa.Table]:
    connection = connect(home / "warehouse")
    return {name: connection.sql(f"FROM {name} ORDER BY ALL").to_arrow_table() for name in sql.names("schema")}


def runs(home: Path) -> list[dg.DagsterRunStatus]:
    """Status of every run, the oldest first."""
    with instance_of(home) as instance:
        return [run.status for run in reversed(instance.get_runs())]


def test_killed_twice_it_ends_as_if_it_had_not_been(mine: Path, inputs: Path, tmp_path: Path) -> None:
    failed, started, success = (dg.DagsterRunStatus[name] for name in ("FAILURE", "STARTED", "SUCCESS"))

    def doctor_names_what_is_missing() -> None:
        assert "incomplete: 3 of 4 sequences are missing" in attention_geometry("doctor", home=tmp_path).text

    kill_after_first_sequence(
        "tensors", tmp_path, "--name", "mine", *settings(inputs), during=doctor_names_what_is_missing
    )
    assert runs(tmp_path) == [started]
    assert "extracted: " in attention_geometry("studies", home=tmp_path).text

    def a_second_process_is_turned_away() -> None:
        before = files(tmp_path)
        turned_away = attention_geometry("run", "mine", home=tmp_path)
        assert "Another process is working on study 'mine'" in turned_away.complaint
        assert files(tmp_path) == before
        assert runs(tmp_path) == [failed, started, failed]  # dead and buried, alive, turned away

    kill_after_first_sequence("metrics", tmp_path, "mine", during=a_second_process_is_turned_away)
    assert "measured: " in attention_geometry("studies", home=tmp_path).text

    last = attention_geometry("run", "mine", home=tmp_path)
    assert last.code == 0, last.errors
    assert "nothing to extract" in last.errors
    assert "of 3 sequences measured" in last.errors
    assert runs(tmp_path) == [failed, failed, failed, success]
    with instance_of(tmp_path) as instance:
        pools = instance.event_log_storage.get_concurrency_keys()
        assert "gpu" in pools
        for pool in pools:
            slots = instance.event_log_storage.get_concurrency_info(pool)
            assert (slots.active_slot_count, slots.pending_step_count) == (0, 0), pool
    assert list((tmp_path / "locks" / "runs").iterdir()) == []

    stores = {name: content for name, content in files(tmp_path).items() if name.startswith(("tensors", "metrics"))}
    assert stores == {name: files(mine)[name] for name in stores}
    assert len(stores) > 50
    for name, table in tables(mine).items():
        assert tables(tmp_path)[name].equals(table), name
    assert "incomplete" not in attention_geometry("doctor", home=tmp_path).text


def test_on_a_terminal_there_is_a_bar_and_control_c_ends_in_one_line(inputs: Path, tmp_path: Path) -> None:
    command = held("tensors", 1.5, "run", "--name", "mine", *settings(inputs, batch_size=2), "--home", tmp_path)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 40, 120, 0, 0))
    process = subprocess.Popen(
        command, env=environment(TERM="xterm"), stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    )
    os.close(slave)
    screen, asked = "", False
    deadline = time.monotonic() + 90
    try:
        while time.monotonic() < deadline:
            if select.select([master], [], [], 0.2)[0]:
                try:
                    shown = os.read(master, 4096)
                except OSError:  # the other end is closed
                    break
                if not shown:
                    break
                screen += shown.decode("utf-8")
            if not asked and re.search(r"2/4 \[.*(sequence/s|s/sequence)", screen):
                process.send_signal(signal.SIGINT)
                asked = True
        code = process.wait(30)
    finally:
        process.kill()
        process.wait()
        os.close(master)
    assert asked, screen
    assert re.search(r"50%\|.*\| 2/4 \[\d\d:\d\d<\d\d:\d\d, +[\d.]+ ?(sequence/s|s/sequence)\]", screen), screen
    assert code == 130, screen
    assert screen.rstrip().endswith("attention-geometry: stopped; run the same command again to continue")
    assert "Traceback" not in screen
    assert runs(tmp_path) == [dg.DagsterRunStatus.FAILURE]
    assert list((tmp_path / "locks" / "runs").iterdir()) == []
    assert "extracted: " in attention_geometry("studies", home=tmp_path).text
