"""The resources: where the data root is.

Add here what assets need from their surroundings. Keep out: anything that opens files when definitions are loaded.
https://docs.dagster.io/guides/build/external-resources
"""

from pathlib import Path

import dagster as dg

from dagster_project.home import Home


class DataRoot(dg.ConfigurableResource[None]):
    """The data root as a resource."""

    path: str = ""
    """The folder; empty: what the environment variable ``ATTENTION_GEOMETRY_HOME`` names, else ``./data``."""

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
