"""Dagster's assets: one for each record of ``dagster_project.assets.catalogue``, made by one factory.

https://docs.dagster.io/guides/build/assets
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from dagster_project.analysis.sources import share_sources
from dagster_project.assets.asset import Asset, Check, CheckResult, Markdown
from dagster_project.assets.catalogue import ASSETS, find_asset, make
from dagster_project.records.partitions import studies
from dagster_project.study.home import Home
from storage.files.places import LocalPlace, RemotePlace

STEP = "summaries"
"""Name of the step that makes all assets of small tables which need no model, one after the other."""


class MakeConfig(dg.Config):
    """How a run of a step treats existing results."""

    replace: bool = Field(
        default=False,
        description="extract again if the stored tensors have other settings or inputs, are damaged or were dropped; "
        "published results stay until they are replaced. If false, such a run is refused",
    )
    force: list[str] = Field(default=[], description="names of assets to rebuild even if they are current")


def configure_assets(assets: Iterable[str], force: str | None = None) -> dict[str, Any]:
    """Run configuration of some assets: tensors that cannot be continued are replaced, and one asset may be forced."""
    config: dict[str, dict[str, Any]] = {}
    for asset in assets:
        config.setdefault(find_step(find_asset(asset)), {"replace": True}).update(
            {"force": [asset]} if asset == force else {}
        )
    return {"ops": {step: {"config": given} for step, given in config.items()}}


def find_step(record: Asset) -> str:
    """The step that makes an asset: its own, or that of all small tables, since every step costs a second of events."""
    return STEP if record.tables and record.pool is None else record.name


def group_by_step(records: Iterable[Asset]) -> list[tuple[Asset, ...]]:
    """Records by the step that makes them, in an order in which they can be made."""
    steps: dict[str, list[Asset]] = {}
    for record in records:
        steps.setdefault(find_step(record), []).append(record)
    return [tuple(of_step) for of_step in steps.values()]


def build_step(records: Sequence[Asset]) -> dg.AssetsDefinition:
    """The Dagster assets of the records of one step, partitioned by study."""

    @dg.multi_asset(
        name=find_step(records[0]),
        specs=[
            dg.AssetSpec(
                record.name,
                description=record.about,
                group_name="study",
                kinds=set(record.kinds),
                deps=[dg.AssetKey(parent) for parent in record.parents],
                code_version=record.version(),
            )
            for record in records
        ],
        check_specs=[
            dg.AssetCheckSpec(check.name, asset=record.name, blocking=check.blocking, description=check.description)
            for record in records
            for check in record.checks()
        ],
        partitions_def=studies,
        pool=records[0].pool,
        can_subset=len(records) > 1,
    )
    def make_assets(
        context: dg.AssetExecutionContext, config: MakeConfig, data_root: dg.ResourceParam[Home]
    ) -> Iterator[dg.MaterializeResult[None]]:
        with share_sources():
            for record in records:
                if dg.AssetKey(record.name) in context.selected_asset_keys:
                    yield _make(record, context.partition_key, config, data_root)

    return make_assets


def _make(record: Asset, study: str, config: MakeConfig, home: Home) -> dg.MaterializeResult[None]:
    """Make one asset of a study."""
    checks = {check.name: check for check in record.checks()}
    made = make(home, study, record, replace=config.replace, force=record.name in config.force)
    return dg.MaterializeResult(
        asset_key=record.name,
        metadata={name: _convert_metadata(value) for name, value in made.metadata.items()},
        check_results=[_convert_result(result, checks[result.name], record.name, study) for result in made.checks],
    )


def _convert_result(result: CheckResult, check: Check, asset: str, study: str) -> dg.AssetCheckResult:
    """The result of a check; a failure of a non-blocking check is a warning.

    It names its study: Dagster stores the results of all partitions together, and plots numbers over time by name.
    """
    return dg.AssetCheckResult(
        check_name=result.name,
        asset_key=asset,
        passed=result.passed,
        severity=dg.AssetCheckSeverity.ERROR if check.blocking else dg.AssetCheckSeverity.WARN,
        description=": ".join(filter(None, (study, result.description))),
        metadata={f"{study}: {name}": _convert_metadata(value) for name, value in result.metadata.items()},
    )


def _convert_metadata(value: Any) -> Any:
    """A value as Dagster metadata."""
    match value:
        case Path() | LocalPlace() | RemotePlace():
            return dg.MetadataValue.path(str(value))
        case Markdown():
            return dg.MetadataValue.md(value)
        case _:
            return value


assets = [build_step(records) for records in group_by_step(ASSETS)]
"""One asset for each record."""
