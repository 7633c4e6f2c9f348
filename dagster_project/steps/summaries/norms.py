"""The step of Assumption 1: the norms of the value states.

Holds the statistics of a KV head over all sequences.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagster_project.steps.sources import Rows, Sources
from geometry.statistics.running import standard_error, variation
from storage.warehouse.rows import build_batch
from storage.zarr.layers import list_attending_layers, read_layer

if TYPE_CHECKING:
    from storage.zarr.sequences import SequenceStore

NORM_QUANTILES = {"norm_p05": 0.05, "norm_p25": 0.25, "c": 0.5, "norm_p75": 0.75, "norm_p95": 0.95}
"""Columns of ``assumption_norms`` that are quantiles of the norms behind C."""


def compute_assumption_norms(sources: Sources) -> Rows:
    """Assumption 1: the norms of the value states of every KV head, layer by layer."""
    from tqdm import tqdm

    layers = tqdm(list_attending_layers(sources.metrics), desc="Assumption 1", unit="layer", disable=None)
    for layer in layers:
        yield "assumption_norms", build_batch(_compute_layer_norms(sources.metrics, layer))


def _compute_layer_norms(metrics: "SequenceStore", layer: int) -> dict[str, Any]:
    """Columns of ``assumption_norms``, one row per KV head of a layer.

    One sequence of the layer, and a few numbers for every sequence, are in memory.
    """
    from geometry.statistics.quantiles import stream_quantiles

    sequences, keys, kv_heads = metrics.sizes["sequence"], metrics.sizes["key"], metrics.layers[layer].kv_heads

    def chunks() -> Iterator[NDArray[np.float32]]:
        return (read_layer(metrics, "value_norm", layer, sequence=sequence) for sequence in range(sequences))

    total = np.zeros((kv_heads, keys - 1))
    sinks, medians, variations = (np.empty((sequences, kv_heads)) for _ in range(3))
    for sequence, chunk in enumerate(chunks()):
        others = chunk[:, 1:].astype(np.float64)
        total += others
        sinks[sequence], medians[sequence] = chunk[:, 0], np.median(others, axis=1)
        variations[sequence] = variation(others)
    quantiles = stream_quantiles(lambda: (chunk[:, 1:] for chunk in chunks()), list(NORM_QUANTILES.values()), kv_heads)
    columns = dict(zip(NORM_QUANTILES, quantiles.T, strict=True))
    usable = columns["c"] > 0
    return {
        "layer": np.full(kv_heads, layer, np.int16),
        "kv_head": np.arange(kv_heads, dtype=np.int16),
        "sequences": np.full(kv_heads, sequences, np.int32),
        "status": pa.array(np.where(usable, "ok", "zero").tolist(), pa.string()),
        **columns,
        "c_se": standard_error(medians),
        "lambda_sink": np.divide(np.median(sinks, axis=0), columns["c"], out=np.full(kv_heads, np.nan), where=usable),
        "cv_of_mean_norm": variation(total),
        "cv_within_sequence": variations.mean(axis=0),
        "cv_within_sequence_sd": variations.std(axis=0),
    }
