"""The step of Table 2: the regimes of every head, sequence by sequence.

Holds their rows, query by query and layer by layer.
"""

from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagster_project.analysis.sources import Rows, Sources
from geometry.assumptions.regimes import REGIMES, Regimes, classify_keys, find_regimes
from storage.warehouse.rows import build_batch, fill_columns
from storage.zarr.layers import BLOCK_BYTES, list_attending_layers, read_layer, split_sequences


def compute_regimes_by_sequence(sources: Sources) -> Rows:
    """Table 2: where regimes begin and how Δ/B changes within them, for every query, sequence and head.

    One layer of one query after the other; ``BLOCK_BYTES`` of a layer and its rows are in memory.
    """
    fits = {
        (row["query"], row["layer"], row["head"]): row
        for row in sources.read_rows("assumption_weights")
        if row["status"] == "ok"
    }
    places = [
        (index, layer) for index in range(len(sources.queries)) for layer in list_attending_layers(sources.tensors)
    ]
    for index, layer in places:
        heads = range(sources.metrics.layers[layer].heads)
        of_heads = {head: fit for head in heads if (fit := fits.get((sources.queries[index], layer, head)))}
        if of_heads:
            yield from _compute_layer(sources, index, layer, of_heads)


def _compute_layer(sources: Sources, index: int, layer: int, fits: dict[int, dict[str, Any]]) -> Rows:
    """The rows of one index along ``query`` and one layer, for the heads that have a fit; none with one key."""
    from geometry.bounds import lower

    query, metrics = sources.queries[index], sources.metrics
    first = int(read_layer(sources.tensors, "first_key", layer, query=index).max())
    seen, heads, n_keys = slice(first, query + 1), list(fits), query + 1 - first
    if n_keys < 2:
        return
    positions = np.arange(first, query + 1)
    classes = np.stack([_classify_keys(positions, fit) for fit in fits.values()])
    group = metrics.layers[layer].heads // metrics.layers[layer].kv_heads
    of_margin = [name for name in lower.INGREDIENTS if name != "a_0"]
    regimes = []
    for some in split_sequences(metrics.sequences, 8 * n_keys * len(heads), BLOCK_BYTES):
        weights = read_layer(sources.tensors, "attention", layer, key=seen, sequence=some, query=index)[:, heads]
        where: dict[str, Any] = {"query": index, "sequences": some}
        parts = {name: array[:, heads] for name, array in metrics.read_together(of_margin, layer, **where).items()}
        unit: Any = 1.0
        if sources.study.analysis.scale == "unit":
            scale = metrics.read("value_scale", layer, **where).astype(np.float64)
            unit = scale.repeat(group, axis=1)[:, heads, None]
        margins = lower.margin(lower.Ingredients(**parts), unit)
        of_block = weights.reshape(-1, n_keys), np.tile(classes, (len(weights), 1)), margins.reshape(-1, n_keys - 1)
        regimes.append(find_regimes(*of_block))
    yield "regimes_by_sequence", build_batch(_build_columns(regimes, heads, query, layer))


def _classify_keys(positions: Any, fit: dict[str, Any]) -> Any:
    """The classes of keys by a row of ``assumption_weights``."""
    wave = {name: np.nan if fit[name] is None else fit[name] for name in ("eta", "omega")}
    return classify_keys(positions, t_1=int(fit["t_1"]), t_2=int(fit["t_2"]), **wave)


def _build_columns(regimes: list[Regimes], heads: list[int], query: int, layer: int) -> dict[str, Any]:
    """Columns of the regimes that have an N, of all sequences; regimes: of blocks of these, (sequence · head, 5)."""
    shape, names = (-1, len(heads), len(REGIMES)), [field.name for field in fields(Regimes)]
    blocks = {name: [getattr(block, name) for block in regimes] for name in names}
    numbers: dict[str, NDArray[Any]] = {name: np.concatenate(parts).reshape(shape) for name, parts in blocks.items()}
    first, last = numbers.pop("first_n"), numbers.pop("last_n")  # (sequence, head, regime)
    there = first > 0
    sequence, head, regime = np.nonzero(there)
    return {
        "sequence": sequence.astype(np.int32),
        **fill_columns(sequence.size, query=query, layer=layer),
        "head": np.array(heads, np.int16)[head],
        "regime": pa.array([REGIMES[index] for index in regime], pa.string()),
        "first_n": first[there].astype(np.int32),
        "last_n": last[there].astype(np.int32),
        **{name: array[there] for name, array in numbers.items()},
    }
