"""The asset ``report``: the study's HTML page, and the index of all studies.
https://docs.dagster.io/guides/build/assets
"""

import dagster as dg

from dagster_project.defs.resources import DataRoot
from dagster_project.defs.warehouse import warehouse
from dagster_project.records.partitions import studies
from dagster_project.steps import reporting
from dagster_project.study.studies import find_study


@dg.asset(
    partitions_def=studies,
    group_name="study",
    kinds={"altair", "html"},
    deps=[warehouse],
    code_version=str(reporting.REPORT_VERSION),
)
def report(context: dg.AssetExecutionContext, data_root: DataRoot) -> dg.MaterializeResult:
    """One self-contained HTML page about the study, that opens offline."""
    home, name = data_root.home(), context.partition_key
    written = reporting.write_study_report(home, name, find_study(home, name))
    return dg.MaterializeResult(
        metadata={
            "page": dg.MetadataValue.url(written.path.as_uri()),
            "path": dg.MetadataValue.path(written.path),
            "index": dg.MetadataValue.url(home.index.as_uri()),
            "charts": written.charts,
            "bytes": written.bytes,
        }
    )
