"""The step of the sink effect: the correlation over heads of Recall and the sink's similarity.

Holds its rows, query by query.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dagster_project.steps.sources import Rows, Sources
from storage.warehouse.rows import build_batch
from storage.zarr.layers import read_layer


def compute_sink_effect(sources: Sources) -> Rows:
    """The correlation over heads of mean Recall and mean ρ_0 for every query and N, with bootstrap intervals.

    One query after the other, each layer by layer; the sums of one query are in memory.
    """
    from geometry.statistics.bootstrap import draw_sequences

    drawn = draw_sequences(sources.metrics.sizes["sequence"])
    for query in range(len(sources.queries)):
        yield "sink_effect", build_batch(_compute_query_effect(sources, query, drawn))


def _compute_query_effect(sources: Sources, query: int, drawn: NDArray[np.float32]) -> dict[str, Any]:
    """Columns of ``sink_effect`` for one index along ``query``: a row for every N that a layer has."""
    from tqdm import tqdm

    from geometry.statistics.bootstrap import SinkEffect

    metrics, position = sources.metrics, sources.queries[query]
    n_keys = metrics.read("n_keys", (slice(None), query)).max(axis=0)  # -1 in layers without attention
    effect = SinkEffect(int(n_keys.max()), drawn)
    for layer in tqdm(np.flatnonzero(n_keys > 1), desc=f"sink effect, query {position}", unit="layer", disable=None):

        def counts(layer: int = int(layer)) -> Iterator[NDArray[np.int32]]:
            sequences = range(metrics.sizes["sequence"])
            return (read_layer(metrics, "k_in", layer, sequence=sequence, query=query) for sequence in sequences)

        rho_0, size = read_layer(metrics, "rho_0_of_keys", int(layer), query=query), metrics.layers[layer]
        group = size.heads // size.kv_heads
        effect.add(counts, rho_0.repeat(group, axis=1), int(n_keys[layer]))
    low, high = effect.interval()
    constant = {"query": position, "sequences": metrics.sizes["sequence"]}
    return {
        **{name: np.full(low.size, value, np.int32) for name, value in constant.items()},
        "n": np.arange(1, low.size + 1, dtype=np.int32),
        "heads": effect.heads.astype(np.int32),
        "correlation": effect.correlation,
        "correlation_ci_low": low,
        "correlation_ci_high": high,
    }
