"""The asset ``selection_metrics``: counts, radii, geometry and bounds for every N, in Zarr.
https://docs.dagster.io/guides/build/assets
"""

import dagster as dg

from dagster_project.defs.resources import DataRoot
from dagster_project.defs.tensors import tensors
from dagster_project.records.partitions import studies
from dagster_project.steps import measuring
from dagster_project.study.studies import find_study

_CHECKS = [
    dg.AssetCheckSpec(
        "identities_hold",
        asset="selection_metrics",
        blocking=True,
        description="0 ≤ K_in ≤ N, 0 ≤ K_out ≤ n − N, and K_in = 1 at N = 1, on every row.",
    )
]


@dg.asset(
    partitions_def=studies,
    group_name="study",
    kinds={"dask", "zarr"},
    deps=[tensors],
    code_version=str(measuring.METRICS_VERSION),
    check_specs=_CHECKS,
)
def selection_metrics(context: dg.AssetExecutionContext, data_root: DataRoot) -> dg.MaterializeResult:
    """How well a ball around s_N separates the N selected keys from the others, for every head and every N."""
    home, name = data_root.home(), context.partition_key
    measured = measuring.measure(home, name, find_study(home, name))
    return dg.MaterializeResult(
        metadata={
            "path": dg.MetadataValue.path(str(measured.path)),
            "dagster/row_count": measured.selections,
            "sequences measured in this run": measured.sequences,
            "bytes": measured.bytes,
            "seconds": measured.seconds,
        },
        check_results=[
            dg.AssetCheckResult(
                check_name="identities_hold",
                passed=measured.violations == 0,
                metadata={"selections": measured.selections, "violations": measured.violations},
            )
        ],
    )
