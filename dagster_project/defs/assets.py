"""Dagster's assets, made by one factory from the records of ``dagster_project.assets.catalogue``.

https://docs.dagster.io/guides/build/assets
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

import sql
from dagster_project.assets.asset import Asset, AssetResult, Check, CheckResult, Markdown
from dagster_project.assets.catalogue import ASSETS, STEPS, make_each, prepare_work
from dagster_project.records.registration import studies
from dagster_project.study.home import Home
from storage.errors import UserError
from storage.files.places import Place


class MakeConfig(dg.Config):
    """How a run of a step treats existing results."""

    replace: bool = Field(
        default=False,
        description="extract again if the stored tensors have other settings or inputs, are damaged or were dropped; "
        "published results stay until they are replaced. If false, such a run is refused",
    )
    tables: list[str] = Field(
        default=[], description="of an asset of several tables, those to make; all if none is named"
    )
    force: list[str] = Field(default=[], description="names of tables or assets to rebuild even if they are current")


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


def select_steps(records: Iterable[str], naming: Naming = OURS) -> list[dg.AssetKey]:
    """The keys of Dagster's assets that these records belong to, or whose names they are."""
    return [naming.key(step) for step in dict.fromkeys(STEPS.get(name, name) for name in records)]


def configure_assets(records: Iterable[str], force: str | None = None, naming: Naming = OURS) -> dict[str, Any]:
    """Run configuration of some records: tensors that cannot be continued are replaced, and one may be forced."""
    ops: dict[str, Any] = {}
    for name in records:
        (key,) = select_steps([name], naming)
        config = ops.setdefault(key.to_python_identifier(), {"config": {"replace": True}})["config"]
        if STEPS[name] != name:
            config.setdefault("tables", []).append(name)
        if name == force:
            config["force"] = [name]
    return {"ops": ops}


def build_assets(naming: Naming) -> list[dg.AssetsDefinition]:
    """Dagster's assets, each after its parents."""
    of_step = {step: [record for record in ASSETS if STEPS[record.name] == step] for step in STEPS.values()}
    return [_build_asset(step, records, naming) for step, records in of_step.items()]


def _build_asset(step: str, records: Sequence[Asset], naming: Naming) -> dg.AssetsDefinition:
    """Dagster's asset of some records, partitioned by study."""
    key, deps = naming.key(step), select_steps((parent for record in records for parent in record.parents), naming)
    listed = "\n".join(f"- `{record.name}`: {record.about}" for record in records)

    @dg.asset(
        key=key,
        description=records[0].about if len(records) == 1 else listed,
        group_name=naming.name("study"),
        kinds={kind for record in records for kind in record.kinds},
        deps=[dep for dep in deps if dep != key],
        code_version="-".join(record.version() for record in records),
        metadata=dict(_describe_columns(records)),
        check_specs=[
            dg.AssetCheckSpec(check.name, asset=key, blocking=check.blocking, description=check.description)
            for record in records
            for check in record.checks()
        ],
        partitions_def=studies,
        pool=records[0].pool,
    )
    def make_asset(
        context: dg.AssetExecutionContext, config: MakeConfig, data_root: dg.ResourceParam[Home]
    ) -> dg.MaterializeResult:  # Dagster reads this, and knows no parameters of it
        study = context.partition_key
        work = prepare_work(data_root, study, replace=config.replace)
        made = make_each(work, _select_records(step, records, config.tables), config.force)
        result = _join_results(made)
        checks = {check.name: check for record in records for check in record.checks()}
        link = naming.link(study) if step == "report" else {}
        return dg.MaterializeResult(
            metadata={name: _convert_metadata(value) for name, value in result.metadata.items()} | link,
            check_results=[_convert_result(each, checks[each.name], key, study) for each in result.checks],
        )

    return make_asset


def _select_records(step: str, records: Sequence[Asset], tables: Sequence[str]) -> Sequence[Asset]:
    """The records that a run's configuration names; all if it names none."""
    names = [record.name for record in records]
    if unknown := [name for name in tables if name not in names]:
        raise UserError(f"The asset '{step}' has no part '{unknown[0]}'; set tables to some of {', '.join(names)}")
    return [record for record in records if record.name in (tables or names)]


def _join_results(made: Sequence[AssetResult]) -> AssetResult:
    """One result of several tables: numbers are added, and the folder is the same."""
    if len(made) == 1:
        return made[0]
    numbers = Counter[str]()
    for result in made:
        numbers.update({name: value for name, value in result.metadata.items() if isinstance(value, int | float)})
    folder = {name: value for result in made for name, value in result.metadata.items() if name == "path"}
    return AssetResult(folder | numbers)


def _describe_columns(records: Iterable[Asset]) -> Iterator[tuple[str, dg.TableSchema]]:
    """The tables of an asset, each with its columns, their types and comments."""
    own = {table for record in records for table in record.tables}
    for table in (sql.read_statement("schema", name) for name in sql.list_names("schema") if name in own):
        columns = [
            dg.TableColumn(
                one.name, one.type, table.columns[one.name], dg.TableColumnConstraints(nullable=not one.required)
            )
            for one in table.typed
        ]
        yield table.name, dg.TableSchema(columns)


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
        case Path() | Place():
            return dg.MetadataValue.path(str(value))
        case Markdown():
            return dg.MetadataValue.md(value)
        case _:
            return value
