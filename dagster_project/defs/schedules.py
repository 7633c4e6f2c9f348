"""The job over all assets of a study, its schedule (off by default), and the sensor that registers new studies.
https://docs.dagster.io/guides/automate/schedules
"""

import os
from collections.abc import Iterator
from functools import partial

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import (
    UnresolvedAssetJobDefinition,  # Dagster exports no name for it
)

from dagster_project.defs.assets import STEPS, Naming, configure_assets, select_steps
from dagster_project.records.registration import register_studies
from dagster_project.study.home import Home
from dagster_project.upkeep import plan
from storage.errors import UserError

SCHEDULE_VARIABLE = "ATTENTION_GEOMETRY_SCHEDULE"
"""Environment variable with the times of the schedule, as a cron expression in UTC."""

DAILY = "0 3 * * *"
"""The times of the schedule if that variable is not set."""


def build_study_job(naming: Naming) -> UnresolvedAssetJobDefinition:
    """The job of all assets of one study; a run is one process, whatever executor the deployment has."""
    return dg.define_asset_job(
        naming.name("study"),
        selection=dg.AssetSelection.assets(*select_steps(STEPS, naming)),
        description="Everything about one study: tensors, metrics, tables and report.",
        executor_def=dg.in_process_executor,
    )


def _request_runs(naming: Naming, context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """Materialise only what is missing or stale, with one run for each study; the sensor then renews the families."""
    home, when = Home.from_environment(), context.scheduled_execution_time
    register_studies(context.instance, home)
    report = plan.plan(home, context.instance, "schedule")
    plan.write(home, report)
    stale = [entry for entry in report.entries if entry.state == "stale"]
    for entry in stale:
        yield dg.RunRequest(
            run_key=f"{entry.study}-{when:%Y-%m-%dT%H:%M}",
            partition_key=entry.study,
            asset_selection=select_steps(entry.why, naming),
            run_config=configure_assets(entry.why, naming=naming),
            tags=report.tags(entry),
        )
    if not stale:
        yield dg.SkipReason("; ".join(f"{entry.study}: {entry.reasons}" for entry in report.entries))


def build_schedule(naming: Naming, job: UnresolvedAssetJobDefinition) -> dg.ScheduleDefinition:
    """The schedule, off by default, with the times of the environment."""
    cron = os.environ.get(SCHEDULE_VARIABLE) or DAILY
    try:
        return dg.ScheduleDefinition(
            naming.name("all_studies_daily"),
            job=job,
            cron_schedule=cron,
            execution_fn=partial(_request_runs, naming),
            default_status=dg.DefaultScheduleStatus.STOPPED,
            description=_request_runs.__doc__,
        )
    except dg.DagsterInvalidDefinitionError as error:
        raise UserError(
            f"{SCHEDULE_VARIABLE} is '{cron}', which is not a cron expression; set it to one, such as '{DAILY}'"
        ) from error


def build_studies_sensor(naming: Naming, job: UnresolvedAssetJobDefinition) -> dg.SensorDefinition:
    """The sensor that registers new studies."""
    return dg.SensorDefinition(
        name=naming.name("studies_registered"),
        evaluation_fn=_register_studies,
        job=job,
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=30,
        description="Registers every study of the studies files as a partition; starts no run.",
    )


def _register_studies(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Register every study of the studies files as a partition; start no run."""
    names = register_studies(context.instance, Home.from_environment())
    return dg.SkipReason(f"{len(names)} studies are registered")
