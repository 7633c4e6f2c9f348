"""Small finished stores to test with."""

from pathlib import Path

import dask
import numpy as np
import pyarrow as pa

from geometry.lazy import selection_arrays, value_norms
from storage import rows
from storage.arrays import SELECTION, TENSORS
from storage.sequences import SequenceStore

KAPPAS = (0.25, 2.0)
SIZES = {"sequence": 3, "layer": 2, "head": 4, "kv_head": 2, "key": 12, "head_dim": 4}


def provenance(**settings: object) -> dict[str, object]:
    return {
        "study": "small",
        "settings": {"model": {"id": "somewhere/model"}, "corpus": {"id": "text.txt"}, "dtype": "float32", **settings},
        "inputs": {"model": {"commit": "0" * 40}},
        "versions": {"torch": "2.13.0", "device": "cpu"},
    }


def one_sequence(index: int, sizes: dict[str, int] = SIZES) -> dict[str, np.ndarray]:
    """The tensors of one sequence; a window hides the first three keys in layer 1."""
    rng = np.random.default_rng(index)
    heads, keys = (sizes["layer"], sizes["head"]), sizes["key"]
    attention = rng.dirichlet(np.ones(keys), size=heads).astype(np.float32)
    first_key = np.zeros(sizes["layer"], np.int32)
    if sizes["layer"] > 1:
        first_key[1] = 3
        attention[1, :, :3] = 0
        attention[1] /= attention[1].sum(-1, keepdims=True)
    shape = (sizes["layer"], sizes["kv_head"], keys, sizes["head_dim"])
    return {
        "attention": attention,
        "values": rng.standard_normal(shape).astype(np.float32),
        "tokens": rng.integers(0, 9, keys, dtype=np.int32),
        "first_key": first_key,
    }


def tensor_store(path: Path, sizes: dict[str, int] = SIZES) -> SequenceStore:
    store = SequenceStore.resume(path, TENSORS, sizes, provenance())
    for index in store.missing():
        store.write(index, one_sequence(index, sizes))
    return store


def metrics_store(path: Path, tensors: SequenceStore, kappas: tuple[float, ...] = KAPPAS) -> SequenceStore:
    sizes = {name: size for name, size in tensors.sizes.items() if name != "head_dim"}
    sizes |= {"kappa": len(kappas), "n": sizes["key"] - 1}
    analysis = {"kappas": list(kappas), "scale": "unit"}
    store = SequenceStore.resume(path, SELECTION, sizes, provenance() | {"analysis": analysis})
    lazy = (tensors.lazy(name) for name in ("attention", "values", "first_key"))
    arrays = selection_arrays(*lazy, kappas=kappas, scale="unit")
    computed = dask.compute(arrays | {"value_norm": value_norms(tensors.lazy("values"))})[0]
    for index in store.missing():
        store.write(index, {name: array[index] for name, array in computed.items()})
    return store


def tables(tensors: SequenceStore, metrics: SequenceStore) -> dict[str, list[pa.RecordBatch]]:
    """The rows of every table but ``attention_by_position``, as record batches."""
    query = tensors.sizes["key"] - 1
    tokens = np.asarray(tensors.array("tokens")[:])
    norm = np.asarray(metrics.array("value_norm")[:]).astype(np.float64)
    first = np.zeros(tensors.sizes["layer"], int)
    by_position = rows.position_rows(
        norm.mean(0), norm.std(0), sequences=len(norm), head="kv_head", quantity="norm", first=first, constant={}
    )
    return {
        "studies": list(rows.study_rows(tensors, metrics)),
        "heads": list(rows.head_rows(tensors.sizes)),
        "tokens": list(rows.token_rows(tokens, [f"t{i}" for i in np.unique(tokens)])),
        "selection_counts": list(rows.selection_rows(metrics, query)),
        "upper_bounds": list(rows.upper_bound_rows(metrics, query)),
        "attention_rows": list(rows.attention_rows(metrics, query)),
        "value_scales": list(rows.value_scale_rows(metrics, query)),
        "value_norm_by_position": list(by_position),
    }
