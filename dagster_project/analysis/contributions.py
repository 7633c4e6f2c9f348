"""The step of contributions: the part of each position in a head's output.

Holds means over sequences of ‖α_i v_i‖ and of cosines of value states.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagster_project.analysis.columns import index_columns
from dagster_project.analysis.sources import Rows, Sources
from geometry.arrays import F64
from geometry.statistics.moments import Mean
from storage.warehouse.rows import build_batch
from storage.zarr.layers import BLOCK_BYTES, list_runs, read_layers, split_run


@dataclass(frozen=True)
class _LayerMeans:
    """Means over sequences of one layer."""

    norms: Mean = field(default_factory=Mean)
    """Of ‖α_i v_i‖, (head, position)."""
    last: Mean = field(default_factory=Mean)
    """Of cos(v_i, v_last), (KV head, position)."""
    sink: Mean = field(default_factory=Mean)
    """Of cos(v_0, v_i), (KV head, position)."""


def compute_contributions(sources: Sources) -> Rows:
    """Contribution of each position to a head's output, and cosines of its value state with the sink's and the last.

    One query after the other, as many layers and sequences at once as fit in ``BLOCK_BYTES``;
    ``estimate_contributions_bytes`` are in memory, however many there are.
    """
    from tqdm import tqdm

    first_key = sources.tensors.read("first_key", slice(None)).max(axis=0)
    for index, query in enumerate(tqdm(sources.queries, desc="contributions", unit="query", disable=None)):
        for run in list_runs(sources.metrics, first_key[index]):
            if sources.metrics.layers[run.start].heads:
                first = int(first_key[index, run.start])
                layers = _measure_run(sources, index, run, slice(first, query + 1))
                yield from map(_build_rows, layers)  # which holds none while the next is made, unlike `zip` and `for`


def estimate_contributions_bytes(sizes: Mapping[str, int]) -> int:
    """Upper bound of the memory of the step, in bytes: a layer of some sequences, its statistics and its rows.

    Parameters
    ----------
    sizes
        Sizes of the axes ``head``, ``kv_head`` and ``key``.
    """
    block = max(BLOCK_BYTES, 8 * sizes["head"] * sizes["key"])
    return (60 * sizes["head"] + 45 * sizes["kv_head"]) * sizes["key"] + 5 * block + 2**18


def _measure_run(sources: Sources, index: int, run: slice, seen: slice) -> Iterator[dict[str, Any]]:
    """Columns of each layer of a run, at one index along ``query``."""
    tensors, metrics = sources.tensors, sources.metrics
    sequences, size = metrics.sizes["sequence"], metrics.layers[run.start]
    places = [(tensors, "attention"), (metrics, "cos_last_of_keys")]
    places += [(metrics, "value_norm"), (metrics, "cos_sink_of_keys")]
    means = _LayerMeans()
    for layers, part in split_run(run, sequences, 8 * size.heads * (seen.stop - seen.start), BLOCK_BYTES):
        arrays = [read_layers(store, name, layers, sequence=part, query=index, key=seen) for store, name in places]
        of_layers = zip(*(np.moveaxis(array, 1, 0) for array in arrays), strict=True)
        for layer, (weight, cos_last, length, cos_sink) in enumerate(of_layers, layers.start):
            of_heads = length.repeat(size.heads // size.kv_heads, axis=1)
            means.norms.add(np.multiply(weight, of_heads, dtype=np.float64))
            means.last.add(cos_last)
            means.sink.add(cos_sink)
            if part.stop == sequences:
                yield _build_columns(sources, layer, seen, means)
                means = _LayerMeans()


def _build_columns(sources: Sources, layer: int, seen: slice, means: _LayerMeans) -> dict[str, Any]:
    """Columns of ``contributions`` of one query and one layer.

    Positions that the window of any sequence hides have no row: a window hides the same in all of them.
    """
    size = sources.metrics.layers[layer]
    group, keys = size.heads // size.kv_heads, seen.stop - seen.start
    cos_sink = means.sink.value.repeat(group, axis=0) if seen.start == 0 else np.full((size.heads, keys), np.nan)
    constant = {"query": seen.stop - 1, "sequences": sources.metrics.sizes["sequence"], "layer": layer}
    place = index_columns((size.heads, keys), "head", "position", **constant)
    return {
        **place,
        "position": place["position"] + np.int32(seen.start),
        "mean_norm_y": _flatten(means.norms.value),
        "mean_cos_last": _flatten(means.last.value.repeat(group, axis=0)),
        "mean_cos_sink": _flatten(cos_sink),
    }


def _build_rows(columns: dict[str, Any]) -> tuple[str, pa.RecordBatch]:
    """Rows of ``contributions`` with the name of their table."""
    return "contributions", build_batch(columns)


def _flatten(statistic: F64) -> NDArray[np.float32]:
    """A column of a statistic, (head, position)."""
    return statistic.astype(np.float32).ravel()
