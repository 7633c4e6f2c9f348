"""The resources: the data root, in which a run holds its lock and its study while its process lives.

Add other resources of assets here.
https://docs.dagster.io/guides/build/external-resources
"""

import atexit
from contextlib import ExitStack
from pathlib import Path

import dagster as dg
from pydantic import PrivateAttr

from dagster_project.records.registration import LOCK_TAG, PARTITION_TAG, hold_run_lock
from dagster_project.study.home import Home

_LIVING = ExitStack()
"""Locks of the runs of this process."""

atexit.register(_LIVING.close)


class DataRoot(dg.ConfigurableResource[None]):
    """The data root as a resource."""

    path: str = ""
    """The folder; if empty, the one that ``ATTENTION_GEOMETRY_HOME`` names, else ``./data``."""

    _kept: ExitStack = PrivateAttr(default_factory=ExitStack)
    """The reservation of the study by this run."""

    def home(self) -> Home:
        """The data root, created if it does not exist.

        Raises
        ------
        UserError
            If it cannot be written.
        """
        home = Home(Path(self.path).expanduser().resolve()) if self.path else Home.from_environment()
        home.prepare()
        return home

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Hold the lock of a run, and reserve its study, while its process lives; a killed run blocks no other.

        A run of the command line has its lock before it begins. The lock is not released when resources are torn
        down, because the run ends only later.
        """
        run, instance = context.run, context.instance
        if run is not None and instance is not None and run.tags.get(LOCK_TAG) != run.run_id:
            home = self.home()
            if PARTITION_TAG in run.tags:
                self._kept.enter_context(home.reserve(run.tags[PARTITION_TAG]))
            instance.add_run_tags(run.run_id, _LIVING.enter_context(hold_run_lock(home, run.run_id)))

    def teardown_for_execution(self, context: dg.InitResourceContext) -> None:  # noqa: ARG002 (Dagster's signature)
        """Release the study."""
        self._kept.close()
