"""Making assets of a study: one by itself, or its small tables as one graph of Dask in threads."""

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial

from dagster_project.analysis.cluster import count_threads, select_scheduler
from dagster_project.assets.asset import Asset, AssetResult, Work
from storage.warehouse.jobs import compute_jobs

logger = logging.getLogger(__name__)

AT_ONCE = 4
"""Most tables that are made at a time: as many take long, the fits of Assumptions 2 and 3, separability, temperature.
They share the threads that compute."""


def make_each(work: Work, assets: Sequence[Asset], force: Collection[str] = ()) -> Iterator[tuple[Asset, AssetResult]]:
    """Make assets of a study, each after its parents, and yield each with its result.

    Several assets are tables that are computed from the stores, which are opened once.

    Parameters
    ----------
    work
        The study.
    assets
        One asset, or several of small tables.
    force
        Names of those that are rebuilt even if they are current.

    Raises
    ------
    UserError
        As for ``Asset.make``. Assets that were made before are yielded first.
    """
    if any(asset.tables or asset.name == "selection_metrics" for asset in assets):
        from attention_geometry.compilation import tell_of_compilation

        tell_of_compilation()
    if len(assets) == 1:
        yield assets[0], _make(replace(work, force=assets[0].name in force), assets[0])
        return
    made: list[tuple[Asset, AssetResult]] = []
    failure = None
    try:
        _make_tables(work, assets, force, made)
    except Exception as error:  # noqa: BLE001 (raised below)
        failure = error
    yield from made
    if failure is not None:
        raise failure


def _make(work: Work, asset: Asset) -> AssetResult:
    """Make an asset and tell of it."""
    result = asset.make(work)
    if result.message is not None:
        logger.info("%s: %s", work.name, result.message)
    return result


def _make_tables(
    work: Work, assets: Sequence[Asset], force: Collection[str], made: list[tuple[Asset, AssetResult]]
) -> None:
    """Make assets of small tables under one lock, and append each to ``made``; on a cluster one after the other."""
    import dask
    from tqdm.contrib.logging import logging_redirect_tqdm

    threads = min(AT_ONCE, count_threads()) if select_scheduler(work.study) == "threads" else 1
    with work.lock(), logging_redirect_tqdm(), dask.config.set(num_workers=max(1, count_threads() // threads)):
        locked = replace(work, is_locked=True)
        forced = replace(locked, force=True)

        def make(asset: Asset) -> None:
            made.append((asset, _make(forced if asset.name in force else locked, asset)))

        jobs = {asset.name: partial(make, asset) for asset in assets}
        after = {asset.name: asset.parents for asset in assets}
        compute_jobs(jobs, after, threads=threads, what="tables", unit="asset")
