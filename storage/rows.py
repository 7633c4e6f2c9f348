"""The rows of every warehouse table, streamed from the stores as Arrow record batches.

Holds one function per table of ``sql/schema``. Each batch is at most one sequence of one study, so memory is bounded by
that, not by the study. What does not belong here: inserting them (``storage.warehouse``) and computing metrics.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from storage.arrays import SELECTION
from storage.sequences import SequenceStore

BY_N = tuple(spec.name for spec in SELECTION if spec.dims[-1] == "n")
"""The arrays of the metrics store that become columns of ``selection_counts``."""


def study_rows(tensors: SequenceStore) -> Iterator[pa.RecordBatch]:
    """The row of ``studies``, from the provenance of the tensor store."""
    provenance, sizes = tensors.provenance, tensors.sizes
    settings, inputs = provenance["settings"], provenance["inputs"]
    row = {
        "model": settings["model"]["id"],
        "revision": inputs["model"].get("commit") or inputs["model"].get("sha256"),
        "corpus": settings["corpus"]["id"],
        "context_length": sizes["key"],
        "sequences": sizes["sequence"],
        "layers": sizes["layer"],
        "heads": sizes["head"],
        "kv_heads": sizes["kv_head"],
        "head_dim": sizes["head_dim"],
        "dtype": settings["dtype"],
        "device": provenance["versions"]["device"],
        "provenance": json.dumps(provenance, sort_keys=True),
    }
    yield pa.RecordBatch.from_pylist([row])


def head_rows(sizes: Mapping[str, int]) -> Iterator[pa.RecordBatch]:
    """The rows of ``heads``: query head h reads KV head h // (heads / kv_heads)."""
    layer, head = (axis.ravel() for axis in np.indices((sizes["layer"], sizes["head"]), dtype=np.int16))
    yield _batch({"layer": layer, "head": head, "kv_head": head // (sizes["head"] // sizes["kv_head"])})


def token_rows(tokens: NDArray[np.int32], texts: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of ``tokens``, one batch per sequence.

    Parameters
    ----------
    tokens
        Token ids, (sequence, key).
    texts
        Text of each id of ``np.unique(tokens)``, in that order.
    """
    ids = np.unique(tokens)
    words = np.asarray(texts, dtype=object)
    for sequence, row in enumerate(tokens):
        yield _batch(
            {
                "sequence": np.full(row.size, sequence, np.int32),
                "position": np.arange(row.size, dtype=np.int32),
                "token_id": row,
                "token": words[np.searchsorted(ids, row)],
            }
        )


def selection_rows(metrics: SequenceStore, query: int) -> Iterator[pa.RecordBatch]:
    """The rows of ``selection_counts``, one batch per sequence; ``query`` is the position of the query."""
    sizes = metrics.sizes
    layer, head, n = (
        axis.ravel().astype(kind)
        for axis, kind in zip(
            np.indices((sizes["layer"], sizes["head"], sizes["n"]), dtype=np.int32), ("i2", "i2", "i4"), strict=True
        )
    )
    n += 1
    for sequence in range(sizes["sequence"]):
        n_keys = np.asarray(metrics.array("n_keys")[sequence])[layer].astype(np.int32)
        real = n < n_keys
        columns = {name: np.asarray(metrics.array(name)[sequence]).ravel() for name in BY_N}
        where = {"layer": layer, "head": head, "n": n, "n_keys": n_keys}
        rows = int(real.sum())
        constant = {"sequence": np.full(rows, sequence, np.int32), "query": np.full(rows, query, np.int32)}
        yield _batch(constant | {name: column[real] for name, column in (where | columns).items()})


def selection_row_count(metrics: SequenceStore) -> int:
    """How many rows ``selection_rows`` yields: n_keys − 1 for every sequence, layer and head."""
    n_keys = np.asarray(metrics.array("n_keys")[:])
    return int((n_keys - 1).clip(min=0).sum() * metrics.sizes["head"])


def position_rows(
    mean: NDArray[np.float64],
    deviation: NDArray[np.float64],
    *,
    sequences: int,
    head: str,
    quantity: str,
    first: NDArray[np.int32],
    constant: Mapping[str, int],
) -> Iterator[pa.RecordBatch]:
    """The rows of ``value_norm_by_position`` or ``attention_by_position``, one batch per layer.

    Parameters
    ----------
    mean, deviation
        Statistics over sequences, (layer, head, position).
    sequences
        How many sequences were averaged.
    head
        Name of the head's column: ``head`` or ``kv_head``.
    quantity
        Name of what was averaged; the columns are ``mean_…`` and ``sd_…``.
    first
        First position of each layer that has rows, (layer,).
    constant
        Columns that have one value in all rows.
    """
    for layer, start in enumerate(first):
        heads, position = (axis.ravel() for axis in np.indices(mean.shape[1:], dtype=np.int32))
        seen = position >= start
        rows = int(seen.sum())
        yield _batch(
            {name: np.full(rows, value, np.int32) for name, value in constant.items()}
            | {
                "layer": np.full(rows, layer, np.int16),
                head: heads[seen].astype(np.int16),
                "position": position[seen],
                "sequences": np.full(rows, sequences, np.int32),
                f"mean_{quantity}": mean[layer].ravel()[seen].astype(np.float32),
                f"sd_{quantity}": deviation[layer].ravel()[seen].astype(np.float32),
            }
        )


def _batch(columns: Mapping[str, NDArray[Any]]) -> pa.RecordBatch:
    """A record batch of NumPy columns; NaN becomes NULL."""
    return pa.RecordBatch.from_pydict({name: pa.array(column, from_pandas=True) for name, column in columns.items()})
