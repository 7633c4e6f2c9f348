"""Dagster's assets: one for each record of ``dagster_project.assets.catalogue``, made by one factory.

https://docs.dagster.io/guides/build/assets
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

import sql
from dagster_project.assets.asset import Asset, AssetResult, Check, CheckResult, Markdown
from dagster_project.assets.catalogue import ASSETS, find_asset, prepare_work
from dagster_project.assets.making import make_each
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


@dataclass(frozen=True)
class Naming:
    """How a deployment names what is ours, so that it meets nothing of others."""

    prefix: str | None = None
    """Prefix of the keys of assets, and of the names of steps, groups, jobs, schedules and sensors."""
    pages: str | None = None
    """Address under which the pages of studies are served; None if they are not."""

    def key(self, asset: str) -> dg.AssetKey:
        """The key of an asset."""
        return dg.AssetKey([self.prefix, asset] if self.prefix else [asset])

    def name(self, name: str) -> str:
        """The name of anything else."""
        return f"{self.prefix}_{name}" if self.prefix else name

    def link(self, name: str) -> dict[str, dg.MetadataValue[Any]]:
        """Metadata that lead from a partition to its page."""
        return {"page": dg.MetadataValue.url(f"{self.pages}/{name}.html")} if self.pages else {}


OURS = Naming(pages="/pages")
"""Names in a code location of our own, and where ``attention-geometry ui`` serves pages."""


def configure_assets(assets: Iterable[str], force: str | None = None, naming: Naming = OURS) -> dict[str, Any]:
    """Run configuration of some assets: tensors that cannot be continued are replaced, and one asset may be forced."""
    config: dict[str, dict[str, Any]] = {}
    for asset in assets:
        config.setdefault(naming.name(find_step(find_asset(asset))), {"replace": True}).update(
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


def find_stage(record: Asset) -> str:
    """The stage of a study that an asset belongs to: ``tensors``, ``metrics``, ``tables`` or ``results``."""
    return (
        "tables"
        if record.tables
        else {"tensors": "tensors", "selection_metrics": "metrics"}.get(record.name, "results")
    )


def build_step(records: Sequence[Asset], naming: Naming = OURS) -> dg.AssetsDefinition:
    """The Dagster assets of the records of one step, partitioned by study."""

    @dg.multi_asset(
        name=naming.name(find_step(records[0])),
        specs=[
            dg.AssetSpec(
                naming.key(record.name),
                description=record.about,
                group_name=naming.name(find_stage(record)),
                kinds=set(record.kinds),
                deps=[naming.key(parent) for parent in record.parents],
                code_version=record.version(),
                metadata=_describe_columns(record),
            )
            for record in records
        ],
        check_specs=[
            dg.AssetCheckSpec(
                check.name, asset=naming.key(record.name), blocking=check.blocking, description=check.description
            )
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
        study = context.partition_key
        selected = [record for record in records if naming.key(record.name) in context.selected_asset_keys]
        work = prepare_work(data_root, study, replace=config.replace)
        for record, made in make_each(work, selected, config.force):
            yield _convert_made(record, made, study, naming)

    return make_assets


def _describe_columns(record: Asset) -> dict[str, Any]:
    """The columns of the tables of an asset, as Dagster shows them: of its only table, or of each by its name."""
    schemas = {table: _describe_table(sql.read_statement("schema", table)) for table in record.tables}
    return {"dagster/column_schema": next(iter(schemas.values()))} if len(schemas) == 1 else schemas


def _describe_table(table: sql.Statement) -> dg.TableSchema:
    """The columns of a table with their types and comments."""
    return dg.TableSchema(
        [
            dg.TableColumn(
                column.name,
                column.type,
                table.columns[column.name],
                dg.TableColumnConstraints(nullable=not column.required),
            )
            for column in table.typed
        ]
    )


def _convert_made(record: Asset, made: AssetResult, study: str, naming: Naming) -> dg.MaterializeResult[None]:
    """The result of an asset of a study; that of its page leads there."""
    checks = {check.name: check for check in record.checks()}
    key, link = naming.key(record.name), naming.link(study) if record.name == "report" else {}
    return dg.MaterializeResult(
        asset_key=key,
        metadata={name: _convert_metadata(value) for name, value in made.metadata.items()} | link,
        check_results=[_convert_result(result, checks[result.name], key, study) for result in made.checks],
    )


def _convert_result(result: CheckResult, check: Check, asset: dg.AssetKey, study: str) -> dg.AssetCheckResult:
    """The result of a check; a failure of a non-blocking check is a warning.

    It names its study: Dagster stores the results of all partitions together, and plots numbers over time by name.
    Checks with partitions of their own are a preview in Dagster 1.13, not for use in production by its own words.
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


def build_assets(naming: Naming) -> list[dg.AssetsDefinition]:
    """One asset for each record."""
    return [build_step(records, naming) for records in group_by_step(ASSETS)]
