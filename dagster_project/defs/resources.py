"""The resources: where the data root is, held by a run as long as its process lives.

Add here what assets need from their surroundings.
https://docs.dagster.io/guides/build/external-resources
"""

import atexit
from contextlib import ExitStack
from pathlib import Path

import dagster as dg
from pydantic import PrivateAttr

from dagster_project.records.registration import LOCK_TAG, PARTITION_TAG, living_run
from dagster_project.study.home import Home

_LIVING = ExitStack()
"""Marks of the runs of this process."""

atexit.register(_LIVING.close)


class DataRoot(dg.ConfigurableResource[None]):
    """The data root as a resource."""

    path: str = ""
    """The folder; empty: what the environment variable ``ATTENTION_GEOMETRY_HOME`` names, else ``./data``."""

    _kept: ExitStack = PrivateAttr(default_factory=ExitStack)
    """The study that this run keeps."""

    def home(self) -> Home:
        """The data root, made if need be.

        Raises
        ------
        UserError
            If it cannot be written.
        """
        home = Home(Path(self.path).expanduser().resolve()) if self.path else Home.from_environment()
        home.prepare()
        return home

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Mark a run as living, and keep its study, while its process lives; one that was killed stops no other.

        A run of the command line is marked before it begins. The mark is not let go of when resources are torn down:
        the run ends a moment later.
        """
        run, instance = context.run, context.instance
        if run is not None and instance is not None and run.tags.get(LOCK_TAG) != run.run_id:
            home = self.home()
            if PARTITION_TAG in run.tags:
                self._kept.enter_context(home.running(run.tags[PARTITION_TAG]))
            instance.add_run_tags(run.run_id, _LIVING.enter_context(living_run(home, run.run_id)))

    def teardown_for_execution(self, context: dg.InitResourceContext) -> None:  # noqa: ARG002 (Dagster's signature)
        """Let go of the study."""
        self._kept.close()
