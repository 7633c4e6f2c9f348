"""The assets of a study, made by calling their records, without Dagster; and records as if their code had changed."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dagster_project.assets.asset import Asset, AssetResult, Work
from dagster_project.assets.catalogue import ASSETS, find_asset
from dagster_project.assets.landing import land_study
from dagster_project.assets.summaries import SUMMARIES
from dagster_project.assets.tensors import extract_tensors
from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from dagster_project.study.studies import find_study
from extract.extraction import ExtractionReport
from storage.files.parts import read_part
from storage.files.places import LocalPlace
from storage.warehouse.landing import Landing
from tests.storage.studies import MetricArrays

EFFECTS = ("head_ablation", "sparsified_loss")

NAMES = tuple(asset.name for asset in ASSETS if asset.name not in {"bounds_in_expectation", *EFFECTS})
"""The assets of a study that asks for no simulated heads and no effects, in order."""

TABLES = tuple(asset.name for asset in SUMMARIES)
"""Those that compute small tables."""


def work(home: Home, name: str, study: Study | None = None, **how: bool) -> Work:
    """What assets of a study are made for; without settings, those of its studies file."""
    return Work(home, name, study or find_study(home, name), ASSETS, **how)


def make(
    home: Home, name: str, assets: Iterable[str], study: Study | None = None, **how: bool
) -> dict[str, AssetResult]:
    """Make some assets, in the order given."""
    return {asset: find_asset(asset).make(work(home, name, study, **how)) for asset in assets}


def extract(home: Home, name: str, study: Study | None = None, *, replace: bool = False) -> ExtractionReport:
    """Extract tensors."""
    return extract_tensors(work(home, name, study, replace=replace))


def measure(home: Home, name: str, study: Study | None = None) -> AssetResult:
    """Compute metrics from tensors."""
    return make(home, name, ["selection_metrics"], study)["selection_metrics"]


def measured(made: AssetResult) -> int:
    """How many layers a run has measured."""
    return int(made.metadata["layers measured in this run"])


def open_metrics(home: Home, name: str, study: Study | None = None) -> MetricArrays:
    """What is measured of a study, in whole arrays."""
    return MetricArrays(work(home, name, study).sources.metrics)


def find_measured(home: Home, name: str, table: str, layer: int = 0) -> Path:
    """The only part of a measured table of a layer."""
    (path,) = Path(str(home.metrics(name))).glob(f"layer-{layer:03}-*/{table}.parquet")
    return path


def summarise(
    home: Home, name: str, study: Study | None = None, assets: Iterable[str] = TABLES
) -> dict[str, AssetResult]:
    """Compute the small tables of some assets, or of all."""
    return make(home, name, assets, study)


def land(home: Home, name: str, study: Study | None = None) -> Landing:
    """Land a study, and say what was found."""
    return land_study(work(home, name, study))


def finish(home: Home, name: str, study: Study | None = None) -> None:
    """Make all that follows from the tensors."""
    measure(home, name, study)
    summarise(home, name, study)
    landed = land(home, name, study)
    assert landed.published, landed.violations
    made = make(home, name, ["claims", "report"], study)
    assert made["report"].metadata["charts"] > 0


def find_part(home: Home, name: str, table: str) -> Path:
    """The only part of a small table."""
    (path,) = home.parts(name).glob(f"*/{table}.parquet")
    return path


def rows(home: Home, name: str, table: str) -> list[dict[str, Any]]:
    """The rows of a small table."""
    return [row for batch in read_part(LocalPlace(find_part(home, name, table))) for row in batch.to_pylist()]


@contextmanager
def at_version(name: str, version: int) -> Iterator[Asset]:
    """An asset of small tables as if its code were of another version; other records refer to the same one."""
    asset = find_asset(name)
    step: Any = asset.make
    tables, before = step.__self__, step.__self__.version
    try:
        object.__setattr__(tables, "version", version)  # it is frozen
        yield asset
    finally:
        object.__setattr__(tables, "version", before)
