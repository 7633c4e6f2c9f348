"""One pass over the metrics of a study, layer by layer: what is averaged from an array shares one reading of it.

Holds the blocks that are read, and the pass that gives these to summaries: each measures a block on one of several
threads, and adds what it measured in the order of the blocks.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dagster_project.analysis.cluster import count_threads
from dagster_project.analysis.metrics import list_together
from dagster_project.analysis.sources import Rows, Sources
from geometry.arrays import F64, I64
from geometry.bounds.lower import INGREDIENTS, Ingredients, margin, margin_sink
from geometry.grids import log_grid
from geometry.threads import one_blas_thread
from storage.zarr.arrays import LayerSize
from storage.zarr.layers import split_sequences

BLOCK_BYTES = 2**23  # Largest size of one array of a block, unless one sequence of a layer takes more


@dataclass(frozen=True)
class Block:
    """Some sequences of one layer at one query, of which each array is read once."""

    sources: Sources
    index: int  # Index of the query along its axis
    layer: int
    n_keys: int  # Keys that the query attends to, at least 2
    sequences: slice  # Numbers of the sequences
    is_last: bool  # Whether these are the last sequences of the layer
    _arrays: dict[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def query(self) -> int:
        """Position of the query."""
        return self.sources.queries[self.index]

    @property
    def size(self) -> LayerSize:
        """Sizes of the layer."""
        return self.sources.metrics.layers[self.layer]

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return self.size.heads // self.size.kv_heads

    def read(self, name: str) -> NDArray[Any]:
        """Read a measured quantity once: (sequence, head, …), N along the last axis as far as there are keys.

        Those of its table are read with it: together they take half as long, 1.3 s less for SmolLM2.
        """
        if name not in self._arrays:
            where: dict[str, Any] = {"query": self.index, "sequences": self.sequences}
            self._arrays.update(self.sources.metrics.read_together(list_together(name), self.layer, **where))
        return self._arrays[name]

    @property
    def grid(self) -> I64:
        """The N of the log grid of the query that are below the keys of the layer."""
        grid = log_grid(max(self.query + 1, 2))
        return grid[grid < self.n_keys]

    @property
    def unit(self) -> F64:
        """What weighted norms are divided by in the scale of the study: C or 1, (sequence, head)."""
        scale = self.read("value_scale").astype(np.float64).repeat(self.group, axis=1)
        return scale if self.sources.study.analysis.scale == "unit" else np.ones(scale.shape)

    @cached_property
    def margins(self) -> tuple[F64, F64]:
        """Δ/B and Δ_0/B in this scale, (sequence, head, N) each, NaN where there is none; kept for all summaries."""
        parts = Ingredients(**{name: self.read(name) for name in INGREDIENTS})
        return margin(parts, self.unit[..., None]), margin_sink(parts, self.unit[..., None])

    def clear(self) -> None:
        """Free the arrays once they are measured."""
        self._arrays.clear()
        self.__dict__.pop("margins", None)


class Summary(ABC):
    """What is computed from the blocks of the pass."""

    @abstractmethod
    def measure(self, block: Block) -> Any:
        """Measure one block, on any thread; nothing is kept."""

    @abstractmethod
    def add(self, block: Block, measured: Any) -> Rows:
        """Add what was measured, in the order of blocks, and yield the rows that are complete with it."""

    def finish(self) -> Rows:
        """Yield the rows that are complete only now."""
        yield from ()


def run_pass(sources: Sources, summaries: Sequence[Summary]) -> Rows:
    """Read the metrics of every query and layer once, and yield the rows of all summaries.

    Memory: of each array that is read, at most ``BLOCK_BYTES`` (or one sequence of a layer) for each core and one more;
    and for as many blocks the margins, 16 bytes for each selection.
    """
    with one_blas_thread, ThreadPoolExecutor(number := count_threads()) as threads:
        measured = _map_ahead(threads, partial(_measure_block, summaries), list(_list_blocks(sources)), number)
        for block, parts in measured:
            for summary, part in zip(summaries, parts, strict=True):
                yield from summary.add(block, part)
    for summary in summaries:
        yield from summary.finish()


def _measure_block(summaries: Sequence[Summary], block: Block) -> list[Any]:
    """What every summary measures of a block, whose arrays are then freed by the thread that read them."""
    measured = [summary.measure(block) for summary in summaries]
    block.clear()
    return measured


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


def _list_blocks(sources: Sources) -> Iterator[Block]:
    """The blocks of a study, query by query and layer by layer; the largest array has a number for each κ and N."""
    metrics = sources.metrics
    for index in range(len(sources.queries)):
        for layer, keys in enumerate(metrics.n_keys[index].tolist()):
            if keys >= 2:
                of_one = 4 * len(sources.study.analysis.kappas) * metrics.layers[layer].heads * keys
                for part in split_sequences(metrics.sequences, of_one, BLOCK_BYTES):
                    yield Block(sources, index, layer, keys, part, part.stop == metrics.sequences)
