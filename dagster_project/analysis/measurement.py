"""The measurement of one sequence: block by block its tensors are read and its metrics computed.

A block is one layer, or the heads of one layer whose value states are stored as one chunk. Blocks of a sequence fill
their own parts of the same arrays and are computed in parallel. What does not belong here: the metrics store, and which
sequences are measured where.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dagster_project.study.settings import AnalysisSettings
from storage.zarr.arrays import CHUNK_BYTES, METRIC_CHUNK_BYTES, SELECTION
from storage.zarr.layers import read_query_positions
from storage.zarr.sequences import WRITING, SequenceStore
from storage.zarr.space import estimate_sequence_bytes

Arrays = Mapping[str, NDArray[Any]]
"""The results of one sequence by name."""


@dataclass(frozen=True)
class Block:
    """Heads of one layer that are measured together."""

    layer: int
    heads: slice
    kv_heads: slice
    head_dim: int

    def select(self, dims: Sequence[str]) -> tuple[int | slice, ...]:
        """The index of this block in an array of one sequence with these axes."""
        of_block: dict[str, int | slice] = {
            "layer": self.layer,
            "head": self.heads,
            "kv_head": self.kv_heads,
            "head_dim": slice(self.head_dim),
        }
        return tuple(of_block.get(dim, slice(None)) for dim in dims)


def list_blocks(tensors: SequenceStore) -> list[Block]:
    """The blocks of every sequence of a tensor store."""
    together = tensors.array("values").chunks[tensors.specs["values"].dims.index("kv_head")]
    blocks = []
    for layer, size in enumerate(tensors.layers):
        for first in range(0, size.kv_heads, together):
            last, group = min(first + together, size.kv_heads), size.heads // size.kv_heads
            blocks.append(Block(layer, slice(group * first, group * last), slice(first, last), size.head_dim))
    return blocks


def make_arrays(sizes: Mapping[str, int]) -> dict[str, NDArray[Any]]:
    """Arrays for the results of one sequence, by name, as ``clear_arrays`` leaves them.

    ``sizes`` are those of the axes of the metrics store; an array has all axes of the store's but ``sequence``.
    """
    arrays = {spec.name: np.empty(spec.shape(sizes)[1:], spec.dtype) for spec in SELECTION if spec.name != "finished"}
    clear_arrays(arrays)
    return arrays


def clear_arrays(arrays: Arrays) -> None:
    """Give every element of the arrays of a sequence its fill value, which those that nothing measures keep."""
    for spec in SELECTION:
        if spec.name in arrays:
            arrays[spec.name].fill(spec.fill)


def measure_sequence(
    tensors: SequenceStore, analysis: AnalysisSettings, sequence: int, arrays: Arrays, *, go_on: Callable[[], None]
) -> None:
    """Measure one sequence block by block on the CPU.

    Parameters
    ----------
    arrays
        As for ``measure_block``.
    go_on
        Called before each block; an error that it raises ends the computation.
    """
    for block in list_blocks(tensors):
        go_on()
        measure_block(tensors, analysis, sequence, block, arrays, None)


def measure_block(
    tensors: SequenceStore,
    analysis: AnalysisSettings,
    sequence: int,
    block: Block,
    arrays: Arrays,
    device: str | None,
) -> None:
    """Read the tensors of one block and fill its part of the arrays of a sequence.

    Parameters
    ----------
    arrays
        Those of ``make_arrays``; elements that a query or a layer does not have are left.
    device
        Where it is computed: None for the CPU, or a CUDA device.
    """
    from geometry.selection.layers import measure_layer

    def read(name: str, **where: slice) -> NDArray[Any]:
        dims = tensors.specs[name].dims[1:]
        index = zip(dims, block.select(dims), strict=True)
        return tensors.read(name, (sequence, *(where.get(dim, part) for dim, part in index)))

    def read_weights() -> Iterator[NDArray[np.float32]]:
        of_query = np.dtype(np.float32).itemsize * (block.heads.stop - block.heads.start) * tensors.sizes["key"]
        together = max(1, CHUNK_BYTES // of_query)
        for first in range(0, len(queries), together):
            yield from read("attention", query=slice(first, first + together))

    queries = read_query_positions(tensors)
    out = {spec.name: arrays[spec.name][block.select(spec.dims[1:])] for spec in SELECTION if spec.name in arrays}
    out.pop("learned_sink")[:] = read("learned_sink")
    measure_layer(
        read_weights(),
        read("values"),
        read("first_key").tolist(),
        queries,
        out,
        kappas=analysis.kappas,
        scale=analysis.scale,
        device=device,
    )


def estimate_sequence_memory(
    tensors: SequenceStore, analysis: AnalysisSettings, threads: int = 1, sequences: int = 1
) -> int:
    """Upper bound of the memory that measuring takes, in bytes; a worker has one thread and one sequence at a time.

    It is the sum of the results of ``sequences`` sequences as they are stored, a block and the weights of some queries
    for each thread, and the chunks that are being written to the store.
    """
    from geometry.selection.layers import estimate_layer_bytes

    sizes = compute_metrics_sizes(tensors, analysis)
    results = estimate_sequence_bytes(SELECTION, sizes)
    largest = max(estimate_sequence_bytes([spec], sizes) for spec in SELECTION)
    blocks = (
        estimate_layer_bytes(
            tensors.sizes,
            block.heads.stop - block.heads.start,
            block.kv_heads.stop - block.kv_heads.start,
            len(analysis.kappas),
        )
        for block in list_blocks(tensors)
    )
    of_query = 4 * tensors.sizes["head"] * tensors.sizes["key"]
    rows = min(max(CHUNK_BYTES, of_query), tensors.sizes["query"] * of_query)  # weights that are read together
    writing = min(WRITING * METRIC_CHUNK_BYTES, 3 * largest)
    return sequences * results + threads * (max(blocks) + rows) + writing


def compute_metrics_sizes(tensors: SequenceStore, analysis: AnalysisSettings) -> dict[str, int]:
    """Sizes of the axes of the metrics store of these tensors."""
    sizes = {key: size for key, size in tensors.sizes.items() if key != "head_dim"}
    return sizes | {"kappa": len(analysis.kappas), "n": read_query_positions(tensors)[-1]}
