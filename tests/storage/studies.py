"""Small finished stores to test with."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from dagster_project.analysis.metrics import Metrics
from geometry.quantities import BY_SEEN_KEY, ROLES, SELECTION
from storage.files.parts import write_parts
from storage.files.places import LocalPlace
from storage.warehouse.connection import locate_database
from storage.warehouse.landing import land
from storage.warehouse.rows import MEASURED, TOPS, build_measured_rows
from storage.zarr.arrays import TENSORS, LayerSize
from storage.zarr.layers import index_part
from storage.zarr.sequences import SequenceStore
from tests import made_up
from tests.geometry.measured_studies import measure_study
from tests.made_up import MadeUp
from tests.sql.checking import STUDY

KAPPAS = (0.25, 2.0)
SIZES = {"sequence": 3, "query": 3, "layer": 2, "head": 4, "kv_head": 2, "key": 12, "head_dim": 4}
QUERIES = (5, 8, 11)
N_KEYS = np.array([[6, 6], [9, 9], [12, 9]])
"""Keys of each query in each layer: a window of nine keys hides the sink from the last query in layer 1."""

Tables = dict[str, list[pa.RecordBatch]]


def provenance(**settings: object) -> dict[str, object]:
    return {
        "study": "small",
        "settings": {"model": {"id": "somewhere/model"}, "corpus": {"id": "text.txt"}, "dtype": "float32", **settings},
        "inputs": {"model": {"commit": "0" * 40}},
        "versions": {"torch": "2.13.0", "device": "cpu"},
    }


def one_sequence(index: int) -> dict[str, np.ndarray]:
    """The tensors of one sequence."""
    rng = np.random.default_rng(index)
    keys = SIZES["key"]
    attention = np.zeros((len(QUERIES), SIZES["layer"], SIZES["head"], keys), np.float32)
    attention[-1] = rng.dirichlet(np.ones(keys), size=attention.shape[1:3])
    values = rng.standard_normal([SIZES[axis] for axis in ("layer", "kv_head", "key", "head_dim")])
    tokens = rng.integers(0, 9, keys, dtype=np.int32)
    for row, query in enumerate(QUERIES[:-1]):
        attention[row, ..., : query + 1] = rng.dirichlet(np.ones(query + 1), size=attention.shape[1:3])
    first_key = np.array(QUERIES)[:, None] + 1 - N_KEYS
    attention[np.broadcast_to((np.arange(keys) < first_key[..., None])[:, :, None], attention.shape)] = 0
    return {
        "attention": attention / attention.sum(-1, keepdims=True),
        "values": values.astype(np.float32),
        "tokens": tokens,
        "first_key": first_key.astype(np.int32),
        "query_position": np.array(QUERIES, np.int32),
        "learned_sink": np.zeros(attention.shape[:-1], np.float32),
        "batch": np.array(1, np.int32),
    }


def tensor_store(path: Path | LocalPlace) -> SequenceStore:
    store = SequenceStore.resume(LocalPlace(Path(path)), TENSORS, SIZES, provenance())
    for index in store.find_missing():
        store.write(index, one_sequence(index))
    return store


def measured(tensors: SequenceStore, kappas: tuple[float, ...] = KAPPAS) -> dict[str, np.ndarray]:
    """Every measured quantity of these tensors, (sequence, …)."""
    attention, values, first_key = (np.asarray(tensors.array(name)[:]) for name in ("attention", "values", "first_key"))
    computed = measure_study(attention, values, first_key, QUERIES, kappas=kappas, scale="unit")
    return computed | {"learned_sink": np.asarray(tensors.array("learned_sink")[:])}


def measured_rows(
    arrays: Mapping[str, np.ndarray],
    sizes: Sequence[LayerSize],
    queries: Sequence[int] = QUERIES,
    kappas: Sequence[float] = KAPPAS,
    layers: Sequence[int] | None = None,
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of measured quantities, (sequence, …) each: layer by layer, sequence by sequence."""
    attending = [layer for layer, size in enumerate(sizes) if size.heads]
    for layer in attending if layers is None else layers:
        parts = {
            name: array[(slice(None), *index_part(sizes[layer], SELECTION[name].axes, layer=layer))]
            for name, array in arrays.items()
        }
        for sequence in range(len(parts["n_keys"])):
            one = {name: array[sequence] for name, array in parts.items()}
            settings = {"sequence": sequence, "layer": layer, "queries": queries, "kappas": kappas, "scale": "unit"}
            yield from build_measured_rows(one, **settings)  # type: ignore[arg-type]


def write_metrics(metrics: Metrics, arrays: Mapping[str, np.ndarray]) -> Metrics:
    """Write the parts of all layers, from measured quantities, (sequence, …)."""
    for layer in metrics.find_missing():
        rows = measured_rows(arrays, metrics.layers, metrics.queries, metrics.made_of["analysis"]["kappas"], [layer])
        write_parts(metrics.folder, MEASURED, rows, metrics.build_inputs(layer), {"device": "cpu"})
    return metrics.require_complete()


class MetricArrays:
    """The measured quantities of a study as whole arrays, (sequence, …); what is not stored is fill."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics, self.layers = metrics, metrics.layers
        self.sizes = metrics.tensors.sizes
        self.sizes |= {"n": metrics.queries[-1], "kappa": len(metrics.made_of["analysis"]["kappas"])}

    @cache  # noqa: B019 (a few studies)
    def array(self, name: str) -> np.ndarray:
        """All of a quantity."""
        quantity = SELECTION[name]
        whole = np.full([self.sizes[axis] for axis in ("sequence", *quantity.axes)], quantity.fill, quantity.dtype)
        if top := next((top for top, names in TOPS.items() if name in names), None):
            return self._fill_tops(whole, top, TOPS[top].index(name))
        for layer, size in enumerate(self.layers):
            for query in range(self.sizes["query"]) if size.heads else ():
                keys, where = int(self.metrics.n_keys[query, layer]), {"layer": layer, "query": query, "n": slice(0)}
                if name == "n_keys":
                    whole[:, query, layer] = keys
                    continue
                if quantity.axes == BY_SEEN_KEY:
                    last = self.metrics.queries[query] + 1
                    where["key"] = slice(last - keys, last)
                where["n"] = slice(keys - 1)
                by_query = "query" in quantity.axes
                part = whole[(slice(None), *index_part(size, quantity.axes, **where))]
                part[:] = self.metrics.read(name, layer, query=query if by_query else None)
        return whole

    def _fill_tops(self, whole: np.ndarray, top: str, part: int) -> np.ndarray:
        """The number of a key from the first that is seen (0), or that of its role (1), from the rows of a table."""
        for row in pa.Table.from_batches(self.metrics.stream("concentration")).to_pylist():
            where = row["sequence"], self.metrics.queries.index(row["query"]), row["layer"], row["head"]
            position, role = row[f"{top}_position"], row[f"{top}_role"]
            if (position if part == 0 else role) is not None:
                first = row["query"] + 1 - row["n_keys"]
                whole[where] = position - first if part == 0 else ROLES.index(role)
        return whole

    def read(self, name: str, index: object) -> np.ndarray:
        """Part of a quantity."""
        return np.asarray(self.array(name)[index])

    def read_layer(self, name: str, layer: int) -> np.ndarray:
        """The part of a quantity that belongs to a layer, (sequence, …)."""
        return self.read(name, (slice(None), *index_part(self.layers[layer], SELECTION[name].axes, layer=layer)))


def tables(study: MadeUp = STUDY) -> Tables:
    """The rows of every table of a made-up study but those of ``sql/derived``, a few in each record batch."""
    return {
        name: rows.drop_columns("study").to_batches(max_chunksize=200) for name, rows in made_up.tables(study).items()
    }


def land_small(root: Path) -> Path:
    """Make ``root`` a data root whose warehouse holds the study ``small``."""
    landing = land(root / "warehouse", "small", tables())
    assert landing.published, landing.violations
    return root


def publish(
    landed: Path, folder: Path, study: str, version: int | None = None, named: Sequence[str] = ("studies",)
) -> Path:
    """Land a copy of the study, in tables that say its name under another, aside and by a rename, as a landing does."""
    folder.mkdir(parents=True, exist_ok=True)
    aside = shutil.copy(locate_database(landed / "warehouse", "small"), folder / f"{study}.partial")
    with duckdb.connect(aside) as connection:
        for table in named:
            connection.execute(f"UPDATE {table} SET study = ?", [study])
        if version is not None:
            connection.execute("UPDATE studies SET format_version = ?", [version])
    return aside.replace(locate_database(folder, study))
