"""Running assets from the command line: in this process, with the same records as from the web UI."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from dagster_project.analysis.memory import check_start
from dagster_project.assets.asset import UNREADABLE
from dagster_project.assets.catalogue import ASSETS, select_assets
from dagster_project.assets.families import explain_stale_family, has_members
from dagster_project.assets.tensors import TENSOR_STORE, check_inputs
from dagster_project.command.interrupts import start_tracker
from dagster_project.study.families import Family
from dagster_project.study.home import Home
from dagster_project.study.studies import check_twin, find_study
from dagster_project.study.twins import describe_controls, find_twin_name
from dagster_project.upkeep.freshness import find_stale_assets, find_stale_of_twin, select_twin_assets
from storage.errors import DerivedDamageError, UserError, format_error

logger = logging.getLogger(__name__)

METRICS = "selection_metrics"
"""The asset that is rebuilt if its store is damaged."""

QUIET: dict[str, Any] = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""Run configuration that keeps Dagster's own event log off the terminal; the records hold all of it."""


def run_study(home: Home, name: str, *, fresh: bool = False, force: str | None = None) -> list[str]:
    """Make what is missing or stale in a study, and first in its twin; tensors that cannot be continued are replaced.

    For the twin these are its tables; its page is made only if it exists already. If nothing is missing or stale, no
    file is written, and neither Dagster nor PyTorch is loaded.

    Parameters
    ----------
    fresh
        Whether everything is rebuilt, as if nothing were stored; what is published stays until it is replaced.
    force
        An asset to rebuild, with everything that depends on it, even if it is current; not of the twin.

    Returns
    -------
    list
        The assets of the study that were made.

    Raises
    ------
    UserError
        If the study, its twin or the asset is unknown, another process runs the study, a setting cannot be met, or a
        blocking check finds a violation.
    """
    study = find_study(home, name)
    known = [asset.name for asset in select_assets(study)]
    if force is not None and force not in known:
        raise UserError(f"Study '{name}' asks for no asset '{force}'; its assets are {', '.join(known)}")
    check_twin(home, name, study)
    if not home.tensors(name).exists() and (controls := describe_controls(name, study)):
        logger.info("%s: %s", name, controls)
    if (twin := find_twin_name(name, study)) is not None:
        _rebuild_stale(home, twin, select_twin_assets(home, twin), partial(find_stale_of_twin, home, twin))
    if fresh:
        home.prepare()
        with home.reserve(name), home.set_stores_aside(name):
            _materialise(home, name, known, force="warehouse")
        return known
    return _rebuild_stale(home, name, known, partial(find_stale_assets, home, name, study), force)


def run_family(home: Home, family: Family, *, fresh: bool = False, force: str | None = None) -> dict[str, str]:
    """Run the members of a family in order, each as ``run_study``, and make its tables and its page.

    A member that fails does not stop the others.

    Returns
    -------
    dict
        What was told of each member that failed.

    Raises
    ------
    UserError
        If the tables of the family cannot be made.
    """
    failed = {}
    for number, name in enumerate(family.members, 1):
        logger.info("%s: %d of %d, %s", family.name, number, len(family.members), name)
        try:
            run_study(home, name, fresh=fresh, force=force)
        except Exception as error:  # noqa: BLE001 (the other members are still run)
            failed[name] = format_error(error)
            logger.warning("%s: %s", name, failed[name])
    if has_members(home, family) and explain_stale_family(home, family):
        run_family_asset(home, family)
    return failed


def run_family_asset(home: Home, family: Family, tags: Mapping[str, str] | None = None) -> None:
    """Materialise the tables and the page of a family.

    Raises
    ------
    UserError
        If another process makes them, no member has landed, or they cannot be made.
    """
    home.prepare()
    with home.reserve(family.name):
        _execute(home, family.name, ["family"], job="families", tags=tags)


def _rebuild_stale(
    home: Home,
    name: str,
    needed: Sequence[str],
    find_stale: Callable[[str | None], Mapping[str, str]],
    force: str | None = None,
) -> list[str]:
    """Log which of the needed assets of a study are current, and make the others; return their names.

    If the metrics turn out to be damaged, they and everything that depends on them are rebuilt as well.

    Raises
    ------
    UserError
        As ``run_study``.
    """
    reasons = find_stale(force)
    logger.info("%s: %s", name, _describe_current(needed, list(reasons)))
    for asset in ASSETS:
        if reasons.get(asset.name) == UNREADABLE:
            logger.warning("%s: %s cannot be read; rebuilding it", name, ", ".join(map(str, asset.places(home, name))))
    if reasons:
        try:
            run_assets(home, name, list(reasons), force=force)
        except DerivedDamageError as error:
            logger.warning("%s: %s; rebuilding it", name, str(error).partition(";")[0])
            run_assets(home, name, list(find_stale(METRICS)), force=METRICS)
    return list(reasons)


def _describe_current(known: Sequence[str], stale: Sequence[str]) -> str:
    """Describe in one line which assets are current, by naming those or the others, whichever are fewer."""
    if not stale:
        return f"all {len(known)} assets are current"
    if len(stale) == len(known):
        return f"makes all {len(known)} assets"
    if len(stale) < len(known) / 2:
        return f"current: all but {', '.join(stale)}"
    return f"current: {', '.join(asset for asset in known if asset not in stale)}"


def run_assets(
    home: Home, name: str, assets: Sequence[str], tags: Mapping[str, str] | None = None, *, force: str | None = None
) -> None:
    """Materialise some assets of a study; tensors that cannot be continued are replaced.

    Raises
    ------
    UserError
        As ``run_study``.
    """
    home.prepare()
    with home.reserve(name):
        _materialise(home, name, assets, tags=tags, force=force)


def run_report(home: Home, name: str) -> None:
    """Materialise the report of a study that is landed.

    Raises
    ------
    UserError
        If the study is unknown or not landed.
    """
    find_study(home, name)
    run_assets(home, name, ["report"])


def _materialise(
    home: Home,
    name: str,
    assets: Sequence[str],
    *,
    tags: Mapping[str, str] | None = None,
    force: str | None = None,
) -> None:
    """Run some assets of the job ``study`` for one partition, and wait; inputs are refused before a run is recorded."""
    check_start()
    start_tracker()
    with ExitStack() as stack:
        if TENSOR_STORE.name in assets:
            stack.enter_context(check_inputs(home, name))
        _execute(home, name, assets, config=partial(_configure, assets, force), tags=tags)


def _configure(assets: Sequence[str], force: str | None) -> dict[str, Any]:
    """Run configuration of some assets of a study."""
    from dagster_project.defs.assets import configure_assets

    return configure_assets(assets, force)


def _execute(
    home: Home,
    name: str,
    assets: Sequence[str],
    *,
    job: str = "study",
    config: Callable[[], Mapping[str, Any]] = dict,
    tags: Mapping[str, str] | None,
) -> None:
    """Record a run of some assets of a partition and execute it in this process."""
    from dagster._core.errors import (  # Dagster exports no names for them
        DagsterAssetCheckFailedError,
        DagsterExecutionInterruptedError,
    )
    from dagster._core.utils import make_new_run_id

    from dagster_project.definitions import defs
    from dagster_project.defs.assets import select_steps
    from dagster_project.records.opening import open_records
    from dagster_project.records.registration import hold_run_lock

    try:
        run_id = make_new_run_id()
        with open_records(home) as instance, hold_run_lock(home, run_id) as living:
            defs().resolve_job_def(job).execute_in_process(
                instance=instance,
                run_id=run_id,
                partition_key=name,
                asset_selection=select_steps(assets),
                run_config={**QUIET, **config()},
                tags={**living, **(tags or {})},
            )
    except DagsterAssetCheckFailedError as error:
        message = " ".join(str(error).split())
        raise UserError(f"Study '{name}' failed a check: {message}; see the run in `attention-geometry ui`") from error
    except DagsterExecutionInterruptedError as error:
        raise KeyboardInterrupt from error
