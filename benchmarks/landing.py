"""Landing a study in the warehouse against a bare DuckDB insert of the same record batches.

Holds the benchmark ``landing`` and its made-up study. What does not belong here: how the rows are computed or read.
"""

from collections.abc import Mapping
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import duckdb
import numpy as np
import pyarrow as pa

import sql
from benchmarks.measure import Benchmark, Result, alternate, compare
from storage import rows, warehouse
from storage.arrays import SELECTION
from storage.sequences import SequenceStore

Tables = Mapping[str, list[pa.RecordBatch]]

BY_N = ("selection_counts", "upper_bounds")
"""The tables that grow with the context, which are all but a trifle of a landing."""

PROVENANCE = {
    "study": "landing",
    "settings": {"model": {"id": "none"}, "corpus": {"id": "none"}, "dtype": "float32"},
    "inputs": {"model": {}},
    "versions": {"device": "cpu"},
    "analysis": {"kappas": [0.5], "scale": "unit"},
}


def landing(*, layers: int, heads: int, context: int, repeats: int) -> list[Result]:
    """One sequence of a model of ``layers`` x ``heads`` heads lands: with its checks, and without."""
    sizes = {
        "sequence": 1, "layer": layers, "head": heads, "kv_head": heads, "key": context, "n": context - 1, "kappa": 1,
        "head_dim": 1,
    }  # fmt: skip
    with TemporaryDirectory() as name:
        folder = Path(name)
        tables = _tables(folder, sizes)
        landed = {name: [_with_study(batch) for batch in tables[name]] for name in BY_N}
        names = (str(number) for number in count())  # every landing and every insert makes a file of its own
        seconds = alternate(
            lambda: _land(folder, f"checked{next(names)}", tables),
            lambda: _land_unchecked(folder, f"unchecked{next(names)}", tables),
            lambda: _insert(folder / f"bare{next(names)}.duckdb", landed),
            repeats=repeats,
        )
    rows_by_n = sum(len(batch) for batches in landed.values() for batch in batches)
    measured = {"layers": layers, "heads": heads, "context": context, "rows": rows_by_n}
    checked = ("landing a study, its checks included", seconds[:, 0])
    unchecked = ("landing a study without its checks", seconds[:, 1])
    bare = ("bare DuckDB insert of the same record batches, with CHECKPOINT", seconds[:, 2])
    share = float(np.median(1 - seconds[:, 1] / seconds[:, 0]))
    return [
        compare("landing", "speed", checked, bare, sizes=measured, target=0.8),
        compare("landing.unchecked", "speed", unchecked, bare, sizes=measured),
        compare("landing.checks", "cost", checked, unchecked, sizes=measured, note=f"checks: {share:.0%} of a landing"),
    ]


def _land(folder: Path, study: str, tables: Tables) -> None:
    """Land a study as users do; a landing that a check refuses would be no measurement."""
    landed = warehouse.land(folder / "warehouse", study, tables)
    if not landed.published:
        msg = f"the study of this benchmark is refused: {landed.violations}"
        raise RuntimeError(msg)


def _land_unchecked(folder: Path, study: str, tables: Tables) -> None:
    """Land a study as if ``sql/checks`` were empty."""
    names = sql.names
    with patch.object(sql, "names", lambda kind: () if kind == "checks" else names(kind)):
        _land(folder, study, tables)


def _with_study(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the column ``study`` that a landing adds, so that both contenders store the same table."""
    study = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(batch), np.int8)), pa.array(["landing"]))
    return batch.add_column(0, "study", study)


def _insert(path: Path, tables: Tables) -> None:
    """What DuckDB alone needs: a fresh file, tables without constraints, one statement each, a checkpoint."""
    with duckdb.connect(path) as connection:
        for name, batches in tables.items():
            connection.register("empty", pa.Table.from_batches([], batches[0].schema))
            connection.execute(f"CREATE TABLE {name} AS FROM empty")
            connection.register("incoming", pa.RecordBatchReader.from_batches(batches[0].schema, batches))
            connection.execute(f"INSERT INTO {name} FROM incoming")
        connection.execute("CHECKPOINT")


def _tables(folder: Path, sizes: Mapping[str, int]) -> Tables:
    """The tables of a made-up study as the pipeline lands them, made before the clock runs."""
    metrics = SequenceStore.resume(folder / "metrics.zarr", SELECTION, sizes, PROVENANCE)
    metrics.write(0, _metrics(sizes))
    return {
        "studies": list(rows.study_rows(metrics, metrics)),
        "heads": list(rows.head_rows(sizes)),
        "selection_counts": list(rows.selection_rows(metrics, sizes["key"] - 1)),
        "upper_bounds": list(rows.upper_bound_rows(metrics, sizes["key"] - 1)),
        "attention_rows": list(rows.attention_rows(metrics, sizes["key"] - 1)),
        "value_scales": list(rows.value_scale_rows(metrics, sizes["key"] - 1)),
    }


def _metrics(sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Random metrics of one sequence that break no check: 1 <= k_in <= N, 1 <= k_out <= keys - N, r_min <= r_max.

    The sink is never selected; no sum is longer than s_in, which lies between N a_min_in and N a_max_in.
    """
    rng = np.random.default_rng(0)
    arrays = {
        spec.name: rng.random(spec.shape(sizes)[1:], dtype=np.float32) for spec in SELECTION if spec.dtype == "float32"
    }
    shape, n = arrays["r_min"].shape, np.arange(1, sizes["key"])
    n_keys = np.full(sizes["layer"], sizes["key"], np.int32)
    largest = 1 + np.maximum.accumulate(arrays["a_max_in"], axis=-1)
    smallest = np.minimum.accumulate(arrays["a_min_in"], axis=-1)
    return arrays | {
        "a_0": np.full_like(largest, np.nan),
        "a_max_in": largest,
        "a_min_in": smallest,
        "s_in": np.maximum.accumulate(largest + (n - 1) * smallest, axis=-1),
        "a_max_out": np.minimum.accumulate(arrays["a_max_out"], axis=-1),
        "precision_upper": 1 - arrays["precision_upper"] / (2 * n + 2),
        "recall_upper": 1 - arrays["recall_upper"] / 2,
        "k_in": rng.integers(1, n + 1, shape, dtype=np.int32),
        "k_out": rng.integers(1, sizes["key"] - n + 1, shape, dtype=np.int32),
        "r_max": arrays["r_min"] + arrays["r_max"],
        "n_keys": n_keys,
    }


BENCHMARK = Benchmark(
    "landing",
    full=partial(landing, layers=32, heads=32, context=1024, repeats=9),
    small=partial(landing, layers=4, heads=8, context=256, repeats=3),
)
