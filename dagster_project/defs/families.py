"""Dagster's asset ``family``: the tables and the page of a family of studies, with the sensor that keeps them current.

https://docs.dagster.io/guides/automate/sensors
"""

from collections.abc import Iterator

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import (
    UnresolvedAssetJobDefinition,  # Dagster exports no name for it
)

from dagster_project.assets.families import (
    compute_family_version,
    compute_inputs_digest,
    explain_stale_family,
    has_members,
    make_family,
)
from dagster_project.defs.assets import Naming
from dagster_project.records.partitions import families
from dagster_project.records.registration import find_unended_runs, register_studies
from dagster_project.study.families import Family
from dagster_project.study.home import Home
from dagster_project.study.studies import find_family, list_readable_families


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
