"""Assets between metrics and warehouse: each computes a few small tables from the stores of a study."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
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
    list_summary_paths,
)
from dagster_project.study.home import Home
from dagster_project.study.settings import AnalysisSettings
from reports.findings.numbers import count
from storage.errors import UserError
from storage.files.places import LocalPlace
from storage.files.staging import remove_leftovers

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

    Parameters
    ----------
    name
        Its name.
    module
        The module of ``dagster_project.analysis`` whose function ``compute_NAME`` yields the rows of its tables; it is
        imported when they are computed.
    about
        What the asset is, in a sentence.
    tables
        The tables.
    version
        Version of the numbers; raised when their computation changes, so that they are rebuilt.
    after
        The assets whose tables it reads.
    settings
        The fields of the analysis settings that decide the numbers.
    reads
        The arrays of the tensor store that it reads.
    parallel
        Whether it has tasks for ``dagster_project.analysis.cluster.run_in_parallel``, so that it can use a cluster.
    kinds, pool
        As ``Asset.kinds`` and ``Asset.pool``.
    is_wanted
        Whether the analysis settings of a study ask for it.
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
        places=step.list_places,
        settings=tuple(f"analysis.{field}" for field in settings),
        reads=reads,
        tables=tables,
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

    def list_paths(self, home: Home, study: str) -> dict[str, Path]:
        """The Parquet file of each table."""
        return list_summary_paths(home, study, self.tables)

    def list_places(self, home: Home, study: str) -> tuple[LocalPlace, ...]:
        """The Parquet files, as places."""
        return tuple(LocalPlace(path) for path in self.list_paths(home, study).values())

    def build_provenance(self, analysis: AnalysisSettings, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """What the tables are made from, as JSON: versions, settings, and the provenance of tensors and metrics."""
        return {
            "step": self.name,
            "versions": {asset.name: int(asset.version()) for asset in self.after} | {self.name: self.version},
            "settings": analysis.model_dump(mode="json", include=set(self.settings)),
            "metrics": {part: value for part, value in metrics.items() if part not in {"versions", "analysis"}},
        }

    def build_expected(self, snapshot: Snapshot) -> Provenance | None:
        """As ``Asset.expected``."""
        if snapshot.metrics is None:
            return None
        return self._parse_provenance(self.build_provenance(snapshot.study.analysis, snapshot.metrics.provenance))

    def read_recorded(self, snapshot: Snapshot) -> Provenance | str:
        """As ``Asset.recorded``; of several tables, the first that differs from what is expected."""
        from storage.files.tables import read_table_provenance

        paths = self.list_paths(snapshot.home, snapshot.name).values()
        if not all(path.exists() for path in paths):
            return MISSING
        records = [read_table_provenance(path) for path in paths]
        if any(made is None for made in records):
            return UNREADABLE
        recorded, expected = (
            [self._parse_provenance(made) for made in records if made is not None],
            self.build_expected(snapshot),
        )
        return next((made for made in recorded if made != expected), recorded[0])

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

        Raises
        ------
        UserError
            If another process works on the study, or inputs are incomplete or stale; or as for
            ``dagster_project.analysis.cluster.use_scheduler``.
        """
        from storage.files.tables import count_rows, write_tables

        started, home, name = time.monotonic(), work.home, work.name
        if not self.is_wanted(work.study.analysis):
            return AssetResult({"dagster/row_count": 0})
        with work.lock():
            sources, paths = work.sources, self.list_paths(home, name)
            for place in (home.summaries(name), *paths.values()):
                remove_leftovers(place)
            snapshot = work.take_snapshot()
            snapshot.metrics = sources.metrics
            if work.force or not self._is_current(snapshot):
                check_tables(snapshot, self.after)
                made_from = self.build_provenance(work.study.analysis, sources.metrics.provenance)
                with use_scheduler(select_scheduler(work.study) if self.parallel else "threads"):
                    write_tables(paths, self._compute(sources), made_from, read_versions())
            rows = {table: count_rows(path) for table, path in paths.items()}
        seconds, what = time.monotonic() - started, self.name.replace("_", " ")
        counts = {f"rows of {table}": count for table, count in rows.items()}
        return AssetResult(
            {
                "path": home.summaries(name),
                "dagster/row_count": sum(rows.values()),
                **counts,
                "seconds": seconds,
            },
            message=f"{what}, {self._describe(paths, rows)} ({seconds:.1f} s)",
        )

    def _compute(self, sources: "Sources") -> "Rows":
        """The rows of the tables."""
        module = import_module(f"dagster_project.analysis.{self.module}")
        rows: Rows = getattr(module, f"compute_{self.name}")(sources)
        return rows

    def _describe(self, paths: Mapping[str, Path], rows: Mapping[str, int]) -> str:
        """The finding of the asset in a few words; the number of rows if it has none."""
        from storage.warehouse.findings import read_finding

        finding = read_finding(self.name, {table: path for table, path in paths.items() if rows[table]})
        return finding or count(sum(rows.values()), "row")

    def _is_current(self, snapshot: Snapshot) -> bool:
        return self.read_recorded(snapshot) == self.build_expected(snapshot)


@cache
def read_versions() -> dict[str, str]:
    """The versions of ``COMPUTED_BY``."""
    return {library: metadata.version(library) for library in COMPUTED_BY}


def check_tables(snapshot: Snapshot, assets: tuple[Asset, ...]) -> None:
    """Refuse to read tables that are missing or stale.

    Raises
    ------
    UserError
        If the tables of one of these assets are not made from the study's metrics and settings.
    """
    for asset in assets:
        if asset.explain_staleness(snapshot):
            msg = (
                f"The tables of '{asset.name}' in {snapshot.home.summaries(snapshot.name)} are missing, damaged or "
                f"made from other metrics; run: attention-geometry run {snapshot.name}"
            )
            raise UserError(msg)
