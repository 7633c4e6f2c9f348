"""Landing a study in the warehouse against a bare DuckDB insert of the same record batches.

Holds the benchmark ``landing`` and its synthetic study.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import duckdb
import pyarrow as pa

import sql
from benchmarks.measure import Benchmark, Result, alternate, compare
from dagster_project.assets.asset import Work
from dagster_project.assets.catalogue import ASSETS
from dagster_project.assets.landing import gather_tables
from dagster_project.assets.metrics import SELECTION_METRICS
from dagster_project.assets.summaries import SUMMARIES
from dagster_project.assets.tensors import TENSOR_STORE
from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from extract.settings import SYNTHETIC
from storage.warehouse.landing import land

Tables = Mapping[str, list[pa.RecordBatch]]

BY_N = ("selection_counts", "upper_bounds")
"""The tables that grow with the context; they are nearly all of a landing."""


def measure_landing(*, sequences: int, layers: int, heads: int, context: int, repeats: int) -> list[Result]:
    """Some sequences of a model of ``layers`` x ``heads`` heads land, with and without checks."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        tables = make_tables(folder, sequences=sequences, layers=layers, heads=heads, context=context)
        landed = {  # with the column that a landing adds, so that both contenders store the same table
            name: [
                batch.add_column(0, "study", pa.repeat("landing", len(batch)).dictionary_encode())
                for batch in tables[name]
            ]
            for name in BY_N
        }
        names = (str(number) for number in count())  # every landing and every insert creates its own file
        seconds = alternate(
            lambda: _land(folder, f"checked{next(names)}", tables),
            lambda: _land(folder, f"unchecked{next(names)}", tables, unchecked=("checks",)),
            lambda: _insert(folder / f"bare{next(names)}.duckdb", landed),
            repeats=repeats,
        )
    rows_by_n = sum(len(batch) for batches in landed.values() for batch in batches)
    measured = {"sequences": sequences, "layers": layers, "heads": heads, "context": context, "rows": rows_by_n}
    checked = ("landing a study, its checks included", seconds[:, 0])
    unchecked = ("landing a study without its checks", seconds[:, 1])
    bare = ("bare DuckDB insert of the same record batches, with CHECKPOINT", seconds[:, 2])
    return [
        compare("landing", "speed", checked, bare, sizes=measured, target=0.9),
        compare("landing.unchecked", "speed", unchecked, bare, sizes=measured),
    ]


def _land(folder: Path, study: str, tables: Tables, unchecked: Sequence[str] = ()) -> None:
    """Land a study as users do, or as if some folders of ``sql`` were empty.

    Raises if a check refuses it, since that would not be a valid measurement.
    """
    names = sql.list_names
    with patch.object(sql, "list_names", lambda kind: () if kind in unchecked else names(kind)):
        landed = land(folder / "warehouse", study, tables)
    if not landed.published:
        raise RuntimeError(f"the study of this benchmark was refused: {landed.violations}")


def _insert(path: Path, tables: Tables) -> None:
    """Insert with DuckDB alone: a new file, tables without constraints, one statement each, a checkpoint."""
    with duckdb.connect(path) as connection:
        for name, batches in tables.items():
            connection.register("empty", pa.Table.from_batches([], batches[0].schema))
            connection.execute(f"CREATE TABLE {name} AS FROM empty")
            connection.register("incoming", pa.RecordBatchReader.from_batches(batches[0].schema, batches))
            connection.execute(f"INSERT INTO {name} FROM incoming")
        connection.execute("CHECKPOINT")


def make_tables(folder: Path, *, sequences: int, layers: int, heads: int, context: int) -> Tables:
    """The tables of a synthetic study as they land, loaded into memory before the measurement."""
    home, name = Home(folder), "synthetic"
    drawn = {"layers": layers, "heads": heads, "kv_heads": heads, "head_dim": 16}
    study = Study.model_validate(
        {"model": SYNTHETIC, "context_length": context, "sequences": sequences, "synthetic": drawn}
    )
    home.prepare()
    work = Work(home, name, study, ASSETS)
    for asset in (TENSOR_STORE, SELECTION_METRICS, *SUMMARIES):
        asset.make(work)
    tables, _ = gather_tables(work)
    return {table: list(batches) for table, batches in tables.items()}


BENCHMARK = Benchmark(
    "landing",
    full=partial(measure_landing, sequences=64, layers=8, heads=8, context=1024, repeats=5),
    small=partial(measure_landing, sequences=2, layers=2, heads=8, context=256, repeats=3),
)
