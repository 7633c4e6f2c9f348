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

STAGES = ("tensors", "metrics", "steps", "warehouse", "publishing", "published", "report")
"""The stages of a run, in order."""

INSTANTS = ("created", "publishing", "published")
"""Stages too short to be met by chance: Dagster has recorded the run, and not begun it; the database is about to be
renamed to its place; it has been."""

IMPORTED = (
    "tests.dagster_project.forked",
    "dagster_project.definitions",
    "dagster_project.command.runs",
    "dagster_project.steps.reporting",
    "dagster_project.steps.landing",
    "dagster_project.steps.summaries",
    "dagster._core.storage.sqlite_storage",
    "dagster._core.storage.event_log.sqlite.sqlite_event_log",
    "alembic.command",
    "altair",
    "attr",
    "dask.array",
    "extract.extraction",
    "extract.capture",
    "extract.corpora",
    "geometry.lazy",
    "pyarrow.parquet",
    "reports.compare",
    "reports.page",
    "reports.figures",
    "rich.table",
    "scipy.optimize",
    "storage.warehouse.landing",
    "transformers.models.llama.modeling_llama",
)
"""What a run needs, but nothing that starts a thread, which would not live on in a fork."""

WRAPPED = (
    ("dagster_project.steps.pipeline", "extract_tensors", "tensors"),
    ("dagster_project.steps.measuring", "measure", "metrics"),
    ("dagster_project.steps.pipeline", "summarise", "steps"),
    ("dagster_project.steps.landing", "land_study", "warehouse"),
    ("dagster_project.steps.reporting", "write_study_report", "report"),
)
"""The functions that the stages begin with; a step of the summaries is entered ten times."""


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
    lines = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def enter(stage: str) -> None:
        os.write(lines, f"{stage} {time.monotonic()}\n".encode())
        if stage == hold:
            time.sleep(600)

    for module, name, stage in WRAPPED:
        _announce(module, name, partial(enter, stage))
    _spare_what_is_no_step_of_ours()
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


def _spare_what_is_no_step_of_ours() -> None:
    """Leave out half of the time of a page: Altair's validation of every chart, and bundling of its JavaScript."""
    schemapi = import_module("altair.utils.schemapi")
    schemapi.DEBUG_MODE = False
    import_module("reports.browser").bundle = lambda: "// the library of the charts"


def _announce(module: str, name: str, enter: Callable[[], None]) -> None:
    """Have a function say that it begins."""
    holder = import_module(module)
    function: Callable[..., object] = getattr(holder, name)

    def announced(*arguments: object, **options: object) -> object:
        enter()
        return function(*arguments, **options)

    setattr(holder, name, announced)


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
    from dagster_project.steps import landing, measuring, pipeline, reporting
    from dagster_project.steps.summaries import STEPS
    from dagster_project.study.home import Home
    from dagster_project.study.studies import find_study

    root = Home(Path(home))
    study = find_study(root, "mine")
    pipeline.extract_tensors(root, "mine", study, replace=True)
    measuring.measure(root, "mine", study)
    for step in STEPS.values():
        pipeline.summarise(root, "mine", study, step)
    assert landing.land_study(root, "mine", study).published
    pipeline.judge_claims(root, "mine")
    reporting.write_study_report(root, "mine", study)
