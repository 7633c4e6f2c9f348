"""One shard of a Zarr array as a stream of bytes: its chunks, each with a checksum, then the index of their positions.

Contains the codecs of stored arrays, the writer of shards, and their reader.

Zarr's own writer makes three copies of a shard in new memory, one of them a join of all its chunks, and reads an
existing shard first; it writes sequences at 0.1 to 0.6 times the speed of a plain file. Its reader starts several tasks
for each chunk, which takes ten times as long as to decompress a small one. The layout is that of the
codecs ``sharding_indexed``, ``bytes``, ``blosc`` and ``crc32c`` of Zarr v3, which any reader of the format supports.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import cache, partial
from io import FileIO
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from storage.files.places import Part
from storage.zarr.arrays import Compression

if TYPE_CHECKING:
    import zarr
    from numcodecs import Blosc  # type: ignore[import-untyped]  # it has no types
    from zarr.codecs import BloscCodec, Crc32cCodec

WORKERS = min(4, os.cpu_count() or 1)
"""Threads that encode chunks while one writes; at most one more chunk than these is held in memory."""

REUSED = 31 * 2**20
"""Bytes of a block of memory that is allocated and freed once before any work. The allocator of glibc then keeps blocks
of up to this size for the next; otherwise each is mapped into the process again, which takes longer than to compress a
chunk, or to compute means of what was read."""

SMALL = 2**17
"""Bytes of a chunk that is encoded at once: to hand a smaller one to a thread takes about as long as to encode it."""

CHECKSUM = 4
"""Bytes of a checksum."""

EMPTY = 2**64 - 1
"""Offset and length of a chunk that is not stored, because it contains only fill."""

BLOSC: dict[str, dict[str, Any]] = {
    "zstd": {"cname": "zstd", "clevel": 1, "shuffle": "shuffle", "blocksize": 2**18},
    "blosclz": {"cname": "blosclz", "clevel": 1, "shuffle": "shuffle", "blocksize": 2**18},
}
"""How Blosc compresses.

Weights, and value states in float32, hardly compress and stay as they are. In value states of a model that computes in
half precision, half of the bytes are zero once they are widened: blosclz in large blocks finds those at nearly the
speed of memory, so that the disk stays the bottleneck; the benchmark ``extraction.write`` says what that is worth.
Metrics compress well and are written while they are computed, which takes longer: there zstd makes the fewest bytes, in
large blocks too, because each has a cost of its own.
"""


def select_codecs(compression: Compression) -> "list[BloscCodec | Crc32cCodec]":
    """The codecs of a new array: the compressor of its chunks, if any, then their checksum."""
    from zarr.codecs import BloscCodec, Crc32cCodec

    return [*([] if compression == "none" else [BloscCodec(**BLOSC[compression])]), Crc32cCodec()]


@cache
def keep_memory() -> None:
    """Let the allocator keep freed blocks of up to ``REUSED`` bytes for the next, from now on."""
    np.empty(REUSED, np.uint8)  # freed immediately


def start_workers() -> ThreadPoolExecutor:
    """Threads to encode chunks in."""
    keep_memory()
    return ThreadPoolExecutor(WORKERS, "encode")


def encode_shard(array: "zarr.Array[Any]", data: NDArray[Any], pool: Executor) -> Iterator[Part]:
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
    small = prod(array.chunks) * array.dtype.itemsize < SMALL
    parts = map(encode, blocks) if small else _encode_ahead(pool, encode, blocks)
    for position, encoded in zip(np.ndindex(counts), parts, strict=True):
        if length := sum(len(part) for part in encoded):
            index[position] = offset, length
            offset += length
            yield from encoded
    yield from _append_checksum(_view_bytes(index))


def _slice_block(position: tuple[int, ...], chunk: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(at * size, (at + 1) * size) for at, size in zip(position, chunk, strict=True))


def _read_compressor(array: "zarr.Array[Any]") -> "Blosc | None":
    """The compressor of the chunks of ``array`` according to its document; None if they are not compressed."""
    from numcodecs import Blosc
    from zarr.codecs import BloscCodec

    for codec in array.compressors:
        if isinstance(codec, BloscCodec):
            given: Any = codec.to_dict()["configuration"]
            return Blosc(given["cname"], given["clevel"], getattr(Blosc, given["shuffle"].upper()), given["blocksize"])
    return None


def _encode_block(
    block: NDArray[Any], *, dtype: np.dtype[Any], fill: Any, compressor: "Blosc | None"
) -> tuple[Part, ...]:
    """The bytes of one chunk; none if all of it is fill."""
    with np.errstate(over="raise"):
        chunk = np.ascontiguousarray(block, dtype)
    if is_fill(chunk, fill):
        return ()
    return _append_checksum(_view_bytes(chunk) if compressor is None else compressor.encode(chunk))


def read_shards(array: "zarr.Array[Any]", files: Iterable[Path], where: Sequence[slice], out: NDArray[Any]) -> None:
    """Read the same part of some shards of ``array``, chunk by chunk; what is not stored is fill.

    Parameters
    ----------
    array
        An array made with ``select_codecs``.
    files
        The file of each shard; if it is missing or empty, nothing is stored.
    where
        The part of each axis but the first, from a start to a stop.
    out
        Where it is written, (shard, …).

    Raises
    ------
    ValueError
        If the bytes of a file are not those that were written.
    """
    chunks, dtype, fill = array.chunks, array.dtype, array.fill_value  # which Zarr derives anew each time
    counts = [size // chunk for size, chunk in zip(array.shards or array.shape, chunks, strict=True)]
    needed = [range(part.start // size, -(-part.stop // size)) for part, size in zip(where, chunks[1:], strict=True)]
    parts = [(position, *_overlap(position, chunks[1:], where)) for position in product(*needed)]
    compressor = _read_compressor(array)
    for row, path in enumerate(files):
        selected = out[row, ...]
        try:
            file = path.open("rb", buffering=0)
        except FileNotFoundError:
            selected[...] = fill
            continue
        with file:
            index = _read_index(file, counts)[0]
            for position, inside, outside in parts:
                offset, length = index[position].tolist()
                if length == EMPTY:
                    selected[outside] = fill
                    continue
                content = os.pread(file.fileno(), length, offset)
                selected[outside] = _decode_block(content, compressor, dtype).reshape(chunks[1:])[inside]


def _read_index(file: FileIO, counts: Sequence[int]) -> NDArray[np.uint64]:
    """Offset and length of every chunk of a shard, (*counts, 2); ``EMPTY`` if the file is empty."""
    size = os.fstat(file.fileno()).st_size
    length = 16 * prod(counts) + CHECKSUM
    if not size:
        return np.full((*counts, 2), EMPTY, "<u8")
    content = os.pread(file.fileno(), length, max(size - length, 0))
    return _remove_checksum(content).view("<u8").reshape(*counts, 2)


def _decode_block(content: bytes, compressor: "Blosc | None", dtype: np.dtype[Any]) -> NDArray[Any]:
    """The numbers of one chunk."""
    data = _remove_checksum(content)
    return np.frombuffer(data if compressor is None else compressor.decode(data), dtype)


def _remove_checksum(content: bytes) -> NDArray[np.uint8]:
    """Bytes without the checksum after them; a ValueError if it is that of other bytes."""
    data = np.frombuffer(content, np.uint8)[:-CHECKSUM]
    if google_crc32c.value(data) != int.from_bytes(content[-CHECKSUM:], "little"):
        msg = "a checksum does not match"
        raise ValueError(msg)
    return data


def _overlap(
    position: Sequence[int], chunk: Sequence[int], where: Sequence[slice]
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """What a part has of the chunk at a position, as slices of the chunk and of the part."""
    inside, outside = [], []
    for at, size, part in zip(position, chunk, where, strict=True):
        start, stop = max(at * size, part.start), min((at + 1) * size, part.stop)
        inside.append(slice(start - at * size, stop - at * size))
        outside.append(slice(start - part.start, stop - part.start))
    return tuple(inside), tuple(outside)


def is_fill(numbers: NDArray[Any], fill: Any) -> bool:
    """Whether there are numbers and all are the fill, which may be NaN; the first number nearly always decides."""
    alike = np.isnan if np.isnan(fill) else partial(np.equal, fill)
    return bool(numbers.size and alike(numbers.flat[0]) and alike(numbers).all())


def _view_bytes(array: NDArray[Any]) -> memoryview:
    """The memory of a contiguous array, byte by byte."""
    return array.reshape(-1).view(np.uint8).data


def _append_checksum(data: Part) -> tuple[Part, ...]:
    """Bytes and their checksum."""
    return data, google_crc32c.value(np.frombuffer(data, np.uint8)).to_bytes(CHECKSUM, "little")


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
