"""Declarations of every stored array: name, axes, type, chunk, unit and meaning.

Creation, validation and the documentation of stores all read these declarations.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import Literal

import numpy as np

from geometry import quantities
from geometry.grids import classify_contexts, list_half_octaves

FORMAT_VERSION = 3
"""Version of the layout below; a store of another version is refused."""

CHUNK_BYTES = 32 * 2**20
"""No chunk is larger than this many bytes before compression, unless a single row along its last two axes is."""

AXES_OF_KEYS: Mapping[str, Callable[[int], int]] = {
    "pattern": lambda _: len(quantities.PATTERNS),
    "measure": lambda _: len(quantities.list_declared(quantities.QueryMeasures)),
    "rate": lambda _: len(quantities.RATES),
    "context": lambda keys: int(classify_contexts(keys)),
    "grid": lambda keys: len(list_half_octaves(keys)),
    "number": lambda _: 2,
    "rank": lambda _: quantities.TOP_KEYS,
}
"""Sizes of the axes that follow from the number of keys alone, or are the same in every store."""

READ_SEQUENCES = 3
"""Sequences, from the first on, of which ``query_keys`` holds the keys: a page lets people read as many at most."""

Compression = Literal["none", "blosclz", "zstd"]
"""How the chunks of an array are compressed, after a shuffle of their bytes; all chunks have a checksum.

Weights, and value states in float32, hardly compress and stay as they are. In value states of a model that computes in
half precision, half of the bytes are zero once they are widened: blosclz in large blocks finds those at nearly the
speed of memory. The other arrays are small.
"""


@dataclass(frozen=True)
class LayerSize:
    """Sizes of the softmax attention of one layer of a model; all 0 in a layer that has none.

    Along ``head``, ``kv_head`` and ``head_dim`` an array is as long as its largest layer needs; what a smaller layer
    does not have is never written and reads as the array's fill.
    """

    heads: int
    """Query heads."""
    kv_heads: int
    """KV heads; query head h reads KV head h // (heads / kv_heads)."""
    head_dim: int
    """Length of a value state."""


@dataclass(frozen=True)
class ArraySpec:
    """One stored array; its first axis is always ``sequence``."""

    name: str
    dims: tuple[str, ...]
    """Names of the axes. Sizes come from the study or ``AXES_OF_KEYS``; equal names have equal sizes within a store."""
    dtype: str
    unit: str
    meaning: str
    whole: tuple[str, ...] = ()
    """Axes that one chunk spans completely, as far as ``CHUNK_BYTES`` allows; along the others it has length 1."""
    fill: float = float("nan")
    """Value of an element that was never written."""
    narrower: str | None = None
    """A narrower type that a store may hold instead of ``dtype``; readers widen it again."""
    compression: Compression = "zstd"
    """Compression of a new array; existing arrays record their own compression in the store."""
    optional: bool = False
    """Whether a store may lack it (for example, one made before it was declared) and a writer may leave it out; it then
    reads as fill."""

    @property
    def types(self) -> frozenset[str]:
        """Types that a store may hold it in."""
        return frozenset({self.dtype} if self.narrower is None else {self.dtype, self.narrower, "float32"})

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Sizes of the axes."""
        return tuple(AXES_OF_KEYS[dim](sizes["key"]) if dim in AXES_OF_KEYS else sizes[dim] for dim in self.dims)

    def chunk(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Sizes of one chunk: one file, the unit of reading, writing and memory, of at most ``CHUNK_BYTES``."""
        shape = self.shape(sizes)
        lengths = [size if dim in self.whole else 1 for dim, size in zip(self.dims, shape, strict=True)]
        itemsize = np.dtype(self.dtype).itemsize
        for axis in range(max(0, len(lengths) - 2)):
            while prod(lengths) * itemsize > CHUNK_BYTES and lengths[axis] > 1:
                shorter = range(lengths[axis] - 1, 0, -1)
                lengths[axis] = next(length for length in shorter if shape[axis] % length == 0)
        return tuple(lengths)


def _declare_patterns(name: str, unit: str, meaning: str, *, by_head: bool = False) -> ArraySpec:
    """An optional array with a number for each pattern of a layer, or of each of its heads."""
    dims = ("layer", "head", "pattern") if by_head else ("layer", "pattern")
    return ArraySpec(name, ("sequence", *dims), "float32", unit, meaning, whole=dims, optional=True)


TENSORS: tuple[ArraySpec, ...] = (
    ArraySpec(
        "attention",
        ("sequence", "query", "layer", "head", "key"),
        "float32",
        "probability",
        "softmax weight each query gives each key; 0 where the mask hides the key (after the query, before first_key)",
        whole=("query", "head", "key"),
        compression="none",
    ),
    ArraySpec(
        "values",
        ("sequence", "layer", "kv_head", "key", "head_dim"),
        "float32",
        "model units",
        "value state of each key, once per KV head; query head h reads KV head h // (heads / kv_heads)",
        whole=("kv_head", "key", "head_dim"),
        narrower="float16",
        compression="none",
    ),
    ArraySpec(
        "learned_sink",
        ("sequence", "query", "layer", "head"),
        "float32",
        "probability",
        "softmax weight of the head's learned sink, which is not a key; 0 for a head without one",
        whole=("query", "layer", "head"),
    ),
    ArraySpec(
        "received_attention",
        ("sequence", "layer", "head", "key"),
        "float32",
        "probability",
        "mean weight that a key gets from the queries at and after it: their sum over (number of keys - position)",
        whole=("head", "key"),
        optional=True,
    ),
    _declare_patterns(
        "head_patterns",
        "share",
        f"what a head looks at, over all queries after the first (sinks: those that see it): "
        f"{', '.join(quantities.PATTERNS)}; NaN without a query",
        by_head=True,
    ),
    _declare_patterns(
        "pattern_chance", "share", "head_patterns of uniform weights over the keys that the layer's queries see"
    ),
    _declare_patterns(
        "pattern_queries", "queries", "number of queries over which head_patterns and pattern_chance are means"
    ),
    _declare_patterns(
        "probe_patterns",
        "share",
        "head_patterns in a sequence of random tokens, half of it twice, which is not stored",
        by_head=True,
    ),
    _declare_patterns("probe_chance", "share", "pattern_chance in that sequence"),
    _declare_patterns("probe_queries", "queries", "pattern_queries in that sequence"),
    ArraySpec(
        "query_measures",
        ("sequence", "layer", "head", "key", "measure"),
        "float32",
        "various",
        f"what each position selects as the query: {', '.join(quantities.list_declared(quantities.QueryMeasures))}; "
        "NaN at position 0",
        whole=("head", "key", "measure"),
        optional=True,
    ),
    ArraySpec(
        "context_means",
        ("sequence", "layer", "head", "rate", "context", "grid"),
        "float32",
        "share",
        f"means of {', '.join(quantities.RATES)} over queries with 2^(c - 1) < keys ≤ 2^c, c = context + 1, and more "
        "than N keys, N a power of √2, rounded; NaN without a query",
        whole=("layer", "head", "rate", "context", "grid"),
        optional=True,
    ),
    ArraySpec(
        "query_keys",
        ("sequence", "layer", "head", "key", "number", "rank"),
        "float32",
        "various",
        f"position and weight of the {quantities.TOP_KEYS} keys of largest weight of each position as the query, by "
        f"rank; NaN beyond the keys that it sees, at position 0, and after the first {READ_SEQUENCES} sequences",
        whole=("head", "key", "number", "rank"),
        optional=True,
    ),
    ArraySpec("tokens", ("sequence", "key"), "int32", "token id", "the sequence itself", whole=("key",), fill=-1),
    ArraySpec(
        "first_key",
        ("sequence", "query", "layer"),
        "int32",
        "position",
        "first position a query may attend to; above 0 where a window hides the beginning; -1: layer without attention",
        whole=("query", "layer"),
        fill=-1,
    ),
    ArraySpec(
        "query_position",
        ("sequence", "query"),
        "int32",
        "position",
        "position of each query, in ascending order; its keys are the positions up to its own",
        whole=("query",),
        fill=-1,
    ),
    ArraySpec(
        "batch",
        ("sequence",),
        "int32",
        "sequences",
        "sequences per batch when this one was computed (the last batch of a study may have fewer); batches of other "
        "sizes may differ in the last bits",
        fill=-1,
    ),
    ArraySpec(
        "finished", ("sequence",), "uint8", "flag", "ledger: 1 once every array of the sequence is written", fill=0
    ),
)
"""What extraction stores, in one group per study."""


def build_tensor_specs(
    *, values: str, computed: str, sink_measure: bool = False, probe: bool = False, every_query: bool = False
) -> tuple[ArraySpec, ...]:
    """The ``TENSORS`` as one study stores them.

    ``values`` is the type of stored value states, ``float32`` or ``float16``. If ``computed``, the type that the model
    computes in, is narrower, the additional bits are 0, so value states are compressed. The others say whether
    ``received_attention``, the three arrays of the probe, and the three of every query are stored.
    """
    widened = np.dtype(values).itemsize > 2 and computed != "float32"
    compression: Compression = "blosclz" if widened else "none"
    of_probe = dict.fromkeys(("probe_patterns", "probe_chance", "probe_queries"), probe)
    of_queries = dict.fromkeys(("query_measures", "context_means", "query_keys"), every_query)
    requested = {"received_attention": sink_measure, **of_probe, **of_queries}
    return tuple(
        replace(spec, dtype=values, compression=compression) if spec.name == "values" else spec
        for spec in TENSORS
        if requested.get(spec.name, True)
    )


BLOCK = 4096
"""Bytes that a file system hands out at a time, to files and to folders."""

CHUNK_OVERHEAD = 16 + 4
"""Bytes of a chunk besides its data: the header of Blosc and the checksum."""


def estimate_sequence_bytes(specs: Iterable[ArraySpec], sizes: Mapping[str, int]) -> int:
    """Upper bound of the bytes that one sequence of these arrays, in their stored types, takes on a disk uncompressed.

    The exact size of the data plus overhead: checksums, and partly filled blocks of files and folders.
    """
    return sum(
        prod(spec.shape(sizes)[1:]) * np.dtype(spec.dtype).itemsize + _estimate_overhead(spec, sizes) for spec in specs
    )


def _estimate_overhead(spec: ArraySpec, sizes: Mapping[str, int]) -> int:
    """Most bytes that chunks take besides their data: each is a file, in a folder for every axis before the last."""
    shape, chunk = spec.shape(sizes)[1:], spec.chunk(sizes)[1:]
    counts = [ceil(size / edge) for size, edge in zip(shape, chunk, strict=True)]
    folders = sum(prod(counts[:axis]) for axis in range(len(counts)))
    return prod(counts) * (CHUNK_OVERHEAD + BLOCK) + folders * BLOCK
