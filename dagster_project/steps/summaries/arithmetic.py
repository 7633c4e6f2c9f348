"""The step of plain arithmetic: the errors of counts and metrics if distances are computed by the formulas as written.

Holds the computation of its rows for a sample of heads. The counts are computed by ``geometry.selection.arithmetic``.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dagster_project.steps.cluster import run_in_parallel
from dagster_project.steps.sources import Rows, Sources
from storage.warehouse.rows import build_batch
from storage.zarr.layers import list_attending_layers, read_layer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from geometry.selection.arithmetic import PlainArithmetic
    from storage.zarr.sequences import SequenceStore

SEQUENCES = 2
"""Largest number of sequences that are compared."""

HEADS = 64
"""Largest number of heads that are compared."""

POINTS = 128
"""Largest number of N that are compared, not counting ``SMALL``."""

SMALL = 4
"""The N whose means have columns of their own."""


def compute_arithmetic(sources: Sources) -> Rows:
    """How often counts by plain float32 and float64 distances differ from exact ones, and by how much metrics change.

    Up to ``HEADS`` heads are compared, at the last query of the first ``SEQUENCES`` sequences. There is one task per
    layer, with one head in memory.
    """
    tensors, index = sources.tensors, len(sources.queries) - 1
    sequences = min(SEQUENCES, tensors.sizes["sequence"])
    tasks = [
        partial(_compare_layer, tensors, layer, heads, index, sources.query, sequences)
        for layer, heads in sample_heads(tensors).items()
    ]
    for rows in run_in_parallel(tasks, reads=(tensors.path,)):
        yield from (("arithmetic", build_batch(columns)) for columns in rows)


def sample_heads(tensors: "SequenceStore") -> dict[int, list[int]]:
    """The heads that are compared, evenly spaced over all heads of the model, by layer."""
    places = [(layer, head) for layer in list_attending_layers(tensors) for head in range(tensors.layers[layer].heads)]
    spaced = np.linspace(0, len(places) - 1, min(HEADS, len(places))).astype(np.int64)
    found: dict[int, list[int]] = {}
    for layer, head in (places[index] for index in spaced):
        found.setdefault(layer, []).append(head)
    return found


def select_sizes(keys: int) -> "NDArray[np.int64]":
    """The N that are compared for a head with ``keys`` keys, ascending; none for a single key."""
    spaced = np.linspace(1, keys - 1, min(POINTS, keys - 1)).astype(np.int64)
    return np.union1d(spaced, [SMALL]) if keys > SMALL else spaced


def _compare_layer(
    tensors: "SequenceStore", layer: int, heads: Sequence[int], index: int, query: int, sequences: int
) -> list[dict[str, Any]]:
    """Columns of ``arithmetic`` for each of some heads of a layer; none for heads that attend to one key."""
    first = int(read_layer(tensors, "first_key", layer, query=index).max())
    n = select_sizes(query + 1 - first)
    if not n.size:
        return []
    place = {"query": query, "sequences": sequences, "n_values": n.size}
    found = []
    for head in heads:
        means = _compare_head(tensors, layer, head, index, slice(first, query + 1), n, sequences)
        rows = len(means["arithmetic"])
        constant = {name: np.full(rows, value, np.int32) for name, value in place.items()}
        constant |= {name: np.full(rows, value, np.int16) for name, value in (("layer", layer), ("head", head))}
        found.append(constant | means)
    return found


def _compare_head(
    tensors: "SequenceStore",
    layer: int,
    head: int,
    index: int,
    keys: slice,
    n: "NDArray[np.int64]",
    sequences: int,
) -> dict[str, Any]:
    """The means over sequences of one head, in order of the arithmetics."""
    from geometry.selection.arithmetic import ARITHMETICS, plain_arithmetic

    size = tensors.layers[layer]
    total: dict[str, Any] = {}
    for sequence in range(sequences):
        weights = read_layer(tensors, "attention", layer, sequence=sequence, query=index, head=head, key=keys)
        group = head // (size.heads // size.kv_heads)
        states = read_layer(tensors, "values", layer, sequence=sequence, kv_head=group, key=keys)
        for name, value in _compute_differences(plain_arithmetic(weights, states, n)).items():
            total[name] = total.get(name, 0) + value / sequences
    return {"arithmetic": pa.array(ARITHMETICS), **total}


def _compute_differences(plain: "PlainArithmetic") -> dict[str, Any]:
    """Columns of one sequence, in order of the arithmetics; NaN at ``SMALL`` if that N is not compared."""
    rows, at = len(plain.k_in), np.flatnonzero(plain.n == SMALL)[:1]
    metrics = {
        "recall": (plain.exact_k_in / plain.n, plain.recall_differs, plain.recall_difference),
        "precision": (plain.n / (plain.n + plain.exact_k_out), plain.precision_differs, plain.precision_difference),
    }
    found: dict[str, Any] = {}
    for name, (exact, differs, difference) in metrics.items():
        small = np.vstack([np.broadcast_to(exact, difference.shape)[:, at].T, difference[:, at].T])
        exact_small, difference_small = small if at.size else np.full((2, rows), np.nan)
        found |= {
            f"{name}_differs": differs,
            f"{name}_difference": difference.mean(axis=-1),
            f"{name}_at_{SMALL}": exact_small,
            f"{name}_difference_at_{SMALL}": difference_small,
        }
    return found
