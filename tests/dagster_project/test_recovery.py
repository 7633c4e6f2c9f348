"""Killed at any moment and started again: no stuck slot or lock, the same bytes and rows, honest records.

A run is the command line in a process of its own, forked from one that has imported what it needs. It writes a line to
a file when it enters a stage, so that it is known where the kill met it.
"""

import hashlib
import multiprocessing
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from itertools import count, pairwise
from multiprocessing.process import BaseProcess
from pathlib import Path
from unittest import mock

import dagster as dg
import pytest

import sql
from dagster_project.assets.asset import Asset, AssetResult, Work
from dagster_project.study.home import Home
from dagster_project.upkeep.clearing import find_leftovers
from storage.warehouse.connection import connect
from tests.campaigns import KILLED_STUDIES
from tests.dagster_project.driver import CHECKOUT, attention_geometry, files, instance_of
from tests.extract.tiny import text, write_checkpoint

pytestmark = pytest.mark.long

STAGES = ("tensors", "metrics", "steps", "warehouse", "publishing", "published", "report")
"""The stages of a run, in order."""

INSTANTS = ("created", "publishing", "published")
"""Stages too short to be met by chance: Dagster has recorded the run, and not begun it; the database is about to be
renamed to its place; it has been."""

STAGE_OF = {"tensors": "tensors", "selection_metrics": "metrics", "warehouse": "warehouse", "report": "report"}
"""The stages that begin with the making of an asset; that of the small tables is entered once for each."""

IMPORTED = (
    "tests.dagster_project.test_recovery",
    "dagster_project.command.runs",
    "dagster_project.definitions",
    "dagster_project.defs.assets",
    "dagster_project.assets.landing",
    "dagster_project.assets.report",
    "dagster_project.assets.summaries",
    "alembic.command",
    "altair",
    "dask.array",
    "dagster._core.storage.event_log.sqlite.sqlite_event_log",
    "extract.extraction",
    "extract.capture.one_pass",
    "geometry.layers",
    "reports.page",
    "scipy.optimize",
    "transformers.models.llama.modeling_llama",
)
"""What a run needs, but nothing that starts a thread, which would not live on in a fork."""

SEED = 20260


def start(home: Path, log: Path, hold: str = "") -> BaseProcess:
    """Begin to run the study ``mine``; stages go to ``log``. Once it has entered the stage ``hold`` it waits."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    with mock.patch.dict(os.environ, PYTHONPATH=str(CHECKOUT), OMP_NUM_THREADS="1"):
        process = context.Process(target=_run, args=(str(home), str(log), hold))
        process.start()
    return process


def _run(home: str, log: str, hold: str) -> None:
    os.environ.pop("DAGSTER_HOME", None)  # of whoever started the server of forks
    lines = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def enter(stage: str) -> None:
        os.write(lines, f"{stage} {time.monotonic()}\n".encode())
        if stage == hold:
            time.sleep(600)

    _announce(enter)
    import_module("reports.rendering").bundle = lambda: "// the library of the charts"  # half of the time of a page
    quiet = os.open(f"{log}.output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    from dagster_project.command.cli import main

    sys.argv = ["attention-geometry", "run", "mine", "--home", home]
    try:
        main()
    finally:
        enter("end")


def _announce(enter: Callable[[str], None]) -> None:
    """Have it said when a run is recorded, when an asset begins to be made, and when a database is renamed."""
    from dagster_project.assets.catalogue import ASSETS

    replace, create = Path.replace, dg.DagsterInstance.create_run_for_job

    def announce(asset: Asset, stage: str) -> None:
        make = asset.make

        def announced(work: Work) -> AssetResult:
            enter(stage)
            return make(work)

        object.__setattr__(asset, "make", announced)  # in place, since Dagster's assets hold it, and it is frozen

    def replace_announced(path: Path, target: Path) -> Path:
        if Path(target).suffix != ".duckdb":
            return replace(path, target)
        enter("publishing")
        renamed = replace(path, target)
        enter("published")
        return renamed

    def create_announced(instance: dg.DagsterInstance, *arguments: object, **options: object) -> object:
        run = create(instance, *arguments, **options)
        enter("created")
        return run

    for asset in ASSETS:
        if stage := "steps" if asset.tables else STAGE_OF.get(asset.name, ""):
            announce(asset, stage)
    Path.replace = replace_announced
    dg.DagsterInstance.create_run_for_job = create_announced


def entered(log: Path) -> list[tuple[str, float]]:
    """The stages that a run has entered so far, each with the seconds of the system's clock."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [(stage, float(seconds)) for stage, seconds in map(str.split, lines)]


def finish(home: Path, log: Path) -> None:
    process = start(home, log)
    process.join(600)
    assert process.exitcode == 0, Path(f"{log}.output").read_text()


def contents(home: Path) -> str | None:
    """A hash of all rows of all tables of the study, sorted; None if it is not published."""
    with closing(connect(home / "warehouse")) as connection:
        if not connection.execute("SELECT 1 FROM studies WHERE study = 'mine'").fetchall():
            return None
        tables = [connection.sql(f"FROM {name} ORDER BY ALL").to_arrow_table() for name in sql.list_names("schema")]
    return hashlib.sha256(repr([(table.schema, table.to_pydict()) for table in tables]).encode()).hexdigest()


def results(home: Path) -> dict[str, bytes]:
    """All files of a data root but databases and their script, which are as good if they are not the same bytes."""
    return {name: content for name, content in files(home).items() if not name.startswith("warehouse/")}


@dataclass(frozen=True)
class Uninterrupted:
    """The study as it is when nobody interrupts it, and an earlier one of its name with another seed."""

    home: Path
    earlier: Path
    spans: dict[str, float]  # Seconds of each stage
    contents: str


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
    began = dict(reversed(entered(root / "again.log")))
    spans = {stage: began[after] - began[stage] for stage, after in pairwise((*STAGES, "end"))}
    return Uninterrupted(root / "once", root / "earlier", spans, found["once"])


def kill_in(stage: str, moment: float, home: Path, logs: "count[int]", seconds: float) -> str:
    """Kill a run at a moment of a stage, from 0 to 1, and say where that met it; if it was too late, a new one."""
    for _ in range(20):
        log = home.with_name(f"{home.name}.{next(logs)}.log")
        process = start(home, log, stage if stage in INSTANTS else "")
        while process.is_alive() and stage not in dict(entered(log)):
            time.sleep(0.002)
        until = time.monotonic() + (0 if stage in INSTANTS else moment * seconds)
        while time.monotonic() < until and entered(log)[-1][0] == stage:  # what follows is left for the next kill
            time.sleep(0.002)
        process.kill()
        process.join()
        if process.exitcode == -signal.SIGKILL:
            return entered(log)[-1][0]
        assert process.exitcode == 0, Path(f"{log}.output").read_text()
        Home(home).report("mine").unlink()  # so that a new run has something to do
        moment /= 2
    raise AssertionError(f"no run could be killed in {stage}")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", range(KILLED_STUDIES))
def test_killed_at_random_it_ends_as_if_it_had_not_been(
    uninterrupted: Uninterrupted, tmp_path: Path, number: int
) -> None:
    """A kill in every stage, each run the continuation of the one before; the last goes on to its end.

    Half of the studies replace one with another seed, its stores and its tables. Between a kill and the next run a
    reader finds what was published before, or all that is now. Dagster's records say which runs were killed.
    """
    home, draws, logs, met = tmp_path / "home", random.Random(SEED + number), count(), list[str]()
    replaced = number % 2 == 1
    if replaced:
        shutil.copytree(uninterrupted.earlier, home)
    home.mkdir(exist_ok=True)
    shutil.copy(uninterrupted.home / "studies.yaml", home)
    before = contents(home)
    for stage in ("created", *STAGES):
        met.append(kill_in(stage, draws.random(), home, logs, uninterrupted.spans.get(stage, 0)))
        assert contents(home) in {before, uninterrupted.contents}, met
        if stage == "created":
            seen = attention_geometry("refresh", "mine", "--dry-run", home=home)
            assert "stale" in seen.text, "a run that was killed before it began is no run in progress"
    Home(home).report("mine").unlink(missing_ok=True)
    finish(home, home.with_name("last.log"))
    sys.stdout.write(f"seed {SEED + number}: killed in {Counter(met)}\n")
    assert contents(home) == uninterrupted.contents, met
    assert results(home) == results(uninterrupted.home), met
    assert find_leftovers(Home(home)) == [], met
    assert len({"created", *STAGES} - {*met}) <= 1  # on a machine that is less busy by then, a kill meets the next one
    with instance_of(home) as instance:
        last, *failed = (run.status for run in instance.get_runs())
        killed = [status for status in failed if status != dg.DagsterRunStatus.SUCCESS]  # that of one that ended early
        assert last == dg.DagsterRunStatus.SUCCESS
        assert set(killed) == {dg.DagsterRunStatus.FAILURE}
        assert len(met) - 1 <= len(killed) <= len(met)  # the last may be killed when its end has been recorded
        pools = instance.event_log_storage.get_concurrency_keys()
        assert {"gpu", "warehouse"} <= set(pools)
        for pool in pools:
            slots = instance.event_log_storage.get_concurrency_info(pool)
            assert (slots.active_slot_count, slots.pending_step_count) == (0, 0), pool
    assert list((home / "locks" / "runs").iterdir()) == []
