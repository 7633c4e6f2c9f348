"""The step of the keys of largest weight of every head, one by one."""

from dagster_project.analysis.sources import Rows, Sources
from geometry.selection.top_keys import top_keys
from storage.warehouse.rows import build_top_key_rows
from storage.zarr.layers import BLOCK_BYTES, list_attending_layers, read_layer, split_sequences

SELECTED = 4
"""N of s_N: that of the maps by default, but no setting, since tensors may have been dropped when that changes."""


def compute_top_keys(sources: Sources) -> Rows:
    """The keys of largest weight of every sequence, query and head, with their distances from s_N at N = ``SELECTED``.

    ``BLOCK_BYTES`` of the weights and value states of a layer are in memory.
    """
    tensors = sources.tensors
    for layer in list_attending_layers(tensors):
        size, first_keys = tensors.layers[layer], tensors.read("first_key", (slice(None), slice(None), layer))
        of_key = len(sources.queries) * size.heads + size.kv_heads * size.head_dim
        for block in split_sequences(tensors.sizes["sequence"], 4 * tensors.sizes["key"] * of_key, BLOCK_BYTES):
            values, attention = (read_layer(tensors, name, layer, sequence=block) for name in ("values", "attention"))
            for at, sequence in enumerate(range(block.start, block.stop)):
                for index, query in enumerate(sources.queries):
                    seen = slice(int(first_keys[sequence, index]), query + 1)
                    grouped = attention[at, index, :, seen].reshape(size.kv_heads, -1, seen.stop - seen.start)
                    at_n = min(SELECTED, seen.stop - seen.start)
                    ranked = top_keys(grouped, values[at, :, None, seen], n=at_n)
                    place = {"sequence": sequence, "query": query, "layer": layer}
                    yield "top_keys", build_top_key_rows(vars(ranked), first=seen.start, n=at_n, **place)
