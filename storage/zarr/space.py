"""Estimates of the bytes that a store will take."""

from collections.abc import Iterable, Mapping
from math import ceil, prod

import numpy as np

from storage.zarr.arrays import ArraySpec

BLOCK = 4096
"""Bytes that a file system hands out at a time, to files and to folders."""

CHUNK_OVERHEAD = 16 + 4
"""Bytes of a chunk besides its data: the header of Blosc and the checksum."""


def estimate_sequence_bytes(specs: Iterable[ArraySpec], sizes: Mapping[str, int]) -> int:
    """Upper bound of the bytes that one sequence of these arrays, in their stored types, takes on a disk uncompressed.

    The exact size of the data plus overhead: checksums, and partly filled blocks of files and folders.
    """
    return sum(_count_data_bytes(spec, sizes) + _estimate_overhead(spec, sizes) for spec in specs)


def _count_data_bytes(spec: ArraySpec, sizes: Mapping[str, int]) -> int:
    """Bytes of one sequence of an array."""
    return prod(spec.shape(sizes)[1:]) * np.dtype(spec.dtype).itemsize


def _estimate_overhead(spec: ArraySpec, sizes: Mapping[str, int]) -> int:
    """Most bytes that chunks take besides their data: each is a file, in a folder for every axis before the last."""
    shape, chunk = spec.shape(sizes)[1:], spec.chunk(sizes)[1:]
    counts = [ceil(size / edge) for size, edge in zip(shape, chunk, strict=True)]
    folders = sum(prod(counts[:axis]) for axis in range(len(counts)))
    return prod(counts) * (CHUNK_OVERHEAD + BLOCK) + folders * BLOCK
