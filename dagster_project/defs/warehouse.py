"""The asset ``warehouse``: the study's tables in DuckDB.
https://docs.dagster.io/guides/build/assets
"""

import dagster as dg

import sql
from dagster_project.defs.metrics import selection_metrics
from dagster_project.defs.resources import DataRoot
from dagster_project.defs.summaries import summaries
from dagster_project.records.partitions import studies
from dagster_project.steps import landing
from dagster_project.study.studies import find_study
from storage.warehouse.versions import landing_version

_CHECKS = [
    dg.AssetCheckSpec(name, asset="warehouse", blocking=True, description=sql.statement("checks", name).meaning)
    for name in sql.names("checks")
] + [
    dg.AssetCheckSpec(
        "row_count",
        asset="warehouse",
        blocking=True,
        description="As many selections landed as the metrics store holds.",
    )
]


@dg.asset(
    partitions_def=studies,
    group_name="study",
    kinds={"duckdb", "sql"},
    deps=[selection_metrics, *summaries],
    pool="warehouse",
    code_version=landing_version(),
    check_specs=_CHECKS,
)
def warehouse(context: dg.AssetExecutionContext, data_root: DataRoot) -> dg.MaterializeResult:
    """All tables of the study, published together, or the previous ones if a check finds a violation."""
    home, name = data_root.home(), context.partition_key
    landed = landing.land_study(home, name, find_study(home, name))
    table = "\n".join(
        ["| table | rows |", "|---|---:|", *(f"| {key} | {rows:,} |" for key, rows in landed.rows.items())]
    )
    return dg.MaterializeResult(
        metadata={
            "path": dg.MetadataValue.path(landed.path),
            "dagster/row_count": landed.rows["selection_counts"],
            "tables": dg.MetadataValue.md(table),
            "bytes": landed.bytes,
            "seconds": landed.seconds,
        },
        check_results=[
            dg.AssetCheckResult(
                check_name=check, passed=not rows, metadata={"first violations": dg.MetadataValue.text(repr(rows))}
            )
            for check, rows in landed.violations.items()
        ],
    )
