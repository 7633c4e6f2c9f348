"""Dagster's assets: one for each record of ``dagster_project.assets.catalogue``, made by one factory.

https://docs.dagster.io/guides/build/assets
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from dagster_project.assets.asset import Asset, Check, CheckResult, Markdown
from dagster_project.assets.catalogue import ASSETS, make
from dagster_project.records.partitions import studies
from dagster_project.study.home import Home
from storage.files.places import Local, Remote


class MakeConfig(dg.Config):
    """How a run of an asset treats existing results."""

    replace: bool = Field(
        default=False,
        description="extract again if the stored tensors have other settings or inputs, are damaged or were dropped; "
        "published results stay until they are replaced. If false, such a run is refused",
    )
    force: bool = Field(default=False, description="rebuild the asset even if it is current")


def configure_assets(assets: Iterable[str], force: str | None = None) -> dict[str, Any]:
    """Run configuration of some assets: tensors that cannot be continued are replaced, and one asset may be forced."""
    config = {asset: {"replace": True} | ({"force": True} if asset == force else {}) for asset in assets}
    return {"ops": {asset: {"config": given} for asset, given in config.items()}}


def build_asset(record: Asset) -> dg.AssetsDefinition:
    """The Dagster asset of one record, partitioned by study."""
    checks = {check.name: check for check in record.checks()}

    @dg.asset(
        name=record.name,
        description=record.about,
        partitions_def=studies,
        group_name="study",
        kinds=set(record.kinds),
        deps=[dg.AssetKey(parent) for parent in record.parents],
        pool=record.pool,
        code_version=record.version(),
        check_specs=[
            dg.AssetCheckSpec(check.name, asset=record.name, blocking=check.blocking, description=check.description)
            for check in checks.values()
        ],
    )
    def make_asset(
        context: dg.AssetExecutionContext, config: MakeConfig, data_root: dg.ResourceParam[Home]
    ) -> dg.MaterializeResult:
        made = make(data_root, context.partition_key, record, replace=config.replace, force=config.force)
        return dg.MaterializeResult(
            metadata={name: _convert_metadata(value) for name, value in made.metadata.items()},
            check_results=[
                _convert_result(result, checks[result.name], context.partition_key) for result in made.checks
            ],
        )

    return make_asset


def _convert_result(result: CheckResult, check: Check, study: str) -> dg.AssetCheckResult:
    """The result of a check; a failure of a non-blocking check is a warning.

    It names its study: Dagster stores the results of all partitions together, and plots numbers over time by name.
    """
    return dg.AssetCheckResult(
        check_name=result.name,
        passed=result.passed,
        severity=dg.AssetCheckSeverity.ERROR if check.blocking else dg.AssetCheckSeverity.WARN,
        description=": ".join(filter(None, (study, result.description))),
        metadata={f"{study}: {name}": _convert_metadata(value) for name, value in result.metadata.items()},
    )


def _convert_metadata(value: Any) -> Any:
    """A value as Dagster metadata."""
    match value:
        case Path() | Local() | Remote():
            return dg.MetadataValue.path(str(value))
        case Markdown():
            return dg.MetadataValue.md(value)
        case _:
            return value


assets = [build_asset(record) for record in ASSETS]
"""One asset for each record."""
