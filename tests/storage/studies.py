"""Small finished stores to test with."""

from pathlib import Path

import dask
import numpy as np
import pyarrow as pa

from geometry.lazy import scale_free_bounds, selection_arrays, similarities, value_norms
from storage import rows
from storage.arrays import SELECTION, TENSORS
from storage.sequences import SequenceStore
from tests.sql.made_up import summaries

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
    attention, values, first_key = (tensors.lazy(name) for name in ("attention", "values", "first_key"))
    norms = value_norms(values)
    arrays = selection_arrays(attention, values, first_key, kappas=kappas, scale="unit")
    arrays |= scale_free_bounds(attention, norms, first_key, head_dim=tensors.sizes["head_dim"]) | similarities(values)
    computed = dask.compute(arrays | {"value_norm": norms})[0]
    for index in store.missing():
        store.write(index, {name: array[index] for name, array in computed.items()})
    return store


def tables(tensors: SequenceStore, metrics: SequenceStore) -> dict[str, list[pa.RecordBatch]]:
    """The rows of every table but those of ``sql/derived``, as record batches; summaries are made up."""
    query = tensors.sizes["key"] - 1
    tokens = np.asarray(tensors.array("tokens")[:])
    first = np.asarray(tensors.array("first_key")[0])
    measured = {
        "studies": list(rows.study_rows(tensors, metrics)),
        "heads": list(rows.head_rows(tensors.sizes)),
        "tokens": list(rows.token_rows(tokens, [f"t{i}" for i in np.unique(tokens)])),
        "selection_counts": list(rows.selection_rows(metrics, query)),
        "upper_bounds": list(rows.upper_bound_rows(metrics, query)),
        "attention_rows": list(rows.attention_rows(metrics, query)),
        "value_scales": list(rows.value_scale_rows(metrics, query)),
        "value_norm_by_position": _by_position(metrics, "value_norm", "norm", np.zeros_like(first)),
        "attention_by_position": _by_position(tensors, "attention", "weight", first, query=query),
    }
    return measured | _summaries(measured)


def _by_position(
    store: SequenceStore, array: str, quantity: str, first: np.ndarray, **constant: int
) -> list[pa.RecordBatch]:
    """Mean and standard deviation over sequences of an array (sequence, layer, head, position)."""
    numbers = np.asarray(store.array(array)[:]).astype(np.float64)
    head = "head" if quantity == "weight" else "kv_head"
    mean, deviation = numbers.mean(0), numbers.std(0)
    settings = {"sequences": len(numbers), "head": head, "quantity": quantity, "first": first, "constant": constant}
    return list(rows.position_rows(mean, deviation, **settings))


def _summaries(measured: dict[str, list[pa.RecordBatch]]) -> dict[str, list[pa.RecordBatch]]:
    whole = {name: pa.Table.from_batches(batches) for name, batches in measured.items()}
    study = {name: rows.append_column("study", pa.array(["small"] * len(rows))) for name, rows in whole.items()}
    return {name: rows.drop_columns("study").to_batches() for name, rows in summaries(study).items()}
