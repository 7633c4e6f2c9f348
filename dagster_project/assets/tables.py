"""Assets between metrics and warehouse: each computes a few small tables from the stores of a study."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from dagster_project.analysis.cluster import select_scheduler, use_scheduler
from dagster_project.assets.asset import (
    MISSING,
    UNREADABLE,
    Asset,
    AssetResult,
    Provenance,
    Snapshot,
    Work,
    wrap_place,
)
from dagster_project.study.settings import AnalysisSettings
from reports.findings.numbers import count
from storage.errors import UserError
from storage.files.parts import (
    count_rows,
    is_whole,
    list_made,
    locate_part,
    read_inputs,
    remove_others,
    write_parts,
)
from storage.files.places import LocalPlace, Place

if TYPE_CHECKING:
    from dagster_project.analysis.sources import Rows, Sources

COMPUTED_BY = ("dask", "numba", "numpy", "scipy")
"""The libraries whose versions are recorded with the tables."""


def make_tables_asset(
    name: str,
    module: str,
    about: str,
    *,
    tables: tuple[str, ...],
    version: int,
    after: tuple[Asset, ...] = (),
    settings: tuple[str, ...] = (),
    reads: tuple[str, ...] = (),
    parallel: bool = False,
    kinds: tuple[str, ...] = ("dask", "parquet"),
    pool: str | None = None,
    is_wanted: Callable[[AnalysisSettings], bool] = lambda _: True,
) -> Asset:
    """The record of an asset that computes tables.

    The function ``compute_NAME`` of the ``module`` of ``dagster_project.analysis``, which is imported when it is
    called, yields their rows. ``version`` is that of the numbers, raised when their computation changes, so that they
    are rebuilt. The asset reads the tables of those in ``after``; ``settings`` are fields of the analysis settings; a
    ``parallel`` one has tasks for ``dagster_project.analysis.cluster.run_in_parallel``, so that it can use a cluster.
    All else is as in ``Asset``.
    """
    step = _Step(name, module, tables, version, after, settings, parallel, is_wanted)
    return Asset(
        name=name,
        about=about,
        parents=("selection_metrics", *(asset.name for asset in after)),
        kinds=kinds,
        version=lambda: str(version),
        make=step.make,
        expected=step.build_expected,
        recorded=step.read_recorded,
        places=wrap_place(lambda home, study: LocalPlace(home.parts(study))),
        settings=tuple(f"analysis.{field}" for field in settings),
        reads=reads,
        tables=tables,
        locate_parts=step.locate_parts,
        pool=pool,
        is_wanted=lambda study: is_wanted(study.analysis),
    )


@dataclass(frozen=True)
class _Step:
    """The functions in the record of one asset; arguments as for ``make_tables_asset``."""

    name: str
    module: str
    tables: tuple[str, ...]
    version: int
    after: tuple[Asset, ...]
    settings: tuple[str, ...]
    parallel: bool
    is_wanted: Callable[[AnalysisSettings], bool]

    def build_inputs(self, snapshot: Snapshot) -> dict[str, Any] | None:
        """What the tables are made from, as JSON: versions, settings, and the provenance of tensors and metrics.

        None without tensors.
        """
        if snapshot.metrics is None:
            return None
        made_from = snapshot.metrics.made_of
        return {
            "step": self.name,
            "versions": {asset.name: int(asset.version()) for asset in self.after} | {self.name: self.version},
            "settings": snapshot.study.analysis.model_dump(mode="json", include=set(self.settings)),
            "metrics": {part: value for part, value in made_from.items() if part != "analysis"},
        }

    def locate_parts(self, snapshot: Snapshot) -> dict[str, Place]:
        """The part of each table, as ``Asset.locate_parts``."""
        inputs, folder = self.build_inputs(snapshot), _locate_folder(snapshot)
        return {} if inputs is None else {table: locate_part(folder, table, inputs) for table in self.tables}

    def build_expected(self, snapshot: Snapshot) -> Provenance | None:
        """As ``Asset.expected``."""
        inputs = self.build_inputs(snapshot)
        return None if inputs is None else self._parse_provenance(inputs)

    def read_recorded(self, snapshot: Snapshot) -> Provenance | str:
        """As ``Asset.recorded``: what is expected if all parts are there, else what the first other was made from."""
        current, folder = self.locate_parts(snapshot).values(), _locate_folder(snapshot)
        if current and all(map(is_whole, current)):
            return self.build_expected(snapshot) or MISSING
        if any(part.exists() for part in current):
            return UNREADABLE
        current_inputs, others = self.build_inputs(snapshot), map(read_inputs, list_made(folder, self.name))
        made = next((made for made in others if made and made["inputs"] != current_inputs), None)
        return MISSING if made is None else self._parse_provenance(made["inputs"])

    def _parse_provenance(self, provenance: Mapping[str, Any]) -> Provenance:
        versions, settings = provenance.get("versions", {}), provenance.get("settings", {})
        inputs = {asset.name: versions.get(asset.name) for asset in self.after}
        return Provenance(
            versions.get(self.name),
            {f"analysis.{field}": settings.get(field) for field in self.settings},
            inputs | {"metrics": provenance.get("metrics")},
        )

    def make(self, work: Work) -> AssetResult:
        """Compute the tables, unless they are current or the study does not ask for them.

        ``UserError`` if another process works on the study, or inputs are incomplete or stale; or as for
        ``use_scheduler``.
        """
        started, home, name = time.monotonic(), work.home, work.name
        if not self.is_wanted(work.study.analysis):
            return AssetResult({"dagster/row_count": 0})
        with work.lock():
            snapshot = work.take_snapshot()
            snapshot.metrics = work.sources.metrics
            paths = self.locate_parts(snapshot)
            if work.force or not all(map(is_whole, paths.values())):
                self._write(work, snapshot)
            rows = {table: count_rows(path) for table, path in paths.items()}
        seconds, what = time.monotonic() - started, self.name.replace("_", " ")
        counts = {f"rows of {table}": count for table, count in rows.items()}
        return AssetResult(
            {"path": home.parts(name), "dagster/row_count": sum(rows.values()), **counts, "seconds": seconds},
            message=f"{what}, {count(sum(rows.values()), 'row')} ({seconds:.1f} s)",
        )

    def _write(self, work: Work, snapshot: Snapshot) -> None:
        """Compute the tables and write them."""
        check_tables(snapshot, self.after)
        read = {table: path for asset in self.after for table, path in asset.locate_parts(snapshot).items()}
        module = import_module(f"dagster_project.analysis.{self.module}")
        compute: Callable[[Sources], Rows] = getattr(module, f"compute_{self.name}")
        rows, inputs = compute(replace(work.sources, parts=read)), self.build_inputs(snapshot) or {}
        folder = _locate_folder(snapshot)
        remove_others(folder, inputs)
        with use_scheduler(select_scheduler(work.study) if self.parallel else "threads"):
            write_parts(folder, self.tables, rows, inputs, read_versions())


def _locate_folder(snapshot: Snapshot) -> LocalPlace:
    """The folder of a study's parts."""
    return LocalPlace(snapshot.home.parts(snapshot.name))


@cache
def read_versions() -> dict[str, str]:
    """The versions of ``COMPUTED_BY``."""
    return {library: metadata.version(library) for library in COMPUTED_BY}


def check_tables(snapshot: Snapshot, assets: tuple[Asset, ...]) -> None:
    """Refuse to read tables of these assets that are missing, or not made from the study's metrics and settings."""
    for asset in assets:
        if asset.explain_staleness(snapshot):
            raise UserError(
                f"The tables of '{asset.name}' in {snapshot.home.parts(snapshot.name)} are missing, damaged or "
                f"made from other metrics; run: attention-geometry run {snapshot.name}"
            )
