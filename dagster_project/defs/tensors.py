"""The asset ``tensors``: attention weights and value states of a study, in Zarr.
https://docs.dagster.io/guides/build/assets
"""

import dagster as dg
from pydantic import Field

from dagster_project.defs.resources import DataRoot
from dagster_project.records.partitions import studies
from dagster_project.steps import pipeline
from dagster_project.study.studies import find_study
from extract.settings import EXTRACTION_VERSION


class TensorsConfig(dg.Config):
    """How a run of the asset ``tensors`` takes what is there already."""

    replace: bool = Field(
        default=False,
        description="extract anew where the stored tensors are of other settings or inputs, damaged or dropped; what "
        "is published stays until it is replaced; without it, such a run is refused",
    )


_CHECKS = [
    dg.AssetCheckSpec(
        "ledger_complete", asset="tensors", blocking=True, description="Every sequence of the study is in the ledger."
    ),
    dg.AssetCheckSpec(
        "rows_sum_to_one",
        asset="tensors",
        blocking=True,
        description="The weights of every head and query, and its learned sink, sum to 1 within float32: at most one "
        "rounding per key. Weights that have been dropped were checked before.",
    ),
]


@dg.asset(
    partitions_def=studies,
    group_name="study",
    kinds={"torch", "zarr"},
    pool="gpu",
    code_version=str(EXTRACTION_VERSION),
    check_specs=_CHECKS,
)
def tensors(context: dg.AssetExecutionContext, config: TensorsConfig, data_root: DataRoot) -> dg.MaterializeResult:
    """Softmax weights of the study's queries and value states of every head, for every sequence of the study."""
    home, name = data_root.home(), context.partition_key
    study = find_study(home, name)
    report = pipeline.extract_tensors(home, name, study, replace=config.replace)
    missing = pipeline.missing_tensors(home, name)
    deviation = report.row_sum_deviation
    tolerance = pipeline.row_sum_tolerance(home, name)
    return dg.MaterializeResult(
        metadata={
            "path": dg.MetadataValue.path(str(report.path)),
            "sequences": report.sequences,
            "sequences written in this run": report.written,
            "bytes": report.bytes,
            "seconds": report.seconds,
            "documents read": report.documents_read,
            "documents skipped as too short": report.documents_skipped,
        },
        check_results=[
            dg.AssetCheckResult(
                check_name="ledger_complete", passed=not missing, metadata={"missing sequences": len(missing)}
            ),
            dg.AssetCheckResult(
                check_name="rows_sum_to_one",
                passed=deviation is None or deviation <= tolerance,
                metadata={
                    "largest distance from 1": "dropped" if deviation is None else deviation,
                    "tolerance": tolerance,
                },
            ),
        ],
    )
