"""Making assets of a study: one by itself, or its small tables as one graph of Dask in threads."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

from dagster_project.analysis.cluster import count_threads, select_scheduler
from dagster_project.assets.asset import Asset, AssetResult, Work
from storage.warehouse.jobs import compute_jobs

logger = logging.getLogger(__name__)

AT_ONCE = 4
"""Most tables that are made at a time: as many take long, the fits of Assumptions 2 and 3, separability, temperature.
They share the threads that compute."""


def make_each(work: Work, assets: Sequence[Asset], force: Collection[str] = ()) -> list[AssetResult]:
    """Make assets of a study, each after its parents, and return their results.

    Small tables are made at once from stores that are opened once; those that need the model, one after the other.

    Parameters
    ----------
    work
        The study.
    assets
        One asset, or several of tables.
    force
        Names of those that are rebuilt even if they are current.

    Raises
    ------
    UserError
        As for ``Asset.make``; what was made before stays.
    """
    if any(asset.tables or asset.name == "selection_metrics" for asset in assets):
        from attention_geometry.compilation import tell_of_compilation

        tell_of_compilation()
    if len(assets) == 1 or assets[0].pool is not None:
        return [_make(replace(work, force=asset.name in force), asset) for asset in assets]
    return _make_tables(work, assets, force)


def _make(work: Work, asset: Asset) -> AssetResult:
    """Make an asset and tell of it."""
    result = asset.make(work)
    if result.message is not None:
        logger.info("%s: %s", work.name, result.message)
    return result


def _make_tables(work: Work, assets: Sequence[Asset], force: Collection[str]) -> list[AssetResult]:
    """Make assets of small tables under one lock; on a cluster one after the other."""
    import dask
    from tqdm.contrib.logging import logging_redirect_tqdm

    threads = min(AT_ONCE, count_threads()) if select_scheduler(work.study) == "threads" else 1
    with work.lock(), logging_redirect_tqdm(), dask.config.set(num_workers=max(1, count_threads() // threads)):
        locked = replace(work, is_locked=True)
        forced = replace(locked, force=True)
        jobs = {asset.name: partial(_make, forced if asset.name in force else locked, asset) for asset in assets}
        after = {asset.name: asset.parents for asset in assets}
        return [*compute_jobs(jobs, after, threads=threads, what="tables", unit="asset").values()]
