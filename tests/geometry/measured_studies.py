"""The quantities of ``SELECTION`` of arrays in memory, layer by layer."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from geometry.layers import measure_layer
from geometry.quantities import SELECTION

MEASURED = tuple(name for name in SELECTION if name != "learned_sink")
"""What is measured; the learned sink is a model's own number, captured with the weights."""


def make_filled(sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Arrays of one layer that hold nothing yet."""
    return {
        name: np.full([sizes[axis] for axis in SELECTION[name].axes if axis != "layer"], SELECTION[name].fill, dtype)
        for name in MEASURED
        for dtype in (SELECTION[name].dtype,)
    }


def measure_study(
    attention: np.ndarray, values: np.ndarray, first_key: np.ndarray, queries: Sequence[int], **settings: Any
) -> dict[str, np.ndarray]:
    """Every array, (sequence, …), from weights (sequence, query, layer, head, key), value states and first keys."""
    sequences, asked, layers, heads, _ = attention.shape
    sizes = {"query": asked, "head": heads, "kv_head": values.shape[2], "key": values.shape[3], "n": max(queries)}
    sizes["kappa"] = len(settings.get("kappas", (0.5,)))
    found: dict[str, list[list[np.ndarray]]] = {name: [[] for _ in range(sequences)] for name in MEASURED}
    for sequence, layer in np.ndindex(sequences, layers):
        out, at = make_filled(sizes), (sequence, slice(None), layer)
        measure_layer(attention[at], values[sequence, layer], first_key[at].tolist(), queries, out, **settings)
        for name, array in out.items():
            found[name][sequence].append(array)
    stacked = {name: np.array([np.stack(of_layers) for of_layers in arrays]) for name, arrays in found.items()}
    return {name: np.moveaxis(array, 1, 1 + SELECTION[name].axes.index("layer")) for name, array in stacked.items()}
