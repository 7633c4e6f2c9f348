"""Small finished stores to test with."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.files.places import Local
from storage.warehouse import rows
from storage.warehouse.landing import land
from storage.zarr.arrays import SELECTION, TENSORS
from storage.zarr.sequences import SequenceStore
from tests.geometry.measured_studies import measure_study
from tests.sql.made_up import summaries

KAPPAS = (0.25, 2.0)
SIZES = {"sequence": 3, "query": 3, "layer": 2, "head": 4, "kv_head": 2, "key": 12, "head_dim": 4}
QUERIES = (5, 8, 11)
N_KEYS = np.array([[6, 6], [9, 9], [12, 9]])
"""Keys of each query in each layer: a window of nine keys hides the sink from the last query in layer 1."""

MEASURED = (
    *("studies", "heads", "tokens", "selection_counts", "upper_bounds", "attention_rows", "concentration"),
    *("value_scales", "value_norm_by_position", "attention_by_position"),
)
"""Tables whose rows come from the stores."""


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


def tensor_store(path: Path | Local) -> SequenceStore:
    store = SequenceStore.resume(Local(Path(path)), TENSORS, SIZES, provenance())
    for index in store.find_missing():
        store.write(index, one_sequence(index))
    return store


def metrics_store(path: Path | Local, tensors: SequenceStore, kappas: tuple[float, ...] = KAPPAS) -> SequenceStore:
    sizes = {name: size for name, size in tensors.sizes.items() if name != "head_dim"}
    sizes |= {"kappa": len(kappas), "n": QUERIES[-1]}
    analysis = {"kappas": list(kappas), "scale": "unit"}
    store = SequenceStore.resume(Local(Path(path)), SELECTION, sizes, provenance() | {"analysis": analysis})
    attention, values, first_key = (np.asarray(tensors.array(name)[:]) for name in ("attention", "values", "first_key"))
    computed = measure_study(attention, values, first_key, QUERIES, kappas=kappas, scale="unit")
    computed["learned_sink"] = np.asarray(tensors.array("learned_sink")[:])
    for index in store.find_missing():
        store.write(index, {name: array[index] for name, array in computed.items()})
    return store


def tables(tensors: SequenceStore, metrics: SequenceStore) -> dict[str, list[pa.RecordBatch]]:
    """The rows of every table but those of ``sql/derived``, as record batches; summaries are made up."""
    tokens = np.asarray(tensors.array("tokens")[:])
    norms = np.asarray(metrics.array("value_norm")[:], np.float64)
    measured = {
        "studies": list(rows.build_study_rows(tensors, metrics)),
        "heads": list(rows.build_head_rows(tensors.layers)),
        "tokens": list(rows.build_token_rows(tokens, [f"t{i}" for i in np.unique(tokens)])),
        "selection_counts": list(rows.build_selection_rows(metrics, QUERIES)),
        "upper_bounds": list(rows.build_upper_bound_rows(metrics, QUERIES)),
        "attention_rows": list(rows.build_attention_rows(metrics, QUERIES)),
        "concentration": list(rows.build_concentration_rows(metrics, QUERIES)),
        "value_scales": list(rows.build_value_scale_rows(metrics, QUERIES)),
        "value_norm_by_position": _by_position(norms, "norm", np.zeros(2, np.int32)),
        "attention_by_position": [batch for index in range(len(QUERIES)) for batch in _weights(tensors, index)],
    }
    return measured | _summaries(measured)


def of_one_sequence(tables: dict[str, list[pa.RecordBatch]]) -> dict[str, list[pa.RecordBatch]]:
    """The rows of the same study with no sequence but the first, and what sums these up."""
    whole = {name: pa.Table.from_batches(tables[name]) for name in MEASURED}
    measured = {name: _of_the_first(rows).to_batches() for name, rows in whole.items()}
    return measured | _summaries(measured)


def _of_the_first(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.equal(rows["sequence"], 0)) if "sequence" in rows.column_names else rows


def landed(root: Path) -> Path:
    """Make ``root`` a data root whose warehouse holds the study ``small``."""
    tensors = tensor_store(root / "tensors.zarr")
    landing = land(root / "warehouse", "small", tables(tensors, metrics_store(root / "metrics.zarr", tensors)))
    assert landing.published, landing.violations
    return root


def _weights(tensors: SequenceStore, index: int) -> list[pa.RecordBatch]:
    """The rows of ``attention_by_position`` of one query."""
    query = QUERIES[index]
    weights = np.asarray(tensors.array("attention")[:, index], np.float64)
    return _by_position(weights[..., : query + 1], "weight", query + 1 - N_KEYS[index], query=query)


def _by_position(numbers: np.ndarray, quantity: str, first: np.ndarray, **constant: int) -> list[pa.RecordBatch]:
    """Mean and standard deviation over sequences of an array (sequence, layer, head, position)."""
    head = "head" if quantity == "weight" else "kv_head"
    settings = {"sequences": len(numbers), "head": head, "quantity": quantity, "first": first, "constant": constant}
    return list(rows.build_position_rows(zip(numbers.mean(0), numbers.std(0), strict=True), **settings))


def _summaries(measured: dict[str, list[pa.RecordBatch]]) -> dict[str, list[pa.RecordBatch]]:
    whole = {name: pa.Table.from_batches(batches) for name, batches in measured.items()}
    study = {name: rows.append_column("study", pa.array(["small"] * len(rows))) for name, rows in whole.items()}
    return {name: rows.drop_columns("study").to_batches() for name, rows in summaries(study).items()}
