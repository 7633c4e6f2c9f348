"""The Dagster code location: combines the assets, jobs, schedules, sensors and resources of ``defs``."""

import atexit
import os
from functools import cache

import dagster as dg

import attention_geometry  # noqa: F401 (refuses to go on where another package stands in the way of one of ours)
from dagster_project.defs.assets import OURS, Naming, build_assets
from dagster_project.defs.resources import data_root, no_values
from dagster_project.defs.schedules import (
    build_family,
    build_job,
    build_schedule,
    build_sensor,
    register_partitions,
    request_families,
)


@dg.definitions
def defs() -> dg.Definitions:
    """All assets with their checks, jobs, schedules, sensors and resources; a run is one process and holds one lock."""
    _hide_leaks()
    own = dg.Definitions(resources={"io_manager": no_values}, executor=dg.in_process_executor)
    return dg.Definitions.merge(_build(OURS), own)


@cache
def _hide_leaks() -> None:
    """Discard what a process that Dagster starts says at its very end: a page of what DuckDB's binding has leaked.

    It says so where PyTorch or Dagster keeps modules to the end. Exit codes stay, and what exit handlers say that were
    registered later.
    """
    atexit.register(lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 2))


def build_definitions(prefix: str = "attention_geometry", *, pages: str | None = None) -> dg.Definitions:
    """The same for a code location that has definitions of its own: ``Definitions.merge(ours, build_definitions())``.

    They have no executor: jobs run in one process by themselves, and everything else as the deployment has it.

    Parameters
    ----------
    prefix
        Prefix of the keys of assets, and of the names of steps, groups, jobs, schedules and sensors.
    pages
        Address under which the pages of the folder ``reports`` of the data root are served, for links to them.
    """
    return _build(Naming(prefix, pages))


def _build(naming: Naming) -> dg.Definitions:
    """All definitions but an executor."""
    told = "Everything about one study: tensors, metrics, tables and report."
    study_job = build_job(naming, "study", told)
    family_job = build_job(naming, "families", "The tables and the page of one family of studies.", ["family"])
    return dg.Definitions(
        assets=[*build_assets(naming), build_family(naming)],
        jobs=[study_job, family_job],
        schedules=[build_schedule(naming, study_job)],
        sensors=[
            build_sensor(naming, "studies_registered", register_partitions, study_job, seconds=30),
            build_sensor(naming, "families_current", request_families, family_job, seconds=300),
        ],
        resources={"data_root": data_root},
    )
