"""The job over all assets of a study, its schedule (off by default), the asset ``family`` with its job, and sensors.

One sensor registers new studies, the other keeps the tables and pages of families current.
https://docs.dagster.io/guides/automate/schedules
"""

import os
from collections.abc import Iterator
from functools import partial

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
from dagster_project.study.families import Family
from dagster_project.study.home import Home
from dagster_project.study.studies import find_family, list_readable_families
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


def build_family_job(naming: Naming) -> UnresolvedAssetJobDefinition:
    """The job that makes one family."""
    return dg.define_asset_job(
        naming.name("families"),
        selection=dg.AssetSelection.assets(naming.key("family")),
        description="The tables and the page of one family of studies.",
        executor_def=dg.in_process_executor,
    )


def build_families_sensor(naming: Naming, job: UnresolvedAssetJobDefinition) -> dg.SensorDefinition:
    """The sensor that makes the tables and the page of each family whose members have changed."""
    return dg.SensorDefinition(
        name=naming.name("families_current"),
        evaluation_fn=_request_families,
        job=job,
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=300,
        description="Makes the tables and the page of each family whose members have changed, once none is being made.",
    )


def _request_families(context: dg.SensorEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """Make the tables and the page of each family whose members have changed, once none of them is being made."""
    home = Home.from_environment()
    register_studies(context.instance, home)
    running = find_unended_runs(context.instance)
    known = list_readable_families(home).values()
    waiting = [stale for stale in known if _is_settled(home, stale, running) and explain_stale_family(home, stale)]
    for stale in waiting:
        yield dg.RunRequest(run_key=f"{stale.name}-{compute_inputs_digest(home, stale)}", partition_key=stale.name)
    if not waiting:
        yield dg.SkipReason(f"{len(known)} families are current, or their members are being made or were never run")


def _is_settled(home: Home, family: Family, running: dict[str, str]) -> bool:
    """Whether a member of a family has landed, and no process works on one or on the family."""
    names = [family.name, *family.members]
    return has_members(home, family) and not any(name in running or home.is_claimed(name) for name in names)
