"""All assets of a study, and how they are made."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import count

from dagster_project.analysis.cluster import select_scheduler
from dagster_project.analysis.devices import find_cuda_device
from dagster_project.analysis.processes import compute_in_processes, is_worthwhile
from dagster_project.assets.asset import Asset, AssetResult, Work
from dagster_project.assets.landing import CLAIMS, WAREHOUSE
from dagster_project.assets.metrics import SELECTION_METRICS
from dagster_project.assets.report import REPORT
from dagster_project.assets.summaries import SUMMARIES
from dagster_project.assets.tensors import TENSOR_STORE
from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from dagster_project.study.studies import find_study

logger = logging.getLogger(__name__)

ASSETS: tuple[Asset, ...] = (
    TENSOR_STORE,
    SELECTION_METRICS,
    *SUMMARIES,
    WAREHOUSE,
    CLAIMS,
    REPORT,
)
"""The assets, each after its parents."""

STEPS = {record.name: ("effects" if record.pool else "tables") if record.tables else record.name for record in ASSETS}
"""Dagster's asset of each record: small tables are one, and those that need the model another."""


def select_assets(study: Study) -> tuple[Asset, ...]:
    """The assets that a study asks for, each after its parents."""
    return tuple(asset for asset in ASSETS if asset.is_wanted(study))


def find_asset(name: str) -> Asset:
    """The asset of this name; ``KeyError`` if there is none."""
    return {asset.name: asset for asset in ASSETS}[name]


def prepare_work(home: Home, study: str, *, replace: bool = False) -> Work:
    """The study that an asset is made for, with its settings and all assets; ``UserError`` if there is none."""
    return Work(home, study, find_study(home, study), ASSETS, replace=replace)


def make_each(work: Work, assets: Sequence[Asset], force: Collection[str] = ()) -> list[AssetResult]:
    """Make assets of a study, each after its parents, and return their results.

    ``assets`` are one asset, or several of tables; those named by ``force`` are rebuilt even if they are current. Small
    tables are made from stores that are opened once. What was made before one raises ``UserError`` stays.
    """
    if any(asset.tables or asset.name == "selection_metrics" for asset in assets):
        from attention_geometry.compilation import tell_of_compilation

        tell_of_compilation()
    if len(assets) == 1 or assets[0].pool is not None:
        return [_tell(work, asset.make(replace(work, force=asset.name in force))) for asset in assets]
    return _make_tables(work, assets, force)


def _tell(work: Work, result: AssetResult) -> AssetResult:
    """Tell of an asset that has been made."""
    if result.message is not None:
        logger.info("%s: %s", work.name, result.message)
    return result


def _make_tables(work: Work, assets: Sequence[Asset], force: Collection[str]) -> list[AssetResult]:
    """Make assets of small tables under one lock: of a large study in processes, else one after another.

    One process uses a CUDA device, or a cluster.
    """
    from tqdm import tqdm
    from tqdm.contrib.logging import logging_redirect_tqdm

    locked, progress = replace(work, is_locked=True), partial(tqdm, desc="tables", unit="asset", disable=None)
    with work.lock(), logging_redirect_tqdm():
        sources = locked.sources
        is_here = select_scheduler(work.study) == "threads" and find_cuda_device(sources.tensors.provenance) is None
        if is_here and is_worthwhile(sources.metrics.count_selections()):
            make = partial(_make_table, next(_CALLS), work.home, work.name, work.study)
            tasks = {asset.name: partial(make, asset.name, forced=asset.name in force) for asset in assets}
            after = {asset.name: tasks.keys() & {*asset.parents} for asset in assets}
            with progress(total=len(assets)) as bar:
                return compute_in_processes(
                    tasks, lambda made: (_tell(work, made), bar.update()), after, what=f"tables of '{work.name}'"
                )
        forced = replace(locked, force=True)  # two, not one for each asset, since each opens the stores
        with progress(assets) as bar:
            return [_tell(work, asset.make(forced if asset.name in force else locked)) for asset in bar]


_CALLS = count()
"""Numbers of the calls that made tables in processes: each process opens the stores of a study again for each."""


def _make_table(call: int, home: Home, name: str, study: Study, asset: str, *, forced: bool) -> AssetResult:
    """Make an asset of small tables in a process."""
    work = _open_study(call, home, name, study)
    return find_asset(asset).make(replace(work, force=True) if forced else work)


@lru_cache(1)
def _open_study(_call: int, home: Home, name: str, study: Study) -> Work:
    """The study of a process, whose stores it opens once for each call."""
    return Work(home, name, study, ASSETS, is_locked=True)
