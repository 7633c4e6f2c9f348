"""One pass over the metrics of a study, layer by layer: what is averaged from an array shares one reading of it.

Holds the blocks that are read, and the pass that gives them to summaries: each measures a block on one of several
threads, and adds what it measured in the order of the blocks.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dagster_project.analysis.sources import Rows, Sources
from geometry.threads import one_blas_thread
from storage.zarr.layers import list_attending_layers, read_layer, split_sequences

BLOCK_BYTES = 2**26
"""Largest size of one array of a block, unless one sequence of a layer takes more."""


@dataclass(frozen=True)
class Block:
    """Some sequences of one layer at one query whose heads attend to two keys or more."""

    sources: Sources
    index: int
    """Index of the query along its axis."""
    layer: int
    n_keys: int
    """Keys that the query attends to."""
    sequences: slice
    """Numbers of the sequences."""
    is_last: bool
    """Whether these are the last sequences of the layer."""
    _arrays: dict[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def query(self) -> int:
        """Position of the query."""
        return self.sources.queries[self.index]

    @property
    def heads(self) -> int:
        """Query heads of the layer."""
        return self.sources.metrics.layers[self.layer].heads

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return self.heads // self.sources.metrics.layers[self.layer].kv_heads

    def read(self, name: str) -> NDArray[Any]:
        """Read an array of the metrics once: (sequence, head, …), N along the last axis as far as there are keys."""
        if name not in self._arrays:
            metrics = self.sources.metrics
            array = read_layer(metrics, name, self.layer, query=self.index, sequence=self.sequences)
            self._arrays[name] = array[..., : self.n_keys - 1] if metrics.specs[name].dims[-1] == "n" else array
        return self._arrays[name]


class Summary(Protocol):
    """What is computed from the blocks of one pass."""

    def measure(self, block: Block) -> Any:
        """Measure one block, on any thread; nothing is kept."""

    def add(self, block: Block, measured: Any) -> Rows:
        """Add what was measured, in the order of blocks, and yield the rows that are complete with it."""

    def finish(self) -> Rows:
        """Yield the rows that are complete only now."""


def run_pass(sources: Sources, summaries: Sequence[Summary], *, what: str, last_query: bool = False) -> Rows:
    """Read the metrics of every query and layer once, and yield the rows of all summaries.

    Memory: of each array that is read, at most ``BLOCK_BYTES`` (or one sequence of a layer) for each core and one more.

    Parameters
    ----------
    sources
        The study.
    summaries
        What is computed.
    what
        What the progress bar says.
    last_query
        Whether only the last query is read.
    """
    from tqdm import tqdm

    blocks = list(_list_blocks(sources, last_query=last_query))
    cores = os.cpu_count() or 1
    with one_blas_thread, ThreadPoolExecutor(cores) as threads:
        measured = _map_ahead(threads, lambda block: [summary.measure(block) for summary in summaries], blocks, cores)
        for block, parts in tqdm(measured, what, len(blocks), unit="block", disable=None):
            for summary, part in zip(summaries, parts, strict=True):
                yield from summary.add(block, part)
    for summary in summaries:
        yield from summary.finish()


def _map_ahead(
    threads: ThreadPoolExecutor, measure: Callable[[Block], list[Any]], blocks: list[Block], ahead: int
) -> Iterator[tuple[Block, list[Any]]]:
    """Measure blocks in order, at most ``ahead`` + 1 of them at a time."""
    running = [threads.submit(measure, block) for block in blocks[: ahead + 1]]
    for index, block in enumerate(blocks):
        parts = running.pop(0).result()
        if index + ahead + 1 < len(blocks):
            running.append(threads.submit(measure, blocks[index + ahead + 1]))
        yield block, parts
        block._arrays.clear()


def _list_blocks(sources: Sources, *, last_query: bool) -> Iterator[Block]:
    """The blocks of a study, query by query and layer by layer."""
    metrics = sources.metrics
    total = metrics.sizes["sequence"]
    for index in [len(sources.queries) - 1] if last_query else range(len(sources.queries)):
        n_keys = metrics.read("n_keys", (slice(None), index)).max(axis=0)  # -1 in layers without attention
        for layer in list_attending_layers(metrics):
            if n_keys[layer] < 2:
                continue
            of_sequence = 4 * metrics.layers[layer].heads * int(n_keys[layer])
            for part in split_sequences(total, of_sequence, BLOCK_BYTES):
                yield Block(sources, index, layer, int(n_keys[layer]), part, part.stop == total)


def fill_columns(rows: int, **constants: int) -> dict[str, NDArray[np.int32]]:
    """Columns that have one value in all rows."""
    return {name: np.full(rows, value, np.int32) for name, value in constants.items()}
