"""The resources: the data root, in which a run holds its lock and its study while its process lives.

Add other resources of assets here.
https://docs.dagster.io/guides/build/external-resources
"""

import atexit
import time
from collections.abc import Iterator
from contextlib import ExitStack

import dagster as dg
from dagster._core.execution.plan.instance_concurrency_context import (
    InstanceConcurrencyContext,  # Dagster exports no name for it
)

from dagster_project.records.registration import LOCK_TAG, PARTITION_TAG, hold_run_lock, mark_dead_runs
from dagster_project.study.home import Home
from dagster_project.study.studies import check_partition

_LIVING = ExitStack()
"""Locks of the runs of this process."""

atexit.register(_LIVING.close)


def _plan_next_claim(context: InstanceConcurrencyContext) -> float:
    """Take runs that died off the queue of a pool, and return the seconds until one that waits asks again."""
    if context.has_pending_claims():
        mark_dead_runs(context._instance, Home.from_environment())
    return max(0.0, min(context._pending_timeouts.values(), default=0.0) - time.time())


# Dagster 1.13 takes the smallest of these and 0, so that a run which waits asks again at once and keeps a core busy
setattr(InstanceConcurrencyContext, "interval_to_next_pending_claim_check", _plan_next_claim)  # noqa: B010


@dg.resource(config_schema={})
def data_root(context: dg.InitResourceContext) -> Iterator[Home]:
    """Provide the data root that ``ATTENTION_GEOMETRY_HOME`` names; no run configuration can name another.

    A run holds its lock, and reserves its study, while its process lives; a killed run blocks no other. A run of the
    command line has its lock before it begins. The lock is not released here, because the run ends only later.

    ``UserError`` if the partition of the run is no study or family, the data root cannot be written, or another process
    runs the study.
    """
    home = Home.from_environment()
    run, instance = context.run, context.instance
    if run is not None and PARTITION_TAG in run.tags:
        check_partition(home, run.tags[PARTITION_TAG])
    home.prepare()
    with ExitStack() as kept:
        if run is not None and instance is not None and run.tags.get(LOCK_TAG) != run.run_id:
            if PARTITION_TAG in run.tags:
                kept.enter_context(home.reserve(run.tags[PARTITION_TAG]))
            instance.add_run_tags(run.run_id, _LIVING.enter_context(hold_run_lock(home, run.run_id)))
        yield home


no_values = dg.IOManagerDefinition(dg.mem_io_manager.resource_fn, config_schema={})
"""Stands for Dagster's own I/O manager, whose folder a run could choose: assets hand over no values."""
