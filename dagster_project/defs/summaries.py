"""The assets between metrics and warehouse: one for every step of ``dagster_project.steps.summaries``.
https://docs.dagster.io/guides/build/assets
"""

import dagster as dg

from dagster_project.defs.metrics import selection_metrics
from dagster_project.defs.resources import DataRoot
from dagster_project.records.partitions import studies
from dagster_project.steps import pipeline
from dagster_project.steps.summaries import STEPS, Step
from dagster_project.study.studies import find_study


def _asset(step: Step) -> dg.AssetsDefinition:
    """The asset of one step."""

    @dg.asset(
        name=step.name,
        partitions_def=studies,
        group_name="study",
        kinds={"dask", "parquet"},
        deps=[selection_metrics, *(dg.AssetKey(earlier) for earlier in step.after)],
        code_version=str(step.version),
        description=step.about,
    )
    def tables_of_step(context: dg.AssetExecutionContext, data_root: DataRoot) -> dg.MaterializeResult:
        home, name = data_root.home(), context.partition_key
        made = pipeline.summarise(home, name, find_study(home, name), step)
        return dg.MaterializeResult(
            metadata={
                "path": dg.MetadataValue.path(made.path),
                "dagster/row_count": sum(made.rows.values()),
                **{f"rows of {table}": rows for table, rows in made.rows.items()},
                "seconds": made.seconds,
            }
        )

    return tables_of_step


summaries = [_asset(step) for step in STEPS.values()]
"""One asset for every step."""
