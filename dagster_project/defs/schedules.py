"""Jobs, the schedule of studies (off by default), the asset ``family``, and sensors.

One sensor registers new studies, the other keeps the tables and pages of families current.
https://docs.dagster.io/guides/automate/schedules
"""

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import (
    UnresolvedAssetJobDefinition,  # Dagster exports no name for it
)

from dagster_project.assets.catalogue import STEPS
from dagster_project.assets.families import (
    compute_family_version,
    compute_inputs_digest,
    explain_stale_family,
    has_members,
    make_family,
)
from dagster_project.defs.assets import Naming, configure_assets, select_steps
from dagster_project.records.registration import families, find_unended_runs, register_studies
from dagster_project.study.home import Home
from dagster_project.study.studies import find_family, list_readable_families
from dagster_project.upkeep import plan
from storage.errors import UserError

SCHEDULE_VARIABLE = "ATTENTION_GEOMETRY_SCHEDULE"
"""Environment variable with the times of the schedule, as a cron expression in UTC."""

DAILY = "0 3 * * *"
"""The times of the schedule if that variable is not set."""


def build_job(
    naming: Naming, name: str, description: str, steps: Iterable[str] = tuple(STEPS)
) -> UnresolvedAssetJobDefinition:
    """A job of all assets of a study, or of others; a run is one process, whatever executor the deployment has."""
    return dg.define_asset_job(
        naming.name(name),
        selection=dg.AssetSelection.assets(*select_steps(steps, naming)),
        description=description,
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


def build_sensor(
    naming: Naming, name: str, evaluate: Callable[..., Any], job: UnresolvedAssetJobDefinition, *, seconds: int
) -> dg.SensorDefinition:
    """A sensor that is on from the start, and evaluated again after so many seconds."""
    return dg.SensorDefinition(
        name=naming.name(name),
        evaluation_fn=evaluate,
        job=job,
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=seconds,
        description=evaluate.__doc__,
    )


def register_partitions(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Register every study of the studies files as a partition; start no run."""
    names = register_studies(context.instance, Home.from_environment())
    return dg.SkipReason(f"{len(names)} studies are registered")


def build_family(naming: Naming) -> dg.AssetsDefinition:
    """The asset of the tables and the pages of families."""

    @dg.asset(
        name="family",
        key_prefix=naming.prefix,
        partitions_def=families,
        group_name=naming.name("families"),
        kinds={"duckdb", "html"},
        deps=[dg.AssetDep(naming.key("report"), partition_mapping=dg.AllPartitionMapping())],
        code_version=compute_family_version(),
    )
    def family(context: dg.AssetExecutionContext, data_root: dg.ResourceParam[Home]) -> dg.MaterializeResult[None]:
        """The tables and the page of a family of studies, from the members that have landed."""
        chosen = find_family(data_root, context.partition_key)
        counts = make_family(data_root, chosen)
        path = dg.MetadataValue.path(str(data_root.families / f"{chosen.name}.html"))
        return dg.MaterializeResult(metadata={"path": path, **counts})

    return family


def request_families(context: dg.SensorEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """Make the tables and the page of each family whose members have changed, once none of them is being made."""
    home = Home.from_environment()
    register_studies(context.instance, home)
    running = find_unended_runs(context.instance)
    known, is_idle = list_readable_families(home).values(), True
    for family in known:
        names = [family.name, *family.members]
        is_settled = has_members(home, family) and not any(name in running or home.is_claimed(name) for name in names)
        if is_settled and explain_stale_family(home, family):
            is_idle = False
            key = f"{family.name}-{compute_inputs_digest(home, family)}"
            yield dg.RunRequest(run_key=key, partition_key=family.name)
    if is_idle:
        yield dg.SkipReason(f"{len(known)} families are current, or their members are being made or were never run")
