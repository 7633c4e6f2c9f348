"""What the assets between metrics and warehouse read, and what they yield."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from dagster_project.analysis.metrics import Metrics
from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from storage.files.parts import read_part
from storage.files.places import LocalPlace, Place
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore

Rows = Iterator[tuple[str, pa.RecordBatch]]  # Rows of several tables as one stream: the name of a table with each batch


@dataclass(frozen=True)
class Sources:
    """The complete tensors and metrics of a study that belong together."""

    name: str  # Name of the study
    tensors: SequenceStore
    metrics: Metrics
    folder: LocalPlace  # Folder of the study's parts
    study: Study
    parts: Mapping[str, Place] = field(default_factory=dict)  # The parts of the tables that are read, of other assets

    @property
    def queries(self) -> tuple[int, ...]:
        """Position of each query, in the order of the tensors' axis ``query``, which ascends."""
        return self.metrics.queries

    @property
    def query(self) -> int:
        """Position of the last query, which has the most keys."""
        return self.queries[-1]

    def read_rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table of another asset."""
        return [row for part in read_part(self.parts[table]) for row in part.to_pylist()]


def open_sources(home: Home, name: str, study: Study) -> Sources:
    """Open what the assets after the metrics read.

    ``UserError`` if the tensors are incomplete, or there are no metrics of them with the study's settings.
    """
    tensors = SequenceStore.open(home.tensors(name), TENSORS).require_complete()
    metrics = Metrics.of(home, name, tensors, study.analysis).require_complete()
    return Sources(name, tensors, metrics, LocalPlace(home.parts(name)), study)
