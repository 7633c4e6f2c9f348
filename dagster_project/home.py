"""The data root: where everything a study makes lies.

Holds ``Home``, the map of its files. What does not belong here: what is in the files, and which studies there are
(``dagster_project.studies``).
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from storage.aside import beside
from storage.errors import UserError
from storage.locks import exclusive

HOME_VARIABLE = "ATTENTION_GEOMETRY_HOME"
"""Environment variable that names the data root."""

DEFAULT_HOME = "data"
"""The data root without that variable, below the current folder."""


@dataclass(frozen=True)
class Home:
    """The data root and the place of each file in it."""

    root: Path

    @classmethod
    def from_environment(cls) -> "Home":
        """The data root that ``ATTENTION_GEOMETRY_HOME`` names, or ``./data``."""
        return cls(Path(os.environ.get(HOME_VARIABLE, DEFAULT_HOME)).expanduser().resolve())

    @property
    def studies_file(self) -> Path:
        """Studies recorded by ``attention-geometry run --name``."""
        return self.root / "studies.yaml"

    @property
    def warehouse(self) -> Path:
        """Folder of the published databases, one per study."""
        return self.root / "warehouse"

    @property
    def dagster(self) -> Path:
        """Dagster's own records: runs, events, schedules."""
        return self.root / "dagster"

    def tensors(self, study: str) -> Path:
        """The tensor store of a study."""
        return self.root / "tensors" / f"{study}.zarr"

    def metrics(self, study: str) -> Path:
        """The metrics store of a study."""
        return self.root / "metrics" / f"{study}.zarr"

    def summaries(self, study: str) -> Path:
        """The folder of a study's small tables: fits and means on their way to the warehouse."""
        return self.root / "summaries" / study

    @property
    def index(self) -> Path:
        """The HTML page that lists every study."""
        return self.root / "index.html"

    @property
    def reports(self) -> Path:
        """Folder of the HTML reports, one per study."""
        return self.root / "reports"

    def report(self, study: str) -> Path:
        """The HTML report of a study."""
        return self.reports / f"{study}.html"

    @property
    def comparisons(self) -> Path:
        """Folder of the HTML pages that set several studies side by side."""
        return self.root / "comparisons"

    def comparison(self, studies: Sequence[str]) -> Path:
        """The HTML page that sets these studies side by side, in this order; no name of a study has a plus sign."""
        return self.comparisons / f"{'+'.join(studies)}.html"

    def lock(self, study: str) -> Path:
        """The lock a process holds while it writes the stores of a study."""
        return self.root / "locks" / f"{study}.lock"

    def prepare(self) -> None:
        """Make the data root and see that it can be written.

        Raises
        ------
        UserError
            If it cannot.
        """
        probe = self.root / f".writable-{os.getpid()}"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            probe.touch()
            probe.unlink()
        except OSError as error:
            msg = (
                f"The data root {self.root} cannot be written ({error.strerror}); "
                f"name another with --home DIR or {HOME_VARIABLE}"
            )
            raise UserError(msg) from error

    @contextmanager
    def without_stores(self, study: str) -> Iterator[None]:
        """Run the body as if the study had no stores; what is published of it stays until it is replaced.

        The stores are renamed, so that each is whole or gone whenever the process is killed. If the body fails before
        it has made new ones, they come back.

        Raises
        ------
        UserError
            If another process is working on the study.
        """
        with exclusive(self.lock(study), f"study '{study}'", wait=0):
            moved = {
                store: store.rename(beside(store))
                for store in (self.tensors(study), self.metrics(study), self.summaries(study))
                if store.exists()
            }
        try:
            yield
        except BaseException:
            if not self.tensors(study).exists():
                for store, aside in moved.items():
                    aside.rename(store)
            raise
        finally:
            for aside in moved.values():
                if aside.exists():
                    shutil.rmtree(aside)
