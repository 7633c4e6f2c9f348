"""Running assets from the command line: in this process, with the same records as from the web UI."""

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from dagster_project.analysis.memory import check_start
from dagster_project.analysis.processes import expect
from dagster_project.assets.asset import UNREADABLE
from dagster_project.assets.catalogue import ASSETS, select_assets
from dagster_project.assets.families import explain_stale_family, has_members
from dagster_project.assets.tensors import TENSOR_STORE, check_inputs
from dagster_project.command.process import start_tracker
from dagster_project.study.families import Family
from dagster_project.study.home import Home
from dagster_project.study.settings import describe_controls, find_twin_name
from dagster_project.study.studies import (
    check_twin,
    expand_names,
    find_study,
    list_readable_families,
    list_readable_studies,
)
from dagster_project.upkeep.plan import (
    Entry,
    Report,
    find_stale_assets,
    plan,
    select_twin_assets,
    write,
)
from storage.errors import DerivedDamageError, UserError, format_error

logger = logging.getLogger(__name__)

METRICS = "selection_metrics"
"""The asset that is rebuilt if its store is damaged."""

QUIET: dict[str, Any] = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""Run configuration that keeps Dagster's own event log off the terminal; the records hold all of it."""


def run_study(home: Home, name: str, *, fresh: bool = False, force: str | None = None) -> None:
    """Make what is missing or stale in a study, and first in its twin; tensors that cannot be continued are replaced.

    For the twin these are its tables; its page is made only if it exists already. If nothing is missing or stale, no
    file is written, and neither Dagster nor PyTorch is loaded. With ``fresh`` everything is rebuilt, as if nothing were
    stored; what is published stays until it is replaced. ``force``: an asset of the study to rebuild, with everything
    that depends on it, even if it is current.

    ``UserError`` if the study, its twin or the asset is unknown, another process runs the study, a setting cannot be
    met, or a blocking check finds a violation.
    """
    study = find_study(home, name)
    known = [asset.name for asset in select_assets(study)]
    if force is not None and force not in known:
        raise UserError(f"Study '{name}' asks for no asset '{force}'; its assets are {', '.join(known)}")
    check_twin(home, name, study)
    if not home.tensors(name).exists() and (controls := describe_controls(name, study)):
        logger.info("%s: %s", name, controls)
    if (twin := find_twin_name(name, study)) is not None:
        _rebuild_stale(home, twin, select_twin_assets(home, twin))
    if fresh:
        run_assets(home, name, known, force="warehouse", fresh=True)
    else:
        _rebuild_stale(home, name, known, force)


def _rebuild_stale(home: Home, name: str, needed: Sequence[str], force: str | None = None) -> None:
    """Log which of the needed assets of a study are current, and make the others.

    If the metrics turn out to be damaged, they and everything that depends on them are rebuilt as well.
    """
    find_stale = partial(find_stale_assets, home, name, find_study(home, name), needed=needed)
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


def _describe_current(known: Sequence[str], stale: Sequence[str]) -> str:
    """Describe in one line which assets are current, by naming those or the others, whichever are fewer."""
    if not stale:
        return f"all {len(known)} assets are current"
    if len(stale) == len(known):
        return f"makes all {len(known)} assets"
    if len(stale) < len(known) / 2:
        return f"current: all but {', '.join(stale)}"
    return f"current: {', '.join(asset for asset in known if asset not in stale)}"


def run_family(home: Home, family: Family, *, fresh: bool = False, force: str | None = None) -> dict[str, str]:
    """Run the members of a family in order, each as ``run_study``, and make its tables and its page.

    A member that fails does not stop the others; returns what was told of each. ``UserError`` if the tables of the
    family cannot be made.
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
        _run_family(home, family, {})
    return failed


def refresh(home: Home, names: Sequence[str] = (), *, dry_run: bool = False) -> Report:
    """Rebuild what is stale in all studies and families, or in those named, one after the other in this process.

    The name of a family stands for its members and for itself. A study that fails does not stop the others. The report
    is written before the first run and after each. ``UserError`` if a study is named that does not exist.
    """
    unreadable = list_readable_studies(home)[1] if names else {}
    for name in set(expand_names(home, names) if names else ()) - unreadable.keys():
        find_study(home, name)
    from dagster_project.records.opening import open_records

    home.prepare()
    with open_records(home) as instance:
        report = plan(home, instance, "command", names)
    if dry_run:
        return report
    write(home, report)
    for index, entry in enumerate(report.entries):
        if entry.state == "stale":
            entries = list(report.entries)
            entries[index] = _run_entry(home, report, entry)
            report = replace(report, entries=tuple(entries))
            write(home, report)
    return report


def _run_entry(home: Home, report: Report, entry: Entry) -> Entry:
    """Rebuild what is stale in one study, or the tables and the page of a family."""
    logger.info("%s: %s", entry.study, entry.reasons)
    started = time.monotonic()
    try:
        if family := list_readable_families(home).get(entry.study):
            _run_family(home, family, report.tags(entry))
        else:
            run_assets(home, entry.study, list(entry.why), report.tags(entry))
        outcome, message = "done", ""
    except Exception as error:  # noqa: BLE001 (the other studies are still refreshed)
        outcome, message = "failed", format_error(error)
        logger.warning("%s: %s", entry.study, message)
    return replace(entry, outcome=outcome, message=message, seconds=time.monotonic() - started)


def run_assets(
    home: Home,
    name: str,
    assets: Sequence[str],
    tags: Mapping[str, str] | None = None,
    *,
    force: str | None = None,
    fresh: bool = False,
) -> None:
    """Materialise some assets of a study; tensors that cannot be continued are replaced, with ``fresh`` all stores.

    Inputs are refused before a run is recorded. Errors as ``run_study``.
    """
    home.prepare()
    with ExitStack() as stack:
        stack.enter_context(home.reserve(name))
        if fresh:
            stack.enter_context(home.set_stores_aside(name))
        check_start()
        start_tracker()
        if any(asset.tables or asset.name == METRICS for asset in ASSETS if asset.name in assets):
            expect(find_study(home, name))
        if TENSOR_STORE.name in assets:
            stack.enter_context(check_inputs(home, name))
        from dagster_project.defs.assets import configure_assets

        _execute(home, name, assets, job="study", config=configure_assets(assets, force), tags=tags or {})


def _run_family(home: Home, family: Family, tags: Mapping[str, str]) -> None:
    """Materialise the tables and the page of a family."""
    home.prepare()
    with home.reserve(family.name):
        _execute(home, family.name, ["family"], job="families", config={}, tags=tags)


def _execute(
    home: Home, name: str, assets: Sequence[str], *, job: str, config: Mapping[str, Any], tags: Mapping[str, str]
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
                run_config={**QUIET, **config},
                tags={**living, **tags},
            )
    except DagsterAssetCheckFailedError as error:
        message = " ".join(str(error).split())
        raise UserError(f"Study '{name}' failed a check: {message}; see the run in `attention-geometry ui`") from error
    except DagsterExecutionInterruptedError as error:
        raise KeyboardInterrupt from error
