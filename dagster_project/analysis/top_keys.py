"""The step of the keys of largest weight of every head, one by one."""

from dagster_project.analysis.sources import Rows, Sources
from geometry.selection.top_keys import top_keys
from storage.warehouse.rows import build_top_key_rows
from storage.zarr.layers import list_attending_layers, read_layer

SELECTED = 4
"""N of s_N: that of the maps by default, but no setting, since tensors may have been dropped when that changes."""


def compute_top_keys(sources: Sources) -> Rows:
    """The keys of largest weight of every sequence, query and head, with their distances from s_N at N = ``SELECTED``.

    The weights of one layer, and its value states, are in memory for one sequence.
    """
    tensors = sources.tensors
    first_key = tensors.read("first_key", slice(None))
    for sequence in range(tensors.sizes["sequence"]):
        for layer in list_attending_layers(tensors):
            values = read_layer(tensors, "values", layer, sequence=sequence)[:, None]
            attention = read_layer(tensors, "attention", layer, sequence=sequence)  # (query, head, key)
            for index, query in enumerate(sources.queries):
                first = int(first_key[sequence, index, layer])
                weights = attention[index, :, first : query + 1]
                grouped, at_n = weights.reshape(len(values), -1, query + 1 - first), min(SELECTED, query + 1 - first)
                ranked = top_keys(grouped, values[:, :, first : query + 1], n=at_n)
                place = {"sequence": sequence, "query": query, "layer": layer}
                yield "top_keys", build_top_key_rows(vars(ranked), first=first, n=at_n, **place)
