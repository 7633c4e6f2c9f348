"""Small finished stores to test with."""

from pathlib import Path

import dask
import numpy as np

from geometry.lazy import selection_arrays, value_norms
from storage.arrays import SELECTION, TENSORS
from storage.sequences import SequenceStore

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


def metrics_store(path: Path, tensors: SequenceStore) -> SequenceStore:
    sizes = {name: size for name, size in tensors.sizes.items() if name != "head_dim"} | {"n": tensors.sizes["key"] - 1}
    store = SequenceStore.resume(path, SELECTION, sizes, provenance())
    arrays = selection_arrays(tensors.lazy("attention"), tensors.lazy("values"), tensors.lazy("first_key"))
    computed = dask.compute(arrays | {"value_norm": value_norms(tensors.lazy("values"))})[0]
    for index in store.missing():
        store.write(index, {name: array[index] for name, array in computed.items()})
    return store
