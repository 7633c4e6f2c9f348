"""One shard of a Zarr array as a stream of bytes: its chunks, each with a checksum, then the index of their positions.

Contains the codecs of stored arrays and the writer of shards.

Zarr's own writer makes three copies of a shard in new memory, one of them a join of all its chunks, and reads an
existing shard first; it writes sequences at 0.1 to 0.6 times the speed of a plain file. The layout is that of the
codecs ``sharding_indexed``, ``bytes``, ``blosc`` and ``crc32c`` of Zarr v3, which any reader of the format supports.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import google_crc32c
import numpy as np
import zarr
from numcodecs import Blosc  # type: ignore[import-untyped]  # it has no types
from numpy.typing import NDArray
from zarr.codecs import BloscCodec, Crc32cCodec

from storage.files.places import Part
from storage.zarr.arrays import Compression

WORKERS = min(4, os.cpu_count() or 1)
"""Threads that encode chunks while one writes; at most one more chunk than these is held in memory."""

REUSED = 31 * 2**20
"""Bytes of a block of memory that is allocated and freed once before any work. The allocator of glibc then keeps blocks
of up to this size for the next chunk; otherwise each is mapped into the process again, which takes longer than
compressing it."""

EMPTY = 2**64 - 1
"""Offset and length of a chunk that is not stored, because it contains only fill."""

SHUFFLES = {"noshuffle": Blosc.NOSHUFFLE, "shuffle": Blosc.SHUFFLE, "bitshuffle": Blosc.BITSHUFFLE}


BLOSC: dict[str, dict[str, Any]] = {
    "zstd": {"cname": "zstd", "clevel": 1, "shuffle": "shuffle"},
    "blosclz": {"cname": "blosclz", "clevel": 1, "shuffle": "shuffle", "blocksize": 2**18},
}
"""How Blosc compresses.

Weights, and value states in float32, hardly compress and stay as they are. In value states of a model that computes in
half precision, half of the bytes are zero once they are widened: blosclz in large blocks finds those at nearly the
speed of memory, so that the disk stays the bottleneck; the benchmark ``extraction.write`` says what that is worth.
Metrics compress well and are written while they are computed, which takes longer: there zstd makes the fewest bytes.
"""


def select_codecs(compression: Compression) -> list[BloscCodec | Crc32cCodec]:
    """The codecs of a new array: the compressor of its chunks, if any, then their checksum."""
    return [*([] if compression == "none" else [BloscCodec(**BLOSC[compression])]), Crc32cCodec()]


def start_workers() -> ThreadPoolExecutor:
    """Threads to encode chunks in."""
    np.empty(REUSED, np.uint8)  # freed immediately
    return ThreadPoolExecutor(WORKERS, "encode")


def encode_shard(array: zarr.Array[Any], data: NDArray[Any], pool: Executor) -> Iterator[Part]:
    """The bytes of one shard of ``array``.

    Parameters
    ----------
    array
        An array made with ``select_codecs``, whose shards are chunks of whole number along each axis.
    data
        What the shard holds, in its shape; numbers of another type are converted.
    pool
        The threads that encode chunks.

    Raises
    ------
    FloatingPointError
        If a number is beyond the range of the array's type.
    """
    counts = tuple(size // chunk for size, chunk in zip(data.shape, array.chunks, strict=True))
    index = np.full((*counts, 2), EMPTY, "<u8")
    blocks = (data[_slice_block(position, array.chunks)] for position in np.ndindex(counts))
    encode = partial(_encode_block, dtype=array.dtype, fill=array.fill_value, compressor=_read_compressor(array))
    offset = 0
    for position, encoded in zip(np.ndindex(counts), _encode_ahead(pool, encode, blocks), strict=True):
        if length := sum(len(part) for part in encoded):
            index[position] = offset, length
            offset += length
            yield from encoded
    yield from _append_checksum(_view_bytes(index))


def _slice_block(position: tuple[int, ...], chunk: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(at * size, (at + 1) * size) for at, size in zip(position, chunk, strict=True))


def _read_compressor(array: zarr.Array[Any]) -> Blosc | None:
    """The compressor of the chunks of ``array`` according to its document; None if they are not compressed."""
    for codec in array.compressors:
        if isinstance(codec, BloscCodec):
            given: Any = codec.to_dict()["configuration"]
            return Blosc(given["cname"], given["clevel"], SHUFFLES[given["shuffle"]], given["blocksize"])
    return None


def _encode_block(
    block: NDArray[Any], *, dtype: np.dtype[Any], fill: Any, compressor: Blosc | None
) -> tuple[Part, ...]:
    """The bytes of one chunk; none if all of it is fill."""
    with np.errstate(over="raise"):
        chunk = np.ascontiguousarray(block, dtype)
    if is_fill(chunk, fill):
        return ()
    return _append_checksum(_view_bytes(chunk) if compressor is None else compressor.encode(chunk))


def is_fill(numbers: NDArray[Any], fill: Any) -> bool:
    """Whether there are numbers and all are the fill, which may be NaN; the first number nearly always decides."""
    alike = np.isnan if np.isnan(fill) else partial(np.equal, fill)
    return bool(numbers.size and alike(numbers.flat[0]) and alike(numbers).all())


def _view_bytes(array: NDArray[Any]) -> memoryview:
    """The memory of a contiguous array, byte by byte."""
    return array.reshape(-1).view(np.uint8).data


def _append_checksum(data: Part) -> tuple[Part, ...]:
    """Bytes and their checksum."""
    return data, google_crc32c.value(np.frombuffer(data, np.uint8)).to_bytes(4, "little")


def _encode_ahead(
    pool: Executor, encode: Callable[[NDArray[Any]], tuple[Part, ...]], blocks: Iterable[NDArray[Any]]
) -> Iterator[tuple[Part, ...]]:
    """Each block encoded, in order; as many as there are workers are encoded ahead."""
    waiting: deque[Future[tuple[Part, ...]]] = deque()
    for block in blocks:
        waiting.append(pool.submit(encode, block))
        if len(waiting) > WORKERS:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
