"""The asset ``claims``: which claims of the paper a study supports, as checks that stop nothing.
https://docs.dagster.io/guides/test/asset-checks
"""

import dagster as dg

from dagster_project.defs.resources import DataRoot
from dagster_project.defs.warehouse import warehouse
from dagster_project.records.partitions import studies
from dagster_project.steps import pipeline
from storage.warehouse.relations import paper_claims

_CHECKS = [
    dg.AssetCheckSpec(
        claim["claim"],
        asset="claims",
        blocking=False,
        description=f"{claim['figure']}: {claim['statement']}. {claim['measure']} {claim['direction']} "
        f"{claim['threshold']:g}.",
    )
    for claim in paper_claims()
]


@dg.asset(
    partitions_def=studies,
    group_name="study",
    kinds={"duckdb", "sql"},
    deps=[warehouse],
    code_version="2",
    check_specs=_CHECKS,
)
def claims(context: dg.AssetExecutionContext, data_root: DataRoot) -> dg.MaterializeResult:
    """What the paper claims, held against this study; a claim that the study does not support is a warning."""
    found = pipeline.judge_claims(data_root.home(), context.partition_key)
    return dg.MaterializeResult(
        metadata={
            "supported": sum(claim["supported"] is True for claim in found),
            "not supported": sum(claim["supported"] is False for claim in found),
            "cannot be judged": sum(claim["supported"] is None for claim in found),
        },
        check_results=[
            dg.AssetCheckResult(
                check_name=claim["claim"],
                passed=claim["supported"] is not False,
                severity=dg.AssetCheckSeverity.WARN,
                description="cannot be judged: there is no such number" if claim["supported"] is None else None,
                metadata={name: claim[name] for name in ("value", "direction", "threshold") if claim[name] is not None},
            )
            for claim in found
        ],
    )
