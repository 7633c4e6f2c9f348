"""The tables of a study that measures are computed from, as arrays by sequence."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from geometry.arrays import F64, I64
from geometry.statistics.arrangements import Arrangements, End
from geometry.statistics.intervals import compute_pseudo_values
from geometry.statistics.verdicts import Sides, compare_with_threshold

_KEY = "sequence INT, layer INT, kv_head INT"

PARTS: Mapping[str, str] = {
    "assumption_norms_by_sequence": f"{_KEY}, lambda_sink FLOAT8, cv_within_sequence FLOAT8, "
    "cv_without_sequence FLOAT8",
    "assumption_similarity_by_sequence": f"{_KEY}, mae FLOAT8, floor FLOAT8, gain FLOAT8",
    "assumption_weights_by_sequence": "sequence INT, p_sink FLOAT8, p_base FLOAT8, r2_log FLOAT8, oscillation FLOAT8",
    "coverage_by_sequence": "kappa FLOAT8, metric TEXT, without_sequence INT, covered FLOAT8, covered_rows INT, "
    "enveloped FLOAT8, enveloped_rows INT, upper_distance FLOAT8, lower_excess FLOAT8, lower_rows INT",
    "head_auc": "sequence INT, query INT, layer INT, head INT, auc FLOAT8",
    "separability_by_sequence": "sequence INT, query INT, n INT, measure TEXT, null_model TEXT, value FLOAT8, "
    "null_value FLOAT8",
}
"""The parts that only measures are computed from, and their columns: they are no tables of the database."""


def load_parts(connection: duckdb.DuckDBPyConnection, parts: Mapping[str, Iterable[pa.RecordBatch]]) -> None:
    """Make ``PARTS`` tables of a connection alone, empty where there is no part."""
    for name, columns in PARTS.items():
        connection.execute(f"CREATE TEMP TABLE {name} ({columns})")
        if batches := [*parts[name]]:
            names = ", ".join(column.split()[0] for column in columns.split(", "))
            connection.register("incoming", pa.Table.from_batches(batches))
            connection.execute(f"INSERT INTO {name} SELECT {names} FROM incoming")
            connection.unregister("incoming")


@dataclass(frozen=True)
class Sample:
    """A measure of one study."""

    of_sequences: F64
    """The numbers of all sequences whose mean it is, or jackknife pseudo-values, on the measure's scale, (S,); NaN
    where a sequence has none."""
    rows: int  # Number of heads, KV heads or other rows behind it
    whole: float | None = None  # The statistic of all sequences on the measure's scale, if it is not the mean
    arranged: Arrangements | None = None
    """Of an association, or a change over layers, the p values of random arrangements."""

    @classmethod
    def of_jackknife(cls, whole: float, left_out: ArrayLike, rows: int) -> "Sample":
        """A statistic of all sequences, from its values without each, (S,), on the measure's scale."""
        return cls(compute_pseudo_values(whole, left_out), rows, whole)

    def compare(self, threshold: float, *, above: bool, end: End = "value") -> Sides:
        """Test it against a threshold on its scale; what is arranged must also be beyond random arrangements."""
        sides = compare_with_threshold(self.of_sequences, threshold, above=above, value=self.whole)
        if self.arranged is None:
            return sides
        supports, opposes = (self.arranged.p(above=side, end=end) for side in (above, not above))
        return Sides(max(sides.supports, supports), max(sides.opposes, opposes) if threshold == 0 else sides.opposes)

    @property
    def value(self) -> float:
        """The statistic of all sequences."""
        return float(np.nanmean(self.of_sequences)) if self.whole is None else self.whole

    @property
    def sequences(self) -> int:
        """Number of sequences that have a number."""
        return int((~np.isnan(self.of_sequences)).sum())


@dataclass(frozen=True)
class Evidence:
    """A study whose tables have landed, except those of measures and claims."""

    connection: duckdb.DuckDBPyConnection  # A connection to its database, which holds one study

    @property
    def query(self) -> int:
        """Position of the last query, which has the most keys."""
        return self.ends[1]

    @cached_property
    def ends(self) -> tuple[int, int]:
        """Positions of the first and the last query."""
        columns = self._ask("SELECT min(query) AS first, max(query) AS last FROM attention_rows")
        return int(columns["first"][0]), int(columns["last"][0])

    @cached_property
    def sequences(self) -> int:
        """Number of sequences."""
        return int(self._ask("SELECT sequences FROM studies")["sequences"][0])

    @cached_property
    def heads(self) -> Mapping[str, I64]:
        """Layer, head and index of the KV group of every head, (heads,) each, in the order of all arrays by head."""
        columns = self._ask("SELECT layer, head, kv_head FROM heads ORDER BY layer, head")
        groups = np.unique(np.stack([columns["layer"], columns["kv_head"]]), axis=1, return_inverse=True)[1]
        return {**columns, "group": groups.ravel().astype(np.int64)}

    @cached_property
    def layers(self) -> int:
        """Number of layers with attention."""
        return int(np.unique(self.heads["layer"]).size)

    @cached_property
    def local_layers(self) -> list[int]:
        """Numbers of the layers whose attention is not full, but sees a window or a chunk; empty if not known."""
        columns = self._ask("SELECT unnest(provenance ->> '$.inputs.model.layer_kinds[*]') AS kind FROM studies")
        return [layer for layer, kind in enumerate(columns["kind"]) if kind != "full_attention"]

    def _ask(self, statement: str) -> dict[str, NDArray[Any]]:
        """The columns of an answer."""
        given = {"query": self.query} if "$query" in statement else {}
        return self.connection.execute(statement, given).fetchnumpy()

    def ask_columns(self, statement: str) -> dict[str, NDArray[Any]]:
        """The columns of an answer; NULL becomes NaN. ``$query`` is the last query."""
        return {
            name: np.ma.filled(column.astype(np.float64), np.nan) if column.dtype.kind in "fiub" else np.asarray(column)
            for name, column in self._ask(statement).items()
        }

    def count(self, statement: str) -> int:
        """The only number of an answer; 0 for NULL."""
        return int(np.ma.filled(next(iter(self._ask(statement).values())), 0)[0])

    def ask_means(self, statement: str) -> dict[str, Sample]:
        """Measures from an answer with the columns sequence, measure, value and rows, in the order of their names."""
        columns = self.ask_columns(f"SELECT * FROM ({statement}) WHERE value IS NOT NULL")
        samples = {}
        for name in sorted(set(columns["measure"].tolist())):
            own = columns["measure"] == name
            sequence = columns["sequence"][own].astype(np.int64)
            values = np.full(max(self.sequences, int(sequence.max()) + 1), np.nan)  # losses are of other sequences
            values[sequence] = columns["value"][own]
            samples[name] = Sample(values, int(columns["rows"][own].max()))
        return samples

    def ask_heads(self, statement: str) -> dict[str, F64]:
        """Columns of an answer with the columns sequence, layer and head, as arrays (sequence, head).

        NaN where there is no row. Without the column sequence all sequences have the same.
        """
        columns = self.ask_columns(statement)
        places = {place: index for index, place in enumerate(zip(self.heads["layer"], self.heads["head"], strict=True))}
        keys = zip(columns["layer"].astype(int), columns["head"].astype(int), strict=True)
        head = np.array([places[key] for key in keys], np.int64)
        sequence = columns.get("sequence")
        arrays = {}
        for name in (name for name in columns if name not in {"sequence", "layer", "head"}):
            values = np.full((self.sequences, len(places)), np.nan)
            values[slice(None) if sequence is None else sequence.astype(np.int64), head] = columns[name]
            arrays[name] = values
        return arrays
