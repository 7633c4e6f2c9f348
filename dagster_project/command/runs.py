"""Running assets from the command line: in this process, with the same records as from the web UI.

Holds ``run_study``, ``run_assets`` and ``run_report``.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from dagster_project.study.home import Home
from dagster_project.study.studies import find_study
from storage.errors import UserError

logger = logging.getLogger(__name__)

QUIET: dict[str, Any] = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""Run configuration that keeps Dagster's own event log off the terminal; the records hold all of it."""


def run_study(home: Home, name: str, *, fresh: bool) -> None:
    """Materialise all assets of a study.

    Raises
    ------
    UserError
        If the study is unknown, a setting cannot be met, or a blocking check finds a violation.
    """
    home.prepare()
    with home.without_stores(name) if fresh else nullcontext():
        _materialise(home, name)


def run_assets(home: Home, name: str, assets: Sequence[str], tags: Mapping[str, str]) -> None:
    """Materialise some assets of a study; tensors that cannot be continued are replaced.

    Raises
    ------
    UserError
        As ``run_study``.
    """
    home.prepare()
    _materialise(home, name, assets, run_config=replacing(assets), tags=tags)


def replacing(assets: Sequence[str]) -> dict[str, Any]:
    """Run configuration that lets a run of these assets replace tensors, if they are among them."""
    return {"ops": {"tensors": {"config": {"replace": True}}}} if "tensors" in assets else {}


def run_report(home: Home, name: str) -> None:
    """Materialise the report of a study that is landed.

    Raises
    ------
    UserError
        If the study is unknown or not landed.
    """
    find_study(home, name)
    home.prepare()
    _materialise(home, name, ["report"])


def _materialise(
    home: Home,
    name: str,
    assets: Sequence[str] | None = None,
    *,
    run_config: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
) -> None:
    """Run the job ``study``, or some of its assets, for one partition, and wait."""
    import dagster as dg
    from dagster._core.errors import (  # Dagster exports no names for them
        DagsterAssetCheckFailedError,
        DagsterExecutionInterruptedError,
    )
    from dagster._core.utils import make_new_run_id
    from sqlalchemy.exc import OperationalError

    from dagster_project.definitions import defs
    from dagster_project.records.registration import bury_dead_runs, living_run, register_studies, use_instance

    try:
        run_id = make_new_run_id()
        with use_instance(home, in_process=True) as instance, living_run(home, run_id) as living:
            register_studies(instance, home)
            bury_dead_runs(instance, home)
            defs().resolve_job_def("study").execute_in_process(
                instance=instance,
                run_id=run_id,
                partition_key=name,
                asset_selection=None if assets is None else [dg.AssetKey(asset) for asset in assets],
                run_config={**QUIET, **(run_config or {})},
                tags={**living, **(tags or {})},
            )
    except DagsterAssetCheckFailedError as error:
        found = " ".join(str(error).split())
        msg = f"Study '{name}' stopped at a check: {found}; look at the run with `attention-geometry ui`"
        raise UserError(msg) from error
    except DagsterExecutionInterruptedError as error:
        raise KeyboardInterrupt from error
    except OperationalError as error:
        msg = f"Dagster's records in {home.dagster} cannot be written ({error.orig}); make room there and run again"
        raise UserError(msg) from error
