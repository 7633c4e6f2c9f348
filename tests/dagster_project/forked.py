"""Runs in processes of their own, which can be killed: each is forked from one that has imported everything.

A run writes a line to a file when it enters a stage, so that it is known where the kill met it. It is the command line
as users have it, or the bodies of the assets one after the other, which is the same work without Dagster's records of
it and takes half the time.
"""

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from multiprocessing.process import BaseProcess
from pathlib import Path
from unittest import mock

from dagster import DagsterInstance

from dagster_project.assets.asset import Asset, AssetResult, Work

STAGES = ("tensors", "metrics", "steps", "warehouse", "publishing", "published", "report")
"""The stages of a run, in order."""

INSTANTS = ("created", "publishing", "published")
"""Stages too short to be met by chance: Dagster has recorded the run, and not begun it; the database is about to be
renamed to its place; it has been."""

IMPORTED = (
    "tests.dagster_project.forked",
    "dagster_project.definitions",
    "dagster_project.command.runs",
    "dagster_project.defs.assets",
    "dagster_project.assets.report",
    "dagster_project.assets.landing",
    "dagster_project.assets.summaries",
    "dagster._core.storage.sqlite_storage",
    "dagster._core.storage.event_log.sqlite.sqlite_event_log",
    "alembic.command",
    "altair",
    "attr",
    "dask.array",
    "extract.extraction",
    "extract.capture.one_pass",
    "extract.texts.corpora",
    "geometry.layers",
    "pyarrow.parquet",
    "reports.overviews",
    "reports.page",
    "rich.table",
    "scipy.optimize",
    "storage.warehouse.landing",
    "transformers.models.llama.modeling_llama",
)
"""What a run needs, but nothing that starts a thread, which would not live on in a fork."""

STAGE_OF = {"tensors": "tensors", "selection_metrics": "metrics", "warehouse": "warehouse", "report": "report"}
"""The stages that begin with the making of an asset; that of the small tables is entered once for each."""


def entered(log: Path) -> list[tuple[str, float]]:
    """The stages that a run has entered so far, each with the seconds of the system's clock."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [(stage, float(seconds)) for stage, seconds in map(str.split, lines)]


def start(home: Path, log: Path, command: Sequence[object] = (), hold: str = "") -> BaseProcess:
    """Begin to run a command, or, without one, the study ``mine`` without Dagster; stages go to ``log``.

    Once it has entered the stage ``hold`` it does nothing more.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    with mock.patch.dict(os.environ, PYTHONPATH=str(Path(__file__).parents[2]), OMP_NUM_THREADS="1"):
        process = context.Process(target=_run, args=(str(home), str(log), [*map(str, command)], hold))
        process.start()
    return process


def _run(home: str, log: str, command: list[str], hold: str) -> None:
    os.environ.pop("DAGSTER_HOME", None)  # of whoever started the server of forks
    lines = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def enter(stage: str) -> None:
        os.write(lines, f"{stage} {time.monotonic()}\n".encode())
        if stage == hold:
            time.sleep(600)

    _announce_assets(enter)
    _spare_what_is_not_ours()
    _announce_publishing(enter)
    _announce_creation(partial(enter, "created"))
    quiet = os.open(f"{log}.output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    if command:
        from dagster_project.command.cli import main

        sys.argv = ["attention-geometry", *command, "--home", home]
        main()
    else:
        _bodies(home)
    enter("end")


def _spare_what_is_not_ours() -> None:
    """Leave out what takes much of the time of a page, the bundling of its JavaScript."""
    import_module("reports.rendering").bundle = lambda: "// the library of the charts"


def _announce_assets(enter: Callable[[str], None]) -> None:
    """Have every record of an asset say when it begins to be made; in place, since Dagster's assets hold it."""
    from dagster_project.assets.catalogue import ASSETS

    def announce(asset: Asset, stage: str) -> None:
        make = asset.make

        def announced(work: Work) -> AssetResult:
            enter(stage)
            return make(work)

        object.__setattr__(asset, "make", announced)  # records are frozen

    for asset in ASSETS:
        if stage := "steps" if asset.tables else STAGE_OF.get(asset.name, ""):
            announce(asset, stage)


def _announce_publishing(enter: Callable[[str], None]) -> None:
    """Have it said that a database is about to be renamed to its place, and that it has been."""
    replace = Path.replace

    def announced(path: Path, target: Path) -> Path:
        if Path(target).suffix != ".duckdb":
            return replace(path, target)
        enter("publishing")
        renamed = replace(path, target)
        enter("published")
        return renamed

    Path.replace = announced


def _announce_creation(enter: Callable[[], None]) -> None:
    """Have it said that Dagster has recorded a run and not begun it."""
    create = DagsterInstance.create_run_for_job

    def announced(instance: DagsterInstance, *arguments: object, **options: object) -> object:
        run = create(instance, *arguments, **options)
        enter()
        return run

    DagsterInstance.create_run_for_job = announced


def _bodies(home: str) -> None:
    """What the assets do, in their order."""
    from dagster_project.assets.catalogue import ASSETS, prepare_work
    from dagster_project.study.home import Home

    work = prepare_work(Home(Path(home)), "mine", replace=True)
    for asset in ASSETS:
        made = asset.make(work)
        assert all(check.passed for check in made.checks if asset.name != "claims"), (asset.name, made.checks)
