"""Killed at any moment and started again: no stuck slot or lock, the same bytes and rows, honest records."""

import hashlib
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import count, pairwise
from multiprocessing.process import BaseProcess
from pathlib import Path

import dagster as dg
import pytest

import sql
from dagster_project.study.home import Home
from dagster_project.upkeep.clearing import find_leftovers as leftovers_in
from storage.warehouse.connection import connect
from tests.campaigns import KILLED_STUDIES
from tests.dagster_project.driver import attention_geometry, files, instance_of
from tests.dagster_project.forked import INSTANTS, STAGES, entered, start
from tests.extract.tiny import text, write_checkpoint

pytestmark = pytest.mark.long


def wait_for(happened: Callable[[], bool], process: BaseProcess, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert process.is_alive(), "the process ended too early"
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def leftovers(home: Path) -> list[Path]:
    return leftovers_in(Home(home))


def runs(home: Path) -> list[dg.DagsterRunStatus]:
    """Status of every run, the oldest first."""
    with instance_of(home) as instance:
        return [run.status for run in reversed(instance.get_runs())]


def contents(home: Path) -> str | None:
    """A hash of all rows of all tables of the study, sorted; None if it is not published."""
    with closing(connect(home / "warehouse")) as connection:
        if not connection.execute("SELECT 1 FROM studies WHERE study = 'mine'").fetchall():
            return None
        digest = hashlib.sha256()
        for name in sql.list_names("schema"):
            table = connection.sql(f"FROM {name} ORDER BY ALL").to_arrow_table()
            digest.update(f"{name} {table.num_rows} {table.schema}".encode())
            for column in table.itercolumns():
                digest.update(repr(column.to_pylist()).encode())
    return digest.hexdigest()


def results(home: Path) -> dict[str, bytes]:
    """All files of a data root but databases and their script, which are as good if they are not the same bytes."""
    return {name: content for name, content in files(home).items() if not name.startswith("warehouse/")}


@dataclass(frozen=True)
class Uninterrupted:
    """The study as it is when nobody interrupts it, and an earlier one of its name with another seed."""

    home: Path
    earlier: Path
    text: str  # Its studies file
    spans: dict[str, float]  # Seconds of each stage
    contents: str

    def begin(self, home: Path, *, replaced: bool) -> None:
        """Make a data root in which the study has not been run, or one with all of the earlier study in its place."""
        if replaced:
            shutil.copytree(self.earlier, home)
        home.mkdir(exist_ok=True)
        (home / "studies.yaml").write_text(self.text)


def finish(home: Path, log: Path, command: Sequence[object] = ()) -> None:
    process = start(home, log, command)
    process.join(600)
    assert process.exitcode == 0, Path(f"{log}.output").read_text()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Uninterrupted:
    root = tmp_path_factory.mktemp("uninterrupted")
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    write_checkpoint(root / "llama", "llama", num_hidden_layers=1, intermediate_size=8, **sizes)
    (root / "book.txt").write_text(text(3000), encoding="utf-8")
    study = f"model: {root / 'llama'}, corpus: {root / 'book.txt'}, context_length: 16, sequences: 2"
    homes = {"earlier": 1, "once": 0, "again": 0}
    for name, seed in homes.items():
        (root / name).mkdir()
        (root / name / "studies.yaml").write_text(f"studies:\n  mine: {{{study}, seed: {seed}}}\n")
        finish(root / name, root / f"{name}.log")
    found = {name: contents(root / name) for name in homes}
    assert found["once"] == found["again"] != found["earlier"]
    assert results(root / "once") == results(root / "again")
    stages = entered(root / "again.log")
    began = dict(reversed(stages))
    spans = {stage: began[after] - began[stage] for stage, after in pairwise((*STAGES, "end"))}
    described = (root / "once" / "studies.yaml").read_text()
    return Uninterrupted(root / "once", root / "earlier", described, spans, found["once"])


def killed_in(
    stage: str,
    moment: float,
    begin: Callable[[str], tuple[BaseProcess, Path]],
    spans: Mapping[str, float],
    again: Callable[[], None],
) -> str:
    """Kill a run at a moment of a stage, from 0 to 1, and say where that met it; if it was too late, a new one.

    ``again`` leaves a new run something to do.
    """
    for _ in range(20):
        process, log = begin(stage if stage in INSTANTS else "")
        while process.is_alive() and stage not in dict(entered(log)):
            time.sleep(0.002)
        until = time.monotonic() + (0 if stage in INSTANTS else moment * spans[stage])
        while time.monotonic() < until and entered(log)[-1][0] == stage:  # what follows is left for the next kill
            time.sleep(0.002)
        process.kill()
        process.join()
        if process.exitcode == -signal.SIGKILL:
            return entered(log)[-1][0]
        assert process.exitcode == 0, Path(f"{log}.output").read_text()
        again()
        moment /= 2
    raise AssertionError(f"no run could be killed in {stage}")


def killed_often(
    uninterrupted: Uninterrupted,
    home: Path,
    stages: Sequence[str],
    draws: random.Random,
    command: Sequence[object] = (),
) -> list[str]:
    """Kill a run in each of these stages, each the continuation of the one before; let the last go on to its end.

    Between a kill and the next run a reader finds what was published before, or all that is now.
    """
    logs = (home.with_name(f"{home.name}.{number}.log") for number in count())

    def begin(hold: str) -> tuple[BaseProcess, Path]:
        log = next(logs)
        return start(home, log, command, hold), log

    before = contents(home)
    met = []
    for stage in stages:
        met.append(killed_in(stage, draws.random(), begin, uninterrupted.spans, Home(home).report("mine").unlink))
        assert contents(home) in {before, uninterrupted.contents}, met
    finish(home, next(logs), [*command, *(("--force", "report") if command else ())])
    assert contents(home) == uninterrupted.contents, met
    assert results(home) == results(uninterrupted.home), met
    assert leftovers(home) == [], met
    return met


SEED = 20260


@pytest.mark.timeout(1800)
def test_killed_at_random_moments_it_ends_as_if_it_had_not_been(uninterrupted: Uninterrupted, tmp_path: Path) -> None:
    """Kills in every stage; half of the studies replace one with another seed, its stores and its tables."""
    draws, met = random.Random(SEED), list[str]()
    for number in range(KILLED_STUDIES):
        home = tmp_path / str(number)
        uninterrupted.begin(home, replaced=number % 2 == 1)
        met += killed_often(uninterrupted, home, STAGES, draws)
    sys.stdout.write(f"seed {SEED}: killed in {Counter(met)}\n")
    assert len(met) == KILLED_STUDIES * len(STAGES)
    assert len({*STAGES} - {*met}) <= 1  # on a machine that is less busy by then, a late kill meets the next stage


@pytest.mark.timeout(1800)
def test_killed_among_dagsters_records_no_slot_or_lock_is_left(uninterrupted: Uninterrupted, tmp_path: Path) -> None:
    """Eight kills of the command line, the first before anything has begun; Dagster's records then say so."""
    home = tmp_path / "home"
    uninterrupted.begin(home, replaced=False)
    process = start(home, tmp_path / "created", ("run", "mine"), hold="created")
    wait_for(lambda: "created" in dict(entered(tmp_path / "created")), process)
    process.kill()
    process.join()
    assert runs(home) == [dg.DagsterRunStatus.NOT_STARTED]
    seen = attention_geometry("refresh", "mine", "--dry-run", home=home)
    assert "stale" in seen.text, "a run that was killed before it began is no run in progress"
    met = ["created", *killed_often(uninterrupted, home, STAGES, random.Random(SEED), ("run", "mine"))]
    sys.stdout.write(f"seed {SEED}: killed in {Counter(met)}\n")
    *failed, last = runs(home)
    assert last == dg.DagsterRunStatus.SUCCESS
    killed = [status for status in failed if status != dg.DagsterRunStatus.SUCCESS]  # that of one that ended too early
    assert set(killed) == {dg.DagsterRunStatus.FAILURE}
    assert len(met) == len(STAGES) + 1
    assert len(met) - 1 <= len(killed) <= len(met)  # the last may be killed when its end has been recorded
    with instance_of(home) as instance:
        pools = instance.event_log_storage.get_concurrency_keys()
        assert {"gpu", "warehouse"} <= set(pools)
        for pool in pools:
            slots = instance.event_log_storage.get_concurrency_info(pool)
            assert (slots.active_slot_count, slots.pending_step_count) == (0, 0), pool
    assert list((home / "locks" / "runs").iterdir()) == []
