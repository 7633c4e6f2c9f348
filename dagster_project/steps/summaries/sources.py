"""What every step reads, and what it gives.

Holds the stores and tables of a study on their way to the warehouse.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagster_project.study.studies import Study
from storage.files.tables import read_summary

if TYPE_CHECKING:
    from storage.zarr.sequences import SequenceStore

F64 = NDArray[np.float64]
Tables = dict[str, Iterator[pa.RecordBatch]]
"""Rows by table, as streams that must be taken in this order."""


@dataclass(frozen=True)
class Sources:
    """What a step may read."""

    name: str
    """Name of the study."""
    tensors: "SequenceStore"
    metrics: "SequenceStore"
    summaries: Path
    """Folder of the tables of the steps before."""
    study: Study

    @property
    def queries(self) -> tuple[int, ...]:
        """Position of each query, in the order of the stores' axis ``query``, which ascends."""
        return query_positions(self.tensors)

    @property
    def query(self) -> int:
        """Position of the last query, which has the most keys."""
        return self.queries[-1]

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table of a step before."""
        rows: list[dict[str, Any]] = []
        for part in read_summary(self.summaries / f"{table}.parquet"):
            rows += part.to_pylist()
        return rows


def query_positions(tensors: "SequenceStore") -> tuple[int, ...]:
    """Position of each query of a tensor store, the same in every sequence, ascending."""
    return tuple(tensors.read("query_position", 0).tolist())


def standard_error(values: F64) -> F64:
    """Standard error of a mean over sequences, (sequence, …) → (…); NaN for one sequence."""
    if values.shape[0] < 2:
        return np.full(values.shape[1:], np.nan)
    deviation: F64 = values.std(axis=0, ddof=1) / np.sqrt(values.shape[0])
    return deviation
