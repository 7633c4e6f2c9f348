"""The measurement of one layer: sequence by sequence its tensors are read, and the rows of its quantities made.

Heads of the layer whose value states are stored as one chunk are measured together. What does not belong here: where
the rows are written, and which layers are measured where.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dagster_project.analysis.sources import Rows
from dagster_project.study.settings import AnalysisSettings
from geometry.quantities import SELECTION, Axes
from storage.files.parts import ROW_GROUP
from storage.warehouse.rows import build_measured_rows
from storage.zarr.arrays import CHUNK_BYTES
from storage.zarr.layers import index_part, read_layer, read_query_positions
from storage.zarr.sequences import SequenceStore

Arrays = Mapping[str, NDArray[Any]]  # The quantities of one layer of one sequence by name
PLACE_BYTES = 26  # Most bytes of the columns that say where a row belongs


def measure_rows(
    tensors: SequenceStore,
    analysis: AnalysisSettings,
    layer: int,
    device: str | None = None,
    *,
    go_on: Callable[[], None] = lambda: None,
) -> Rows:
    """The rows of ``storage.warehouse.rows.MEASURED`` of one layer, sequence by sequence.

    They are computed on the CPU, or a CUDA ``device``. ``go_on`` is called before each sequence, and after the last; an
    error that it raises ends the computation.
    """
    queries = read_query_positions(tensors)
    settings: dict[str, Any] = {"queries": queries, "kappas": analysis.kappas, "scale": analysis.scale}
    for sequence in range(tensors.sizes["sequence"]):
        go_on()
        arrays = _measure_sequence(tensors, queries, analysis, layer, sequence, device)
        yield from build_measured_rows(arrays, sequence=sequence, layer=layer, **settings)
    go_on()


def _measure_sequence(
    tensors: SequenceStore,
    queries: Sequence[int],
    analysis: AnalysisSettings,
    layer: int,
    sequence: int,
    device: str | None,
) -> Arrays:
    """The quantities of one layer of one sequence."""
    from geometry.layers import make_outputs, measure_layer

    size = tensors.layers[layer]
    sizes = compute_sizes(tensors, queries, analysis) | {"head": size.heads, "kv_head": size.kv_heads}
    arrays = make_outputs(sizes)
    first_key = tensors.read("first_key", (sequence, slice(None), layer)).tolist()
    axes = {name: [axis for axis in SELECTION[name].axes if axis != "layer"] for name in arrays}
    for heads, kv_heads in list_blocks(tensors, layer):
        own = {"head": heads, "kv_head": kv_heads}
        out = {name: array[index_part(size, axes[name], **own)] for name, array in arrays.items()}
        where = own | {"sequence": sequence}
        out.pop("learned_sink")[:] = read_layer(tensors, "learned_sink", layer, **where)
        measure_layer(
            _read_weights(tensors, layer, **where),
            read_layer(tensors, "values", layer, **where),
            first_key,
            queries,
            out,
            kappas=analysis.kappas,
            scale=analysis.scale,
            device=device,
        )
    return arrays


def _read_weights(tensors: SequenceStore, layer: int, **where: Any) -> Iterator[NDArray[np.float32]]:
    """The weights of each query, (head, key), of which ``CHUNK_BYTES`` are read together."""
    of_query = np.dtype(np.float32).itemsize * (where["head"].stop - where["head"].start) * tensors.sizes["key"]
    together = max(1, CHUNK_BYTES // of_query)
    for first in range(0, tensors.sizes["query"], together):
        yield from read_layer(tensors, "attention", layer, **where, query=slice(first, first + together))


def list_blocks(tensors: SequenceStore, layer: int) -> list[tuple[slice, slice]]:
    """The heads and KV heads of a layer that are measured together."""
    together = tensors.array("values").chunks[tensors.specs["values"].dims.index("kv_head")]
    size, blocks = tensors.layers[layer], []
    for first in range(0, size.kv_heads, together):
        last, group = min(first + together, size.kv_heads), size.heads // size.kv_heads
        blocks.append((slice(group * first, group * last), slice(first, last)))
    return blocks


def compute_sizes(tensors: SequenceStore, queries: Sequence[int], analysis: AnalysisSettings) -> dict[str, int]:
    """Sizes of the axes of the quantities of these tensors, of their largest layer."""
    return tensors.sizes | {"kappa": len(analysis.kappas), "n": queries[-1]}


def estimate_bytes(sizes: Mapping[str, int], sequences: int = 1) -> int:
    """Bytes of the rows of one layer, uncompressed, of which at most a group of each table is held until it is written.

    ``sizes``: of the axes of the quantities; ``sequences``: how many are measured. One is held as a whole.
    """
    of_axes: Counter[Axes] = Counter()
    for quantity in SELECTION.values():
        of_axes[quantity.axes] += np.dtype(quantity.dtype).itemsize
    rows = {axes: prod(sizes[axis] for axis in axes if axis != "layer") for axes in of_axes}
    return sum(
        min(rows[axes] * sequences, rows[axes] + ROW_GROUP) * (of_row + PLACE_BYTES) for axes, of_row in of_axes.items()
    )


def estimate_held_bytes(sizes: Mapping[str, int]) -> int:
    """Bytes of what is measured of a layer and in memory: a sequence as arrays, and rows twice, as pages, too."""
    return estimate_bytes(sizes) + 2 * estimate_bytes(sizes, sizes["sequence"])


def estimate_memory(tensors: SequenceStore, analysis: AnalysisSettings, threads: int = 1) -> int:
    """Upper bound of the memory that measuring takes, in bytes, of which each thread has a layer in hand."""
    from geometry.layers import estimate_layer_bytes

    sizes = compute_sizes(tensors, read_query_positions(tensors), analysis)
    blocks = (
        estimate_layer_bytes(
            tensors.sizes, heads.stop - heads.start, kv_heads.stop - kv_heads.start, len(analysis.kappas)
        )
        for layer in range(len(tensors.layers))
        for heads, kv_heads in list_blocks(tensors, layer)
    )
    of_query = 4 * tensors.sizes["head"] * tensors.sizes["key"]
    read = min(max(CHUNK_BYTES, of_query), tensors.sizes["query"] * of_query)  # weights that are read together
    return threads * (estimate_held_bytes(sizes) + max(blocks) + read)
