"""What the assets between metrics and warehouse read, and what they yield."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from dagster_project.analysis.metrics_store import build_metrics_provenance, open_metrics
from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from storage.errors import UserError
from storage.files.tables import read_table
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
    summaries: Path
    """Folder of the tables of other assets."""
    study: Study

    @cached_property
    def queries(self) -> tuple[int, ...]:
        """Position of each query, in the order of the stores' axis ``query``, which ascends."""
        return read_query_positions(self.tensors)

    @property
    def query(self) -> int:
        """Position of the last query, which has the most keys."""
        return self.queries[-1]

    def read_rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table of another asset."""
        return [row for part in read_table(self.summaries / f"{table}.parquet") for row in part.to_pylist()]


_shared: list[list[Sources]] = []
"""For each step in progress whose assets share what they open: what is open."""


@contextmanager
def share_sources() -> Iterator[None]:
    """Inside the context, in which the assets of one study are made that only read its stores, open these once."""
    _shared.append([])
    try:
        yield
    finally:
        _shared.pop()


def open_sources(home: Home, name: str, study: Study) -> Sources:
    """Open what the assets after the metrics read.

    Raises
    ------
    UserError
        If a store is incomplete, or they do not belong to one another or to the study's settings.
    """
    opened = _shared[-1] if _shared else []
    if opened:
        return opened[0]
    tensors = SequenceStore.open(home.tensors(name), TENSORS).require_complete()
    metrics = open_metrics(home, name).require_complete()
    wanted = build_metrics_provenance(name, tensors, study.analysis)
    if any(metrics.provenance.get(part) != wanted[part] for part in wanted):
        msg = (
            f"The metrics of study '{name}' were computed from other settings or tensors; "
            f"run: attention-geometry run {name}"
        )
        raise UserError(msg)
    opened.append(Sources(name, tensors, metrics, home.summaries(name), study))
    return opened[0]
