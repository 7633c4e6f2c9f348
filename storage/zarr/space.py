"""Estimates of the bytes that a store will take."""

from collections.abc import Iterable, Mapping
from math import prod

import numpy as np

from storage.zarr.arrays import ArraySpec

BLOCK = 4096
"""Bytes that a file system hands out at a time, to files and to folders."""

CHUNK_OVERHEAD = 16 + 16 + 4
"""Bytes of a chunk besides its data: its entry in the index, the header of Blosc and the checksum."""


def estimate_sequence_bytes(specs: Iterable[ArraySpec], sizes: Mapping[str, int]) -> int:
    """Upper bound of the bytes that one sequence takes on a disk, as if nothing were compressed.

    The exact size of the data plus overhead: checksums, indices, and partly filled blocks of files and folders.

    Parameters
    ----------
    specs
        The arrays of the store, in the types they are stored in.
    sizes
        Size of each axis by name.
    """
    return sum(_count_data_bytes(spec, sizes) + _estimate_overhead(spec, sizes) for spec in specs)


def _count_data_bytes(spec: ArraySpec, sizes: Mapping[str, int]) -> int:
    """Bytes of one sequence of an array."""
    return prod(spec.shape(sizes)[1:]) * np.dtype(spec.dtype).itemsize


def _estimate_overhead(spec: ArraySpec, sizes: Mapping[str, int]) -> int:
    """Most bytes that a shard takes besides its data: one file, and one folder along each axis but the last."""
    chunks = prod(spec.shard(sizes)) // prod(spec.chunk(sizes))
    return chunks * CHUNK_OVERHEAD + len(spec.dims) * BLOCK
