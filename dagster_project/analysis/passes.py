"""One pass over the metrics of a study, layer by layer: what is averaged from an array shares one reading of it.

Holds the slabs that are read, their blocks, and the pass that gives these to summaries: each measures a block on one of
several threads, and adds what it measured in the order of the blocks.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dagster_project.analysis.cluster import count_threads
from dagster_project.analysis.sources import Rows, Sources
from geometry.arrays import F64
from geometry.bounds.lower import INGREDIENTS, Ingredients
from geometry.bounds.lower_kernels import measure_margins
from geometry.threads import one_blas_thread
from storage.zarr.arrays import LayerSize
from storage.zarr.layers import list_runs, read_layers, split_run

SLAB_BYTES = 2**23
"""Largest size of one array of a slab, unless one sequence of a layer takes more."""


@dataclass(frozen=True)
class Slab:
    """What is read at once, since every read has a cost of its own: some sequences of some layers at one query.

    It holds several layers only with all their sequences.
    """

    sources: Sources
    index: int
    """Index of the query along its axis."""
    layers: slice
    """Numbers of the layers, all of one size."""
    n_keys: int
    """Keys that the query attends to in each of them, at least 2."""
    sequences: slice
    """Numbers of the sequences."""
    is_last: bool
    """Whether these are the last sequences of the layers."""
    _arrays: dict[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def blocks(self) -> "list[Block]":
        """Its layers, in order."""
        return [Block(self, layer) for layer in range(self.layers.start, self.layers.stop)]

    def read(self, name: str) -> NDArray[Any]:
        """Read an array of the metrics once: (sequence, layer, head, …), N on the last axis where there are keys."""
        if name not in self._arrays:
            where: dict[str, int | slice] = {"query": self.index, "sequence": self.sequences}
            self._arrays[name] = read_layers(self.sources.metrics, name, self.layers, n=slice(self.n_keys - 1), **where)
        return self._arrays[name]


@dataclass(frozen=True)
class Block:
    """One layer of a slab."""

    slab: Slab
    layer: int

    @property
    def index(self) -> int:
        """Index of the query along its axis."""
        return self.slab.index

    @property
    def n_keys(self) -> int:
        """Keys that the query attends to."""
        return self.slab.n_keys

    @property
    def sequences(self) -> slice:
        """Numbers of the sequences."""
        return self.slab.sequences

    @property
    def is_last(self) -> bool:
        """Whether these are the last sequences of the layer."""
        return self.slab.is_last

    @property
    def ends_slab(self) -> bool:
        """Whether it is the last block of its slab."""
        stop: int = self.slab.layers.stop
        return self.layer + 1 == stop

    @property
    def query(self) -> int:
        """Position of the query."""
        return self.slab.sources.queries[self.index]

    @property
    def heads(self) -> int:
        """Query heads of the layer."""
        return self._size.heads

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return self.heads // self._size.kv_heads

    @property
    def head_dim(self) -> int:
        """Dimension of the value states of the layer."""
        return self._size.head_dim

    @property
    def _size(self) -> LayerSize:
        return self.slab.sources.metrics.layers[self.layer]

    def read(self, name: str) -> NDArray[Any]:
        """Read an array of the metrics: (sequence, head, …), N along the last axis as far as there are keys."""
        return self.slab.read(name)[:, self.layer - self.slab.layers.start]

    @property
    def unit(self) -> F64:
        """What weighted norms are divided by in the scale of the study: C or 1, (sequence, head)."""
        scale = self.read("value_scale").astype(np.float64).repeat(self.group, axis=1)
        return scale if self.slab.sources.study.analysis.scale == "unit" else np.ones(scale.shape)

    @cached_property
    def margins(self) -> tuple[F64, F64]:
        """Δ/B and Δ_0/B in this scale, (sequence, head, N) each, NaN where there is none; kept for all summaries."""
        return measure_margins(Ingredients(**{name: self.read(name) for name in INGREDIENTS}), self.unit)


class Summary(Protocol):
    """What is computed from the blocks of one pass."""

    def measure(self, block: Block) -> Any:
        """Measure one block, on any thread; nothing is kept."""

    def add(self, block: Block, measured: Any) -> Rows:
        """Add what was measured, in the order of blocks, and yield the rows that are complete with it."""

    def finish(self) -> Rows:
        """Yield the rows that are complete only now."""


def run_pass(
    sources: Sources, summaries: Sequence[Summary], *, what: str, last_query: bool = False, kappas: int = 1
) -> Rows:
    """Read the metrics of every query and layer once, and yield the rows of all summaries.

    Memory: of each array that is read, at most ``SLAB_BYTES`` (or one sequence of a layer) for each core and one more;
    and for as many slabs, if a summary needs them, the margins of one layer, 16 bytes for each selection.

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
    kappas
        How many numbers the largest array has for each N: that of κ, if upper bounds are read.
    """
    from tqdm import tqdm

    slabs = list(_list_slabs(sources, last_query=last_query, bytes_of_n=4 * kappas))
    with one_blas_thread, ThreadPoolExecutor(number := count_threads()) as threads:
        measured = _map_ahead(threads, partial(_measure_slab, summaries), slabs, number)
        for slab, of_blocks in tqdm(measured, what, len(slabs), unit="block", disable=None):
            for block, parts in zip(slab.blocks, of_blocks, strict=True):
                for summary, part in zip(summaries, parts, strict=True):
                    yield from summary.add(block, part)
    for summary in summaries:
        yield from summary.finish()


def _measure_slab(summaries: Sequence[Summary], slab: Slab) -> list[list[Any]]:
    """What every summary measures of each block of a slab, whose arrays are then freed by the thread that read them."""
    measured = [[summary.measure(block) for summary in summaries] for block in slab.blocks]
    slab._arrays.clear()
    return measured


def _map_ahead(
    threads: ThreadPoolExecutor, measure: Callable[[Slab], list[Any]], slabs: list[Slab], ahead: int
) -> Iterator[tuple[Slab, list[Any]]]:
    """Measure slabs in order, at most ``ahead`` + 1 of them at a time."""
    running = [threads.submit(measure, slab) for slab in slabs[: ahead + 1]]
    for index, slab in enumerate(slabs):
        parts = running.pop(0).result()
        if index + ahead + 1 < len(slabs):
            running.append(threads.submit(measure, slabs[index + ahead + 1]))
        yield slab, parts


def _list_slabs(sources: Sources, *, last_query: bool, bytes_of_n: int) -> Iterator[Slab]:
    """The slabs of a study, query by query and layer by layer."""
    metrics = sources.metrics
    total = metrics.sizes["sequence"]
    for index in [len(sources.queries) - 1] if last_query else range(len(sources.queries)):
        n_keys = metrics.read("n_keys", (slice(None), index)).max(axis=0)  # -1 in layers without attention
        for run in list_runs(metrics, n_keys):
            if (keys := int(n_keys[run.start])) < 2:
                continue
            of_one = bytes_of_n * metrics.layers[run.start].heads * keys
            for layers, part in split_run(run, total, of_one, SLAB_BYTES):
                yield Slab(sources, index, layers, keys, part, part.stop == total)
