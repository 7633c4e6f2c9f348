"""What the assets between metrics and warehouse read, and what they yield."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from dagster_project.analysis.metrics_store import build_metrics_provenance, open_metrics
from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from storage.errors import UserError
from storage.files.parts import read_part
from storage.zarr.arrays import TENSORS
from storage.zarr.layers import read_query_positions
from storage.zarr.sequences import SequenceStore

Rows = Iterator[tuple[str, pa.RecordBatch]]
"""Rows of several tables as one stream: the name of a table with each batch."""


@dataclass(frozen=True)
class Sources:
    """The complete stores of a study that belong together."""

    name: str
    """Name of the study."""
    tensors: SequenceStore
    metrics: SequenceStore
    folder: Path
    """Folder of the study's parts."""
    study: Study
    parts: Mapping[str, Path] = field(default_factory=dict)
    """The parts of the tables that are read, of other assets."""

    @cached_property
    def queries(self) -> tuple[int, ...]:
        """Position of each query, in the order of the stores' axis ``query``, which ascends."""
        return read_query_positions(self.tensors)

    @property
    def query(self) -> int:
        """Position of the last query, which has the most keys."""
        return self.queries[-1]

    def count_selections(self) -> int:
        """Selections (query, sequence, head, N) if every query attends to all keys up to its own."""
        heads = sum(layer.heads for layer in self.metrics.layers)
        return self.metrics.sizes["sequence"] * heads * sum(query + 1 for query in self.queries)

    def read_rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table of another asset."""
        return [row for part in read_part(self.parts[table]) for row in part.to_pylist()]


def open_sources(home: Home, name: str, study: Study) -> Sources:
    """Open what the assets after the metrics read.

    Raises
    ------
    UserError
        If a store is incomplete, or they do not belong to one another or to the study's settings.
    """
    tensors = SequenceStore.open(home.tensors(name), TENSORS).require_complete()
    metrics = open_metrics(home, name).require_complete()
    wanted = build_metrics_provenance(name, tensors, study.analysis)
    if any(metrics.provenance.get(part) != wanted[part] for part in wanted):
        msg = (
            f"The metrics of study '{name}' were computed from other settings or tensors; "
            f"run: attention-geometry run {name}"
        )
        raise UserError(msg)
    return Sources(name, tensors, metrics, home.parts(name), study)
