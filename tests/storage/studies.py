"""Small finished stores to test with."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from storage.files.places import LocalPlace
from storage.warehouse.connection import locate_database
from storage.warehouse.landing import land
from storage.zarr.arrays import SELECTION, TENSORS
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


def metrics_store(path: Path | LocalPlace, tensors: SequenceStore, kappas: tuple[float, ...] = KAPPAS) -> SequenceStore:
    sizes = {name: size for name, size in tensors.sizes.items() if name != "head_dim"}
    sizes |= {"kappa": len(kappas), "n": QUERIES[-1]}
    analysis = {"kappas": list(kappas), "scale": "unit"}
    store = SequenceStore.resume(LocalPlace(Path(path)), SELECTION, sizes, provenance() | {"analysis": analysis})
    attention, values, first_key = (np.asarray(tensors.array(name)[:]) for name in ("attention", "values", "first_key"))
    computed = measure_study(attention, values, first_key, QUERIES, kappas=kappas, scale="unit")
    computed["learned_sink"] = np.asarray(tensors.array("learned_sink")[:])
    for index in store.find_missing():
        store.write(index, {name: array[index] for name, array in computed.items()})
    return store


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
