"""Zarr stores written one sequence at a time, with a ledger: crash-safe, resumable, self-describing.

``SequenceStore`` is the class of tensor stores. Zarr writes and reads them: a chunk is a
part of one sequence, most often a layer, and a file, which Zarr writes under another name and renames. Every chunk ends
with its CRC32C, and chunks of nothing but fill are written too, so that a lost one is noticed. The ledger entry of a
sequence is written after its data, so a killed writer loses at most the sequence in progress.
"""

import hashlib
import json
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property, partial
from itertools import product
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from storage.errors import UserError, refuse_newer
from storage.files.differences import find_differences
from storage.files.places import Place
from storage.zarr.arrays import FORMAT_VERSION, ArraySpec, Compression, LayerSize

if TYPE_CHECKING:
    import zarr
    from zarr.codecs import BloscCodec, Crc32cCodec

TOGETHER = 8
"""Chunks that Zarr decodes in one go: eight of SmolLM2's value states take 2.6 ms instead of 3.9 one by one."""


class SequenceStore:
    """A Zarr group whose arrays share the axis ``sequence``, written sequence by sequence.

    Make one with ``resume`` (create a store, or continue an existing one) or ``open`` (an existing one). Several
    processes, on one machine or on many, may write different sequences of one store at the same time.
    """

    specs: dict[str, ArraySpec]
    """The declared arrays by name."""
    absent: frozenset[str]
    """Names of the optional arrays that the store was made without; they read as fill."""

    def __init__(self, path: Place, group: "zarr.Group", specs: Sequence[ArraySpec]) -> None:
        self.path = path
        self.specs = {spec.name: spec for spec in specs}
        self._group = group
        self._arrays: dict[str, zarr.Array[Any]] = {}
        self.absent = frozenset(spec.name for spec in specs if spec.optional and self._find_array(spec.name) is None)

    @classmethod
    def open(cls, path: Place, specs: Sequence[ArraySpec]) -> Self:
        """Open an existing store.

        ``UserError`` if it does not exist, its format is of another version (``NewerError`` if that is newer), or its
        arrays are not the declared ones.
        """
        import zarr

        if not path.exists():
            raise UserError(f"There is no store at {path}; run the study first")
        try:
            group = zarr.open_group(path.open_zarr(), mode="r+")
            value = group.attrs.get("format_version")
        except UserError:
            raise
        except Exception as error:  # what a wrong document raises is up to Zarr
            raise _make_damage_error(path, " ".join(str(error).split())) from error
        if isinstance(value, int) and value > FORMAT_VERSION:
            refuse_newer(f"The store {path}", value, FORMAT_VERSION, path.name.removesuffix(".zarr"))
        if value != FORMAT_VERSION:
            raise UserError(
                f"The store {path} has format version {value}, this program reads {FORMAT_VERSION}; "
                "run the study again with --fresh to rebuild it"
            )
        if _seal_attributes(group.attrs) != dict(group.attrs):
            raise _make_damage_error(path, f"{DOCUMENT}: it has changed since it was written")
        store = cls(path, group, specs)
        store._validate()
        return store

    @classmethod
    def resume(
        cls,
        path: Place,
        specs: Sequence[ArraySpec],
        sizes: Mapping[str, int],
        provenance: Mapping[str, Any],
        layers: Sequence[LayerSize] | None = None,
        *,
        alone: bool = True,
    ) -> Self:
        """Open the store at ``path`` if it was made from the same ``provenance``, or create an empty one.

        A finished store may have been written by other library versions; an unfinished one may not, since it would mix
        their results. ``provenance``, as JSON, has ``study``, ``settings``, ``inputs`` (hashes) and ``versions`` (of
        libraries); ``layers`` by default all have the ``sizes`` of the axes. If no other process works on the store
        (``alone``), half-written files of killed ones are removed.

        ``UserError`` if a store with another provenance or other sizes exists there; the message names the differing
        fields.
        """
        if alone:
            path.remove_leftovers()
        layers = tuple(layers or _repeat_layer_size(sizes))
        if not path.exists():
            path.create(partial(_create_documents, specs=specs, sizes=sizes, provenance=provenance, layers=layers))
        store = cls.open(path, specs)
        differing = [
            f"{name} (stored {before!r}, requested {after!r})"
            for name, before, after in find_differences(*store._build_comparison(specs, sizes, provenance, layers))
        ]
        if differing:
            raise UserError(
                f"The store {path} was made with other settings: {'; '.join(differing)}. "
                "Run again with --fresh to replace it, or give the study another name"
            )
        if alone:
            store._delete_chunks(store.dropped)
        return store

    def _build_comparison(
        self,
        specs: Sequence[ArraySpec],
        sizes: Mapping[str, int],
        provenance: Mapping[str, Any],
        layers: Sequence[LayerSize],
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The fields that must be equal, of this store and of the requested one."""
        types = {name: str(self._require_array(name).dtype) for name in self._present}
        requested = {spec.name: spec.dtype for spec in specs if spec.name not in self.absent}
        old = self.provenance | {"sizes": self.sizes, "types": types}
        new = dict(provenance) | {"sizes": dict(sizes), "types": requested}
        stored = self.layers if self.sizes == dict(sizes) else layers
        if unlike := [number for number, layer in enumerate(layers) if layer != stored[number]]:
            number = unlike[0]
            old[f"layer {number}"], new[f"layer {number}"] = asdict(stored[number]), asdict(layers[number])
        if not self.find_missing():
            old.pop("versions", None)
            new.pop("versions", None)
        return old, new

    def _validate(self) -> None:
        """Refuse a store whose arrays are not the declared ones."""
        with suppress(Exception), warnings.catch_warnings(action="ignore"):  # of files that are no arrays
            self._arrays.update(self._group.arrays())  # at once; what is wrong with one is said when it is needed
        sizes = self.sizes
        for spec in self._present.values():
            array = self._require_array(spec.name)
            fill = np.array([array.fill_value, spec.fill], array.dtype)
            wanted = (spec.shape(sizes), spec.dtype, str(fill[1]))
            actual = (array.shape, str(array.dtype), str(fill[0]))
            if actual[::2] != wanted[::2] or actual[1] not in spec.types:
                which = f"The array '{spec.name}' of {self.path}"
                raise UserError(f"{which} is {actual}, but {wanted} is declared; run again with --fresh")

    def verify(self) -> None:
        """Read everything that is finished, and compare it with the checksums and digests of what was written.

        ``UserError`` if a chunk or document is damaged, lost, or another than was written; if only the ledger entry of
        a sequence is lost; or if an object store does not answer.
        """
        ledger, written = self.read_ledger(), self._require_array(CHECKSUMS)
        names: Any = written.attrs["arrays"]
        for sequence in range(self.sizes["sequence"]):
            parts = (slice(sequence, sequence + 1), slice(0, len(names)))
            checksums = self._read_part(written, parts)[0]
            if not ledger[sequence] and checksums.any():
                raise UserError(f"The ledger entry of sequence {sequence} of {self.path} is lost; run the study again")
            for name in sorted(self._present.keys() - {LEDGER, *self.dropped}) if ledger[sequence] else ():
                array = self.array(name)
                data = self._read_part(array, _split_index(sequence, array.shape)[0])[0]
                if _compute_checksum(data, array.dtype) != checksums[names.index(name)]:
                    self._refuse_damage(array, sequence)
        self._check_documents()

    def _check_documents(self) -> None:
        """Compare the documents of all arrays with their digests; ``UserError`` if one has changed."""
        recorded: Any = self._group.attrs[DOCUMENTS]
        for name, digest in recorded.items():
            content = b""
            with suppress(FileNotFoundError):
                content = self.path.read(f"{name}/{DOCUMENT}")
            if _compute_digest(content) != digest:
                which = f"The document {DOCUMENT} of the array '{name}' of {self.path}"
                raise UserError(f"{which} has changed since it was written; run again with --fresh to extract it again")

    @property
    def _present(self) -> dict[str, ArraySpec]:
        """The declared arrays that the store was made with, by name."""
        return {name: spec for name, spec in self.specs.items() if name not in self.absent}

    @property
    def provenance(self) -> dict[str, Any]:
        """What this store was made from."""
        value: Any = self._group.attrs["provenance"]
        return dict(value)

    @property
    def sizes(self) -> dict[str, int]:
        """Size of each axis by name."""
        value: Any = self._group.attrs["sizes"]
        return {str(name): int(size) for name, size in value.items()}

    @cached_property
    def layers(self) -> tuple[LayerSize, ...]:
        """Sizes of each layer of the model, by layer number; 0 along axes that the store does not have."""
        value: Any = self._group.attrs["layers"]
        return tuple(LayerSize(**layer) for layer in value)

    @property
    def dropped(self) -> tuple[str, ...]:
        """Names of the arrays whose data have been deleted, ascending."""
        return tuple(sorted(name for name in self._present if self._is_dropped(name)))

    def _is_dropped(self, name: str) -> bool:
        """Whether the array is recorded as dropped or, in a folder, the store has sequences but no chunks of it.

        The folder of the ledger is checked first, because other processes write to it last.
        """
        recorded: Any = self._group.attrs.get("dropped", [])
        has_sequences, has_chunks = (self.path.has_folder(f"{array}/{CHUNKS}") for array in (LEDGER, name))
        return name in recorded or (has_sequences is True and has_chunks is False)

    def array(self, name: str) -> "zarr.Array[Any]":
        """The Zarr array ``name``, in the type it is stored in.

        ``UserError`` if the store was made without it, its data have been dropped, or its document is lost or damaged.
        """
        if name not in self.absent and self._is_dropped(name):
            raise UserError(
                f"The array '{name}' of {self.path} has been dropped to save space, or is lost; "
                f"run again with --fresh to extract it again"
            )
        return self._require_array(name)

    def _require_array(self, name: str) -> "zarr.Array[Any]":
        if (array := self._find_array(name)) is None:
            raise UserError(f"The store {self.path} has no array '{name}'; run the study again with --fresh")
        return array

    def _find_array(self, name: str) -> "zarr.Array[Any] | None":
        """The array, or None if the store does not have it; its document is read once."""
        import zarr

        if name in self._arrays:
            return self._arrays[name]
        try:
            with zarr.config.set({"codec_pipeline.batch_size": TOGETHER}):
                array = self._group.get(name)
        except UserError:
            raise
        except Exception as error:  # what a wrong document raises is up to Zarr
            said = " ".join(str(error).split())
            raise UserError(
                f"The array '{name}' of {self.path} is damaged ({said}); run the study again with --fresh"
            ) from error
        if not isinstance(array, zarr.Array):
            return None
        self._arrays[name] = array
        return array

    def _make_fill(self, name: str) -> NDArray[Any]:
        """The fill of an absent array in its full shape; takes the memory of one number."""
        spec = self.specs[name]
        return np.broadcast_to(np.array(spec.fill, spec.dtype), spec.shape(self.sizes))

    def read(self, name: str, index: Any) -> NDArray[Any]:
        """Read the part of the array ``name`` that ``index`` selects, float16 as float32.

        The index has integers and slices without a step, as many as there are axes or fewer, or an ellipsis alone.
        ``UserError`` if its data have been dropped, or a finished sequence is damaged.
        """
        if name in self.absent:
            return np.array(self._make_fill(name)[index])
        array = self.array(name)
        parts, axes = _split_index(index, array.shape)
        part = self._read_part(array, parts)[axes]
        return part.astype(np.float32) if part.dtype == np.float16 else part

    def _read_part(self, array: "zarr.Array[Any]", parts: tuple[slice, ...]) -> NDArray[Any]:
        """Read a block of an array; damage is a UserError that names the sequence.

        Zarr detects wrong bytes by their checksums, but reads a missing chunk as fill, so the file of a chunk of
        nothing but fill is looked for.
        """
        sequences = range(parts[0].start, parts[0].stop)
        try:
            part = np.asarray(array[parts])
        except ValueError as error:
            for sequence in sequences if len(sequences) > 1 else []:
                self._read_part(array, (slice(sequence, sequence + 1), *parts[1:]))  # which raises for a damaged one
            self._refuse_damage(array, sequences[0], error)
        for position, inside in _iterate_chunks(array, parts):
            if is_fill(part[inside], array.fill_value) and self._is_lost(array, position):
                self._refuse_damage(array, position[0])
        return part

    def _is_lost(self, array: "zarr.Array[Any]", position: tuple[int, ...]) -> bool:
        """Whether a sequence is finished but the file of one of its chunks is missing or empty."""
        if array.basename in {LEDGER, CHECKSUMS}:
            return False
        file = f"{array.basename}/{array.metadata.encode_chunk_key(position)}"
        return not self.path.has_file(file) and bool(self.read_ledger()[position[0]])

    def _refuse_damage(self, array: "zarr.Array[Any]", sequence: int, error: Exception | None = None) -> NoReturn:
        """Raise the UserError of a damaged sequence of an array."""
        which = f"The array '{array.basename}' of {self.path}"
        raise UserError(
            f"{which} is damaged in sequence {sequence}; run again with --fresh to extract it again"
        ) from error

    def read_ledger(self) -> NDArray[np.bool_]:
        """Which sequences are completely written: bool (sequence,); ``UserError`` if the ledger is damaged."""
        return self.read(LEDGER, slice(None)).astype(bool)

    def find_missing(self) -> list[int]:
        """The sequences that are not written yet, in order."""
        return [int(index) for index in np.flatnonzero(~self.read_ledger())]

    def require_complete(self) -> Self:
        """Return the store itself, if its ledger is complete; ``UserError`` if sequences are missing."""
        if missing := self.find_missing():
            raise UserError(
                f"The store {self.path} lacks {len(missing)} of {self.sizes['sequence']} sequences; "
                "run the study again, it continues after the last one"
            )
        return self

    def write(self, sequence: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write all arrays of one sequence, then its ledger entry.

        ``arrays`` are all declared ones but the ledger, each without the axis ``sequence``, maybe as strided views;
        optional ones may be left out, and are not written if the store was made without them. Besides the arrays,
        memory holds ``WRITING`` chunks at most.

        A process may be killed at any moment; a machine that loses power may lose what its system had not yet written.
        ``ValueError`` if an array is missing, undeclared, or of another shape; ``UserError`` if one has been dropped,
        or an object store does not accept it.
        """
        wanted = {name: spec.shape(self.sizes)[1:] for name, spec in self._present.items() if name != LEDGER}
        left_out = {name: self._make_fill(name)[0] for name in wanted if self.specs[name].optional}
        arrays = left_out | {name: array for name, array in arrays.items() if name not in self.absent}
        shapes = {name: array.shape for name, array in arrays.items()}
        if wanted != shapes:
            raise ValueError(f"one sequence of {self.path.name} needs the shapes {wanted}, got {shapes}")
        for name, array in arrays.items():
            self._write_array(name, sequence, np.asarray(array))
        names: Any = self._require_array(CHECKSUMS).attrs["arrays"]
        checksums = np.zeros(len(names), np.uint32)
        for name, array in arrays.items():
            checksums[names.index(name)] = _compute_checksum(np.asarray(array), self.array(name).dtype)
        self._write_array(CHECKSUMS, sequence, checksums)
        self._write_array(LEDGER, sequence, np.ones((), np.uint8))

    def _write_array(self, name: str, sequence: int, data: NDArray[Any]) -> None:
        """Write one sequence of one array, chunk by chunk if it is converted to another type."""
        array = self.array(name).with_config({"write_empty_chunks": True})
        parts = _split_index(sequence, array.shape)[0]
        blocks: Iterable[tuple[slice, ...]] = [parts]
        if data.dtype != array.dtype:
            blocks = (inside for _, inside in _iterate_chunks(array, parts))
        try:
            for block in blocks:
                with np.errstate(over="raise"):
                    part = np.asarray(data[block[1:]], array.dtype)
                index: tuple[int | slice, ...] = (sequence, *block[1:])
                array[index] = part
        except FloatingPointError as error:
            raise UserError(
                f"Sequence {sequence} has numbers of '{name}' that are too large for {array.dtype}, "
                f"the type they are stored in; run again with --fresh and {name}: float32"
            ) from error
        except FileNotFoundError as error:
            raise UserError(
                f"Another process has removed files of {self.path} that were being written; end it, and run again"
            ) from error

    def drop(self, names: Collection[str]) -> None:
        """Delete the data of these arrays for good; call it while no other process works on the store.

        If the process is killed meanwhile, each array is either dropped or complete as before; dropping again deletes
        the rest, and so does ``resume``. In a folder nothing is written until all is deleted, so that it works on a
        full disk: the chunks of an array are renamed together. An object store cannot rename, so there the names of the
        dropped arrays are written first. ``ValueError`` if one is not an array of the store, or is its ledger.
        """
        if unknown := set(names) - (self.specs.keys() - {LEDGER}):
            raise ValueError(f"{self.path.name} cannot drop {sorted(unknown)}")
        attributes = _seal_attributes({**self._group.attrs, "dropped": sorted({*self.dropped, *names})})
        if self.path.is_remote:
            self._group.attrs.put(attributes)
        self._delete_chunks(names)
        if not self.path.is_remote:
            self._group.attrs.put(attributes)

    def _delete_chunks(self, names: Collection[str]) -> None:
        """Delete all chunks of these arrays, and leftovers of killed processes."""
        for name in names:
            chunks = self.path.join(name, CHUNKS)
            chunks.remove()
            chunks.remove_leftovers()


def _split_index(index: Any, shape: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[int | slice, ...]]:
    """The start and stop along each axis of what an index selects, and the index that then removes axes."""
    given = () if index is Ellipsis else index if isinstance(index, tuple) else (index,)
    whole = (*given, *[slice(None)] * (len(shape) - len(given)))
    ends = [
        (part if isinstance(part, slice) else slice(part, part + 1 or None)).indices(size)
        for part, size in zip(whole, shape, strict=True)
    ]
    parts = tuple(slice(start, max(start, stop)) for start, stop, _ in ends)
    return parts, tuple(slice(None) if isinstance(part, slice) else 0 for part in whole)


def _iterate_chunks(
    array: "zarr.Array[Any]", parts: Sequence[slice]
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """The position of every file of an array that a block has a part of, and the slices of that part in the block."""
    edges = array.chunks
    counts = (range(part.start // edge, ceil(part.stop / edge)) for part, edge in zip(parts, edges, strict=True))
    for position in product(*counts):
        starts = (at * edge - part.start for at, edge, part in zip(position, edges, parts, strict=True))
        yield position, tuple(slice(max(0, start), start + edge) for start, edge in zip(starts, edges, strict=True))


def is_fill(numbers: NDArray[Any], fill: Any) -> bool:
    """Whether there are numbers and all are the fill, which may be NaN; the first number nearly always decides."""
    alike = np.isnan if np.isnan(fill) else partial(np.equal, fill)
    return bool(numbers.size and alike(numbers.flat[0]) and alike(numbers).all())


def _compute_checksum(data: NDArray[Any], dtype: np.dtype[Any]) -> int:
    """CRC32C of the numbers of one sequence of an array in the type they are stored in."""
    checksum = 0
    for part in data if data.ndim else [data]:
        checksum = google_crc32c.extend(checksum, np.ascontiguousarray(part, dtype).reshape(-1).view(np.uint8))
    return checksum


def select_codecs(compression: Compression) -> "list[BloscCodec | Crc32cCodec]":
    """The codecs of a new array: the compressor of its chunks, if any, then their checksum."""
    from zarr.codecs import BloscCodec, Crc32cCodec

    checksum = Crc32cCodec()
    if compression == "none":
        return [checksum]
    return [BloscCodec(cname=compression, clevel=1, shuffle="shuffle", blocksize=2**18), checksum]


WRITING = 32
"""Chunks that Zarr holds while it writes: it encodes ten at a time, each in up to three copies."""

LEDGER = "finished"
"""The array that records which sequences are written."""

CHECKSUMS = "checksums"
"""The array of a checksum for each sequence of each array: a chunk of another sequence or time is not what was written.
"""

CHUNKS = "c"
"""The folder of an array's chunks."""


DOCUMENT = "zarr.json"
"""The file of a group's or an array's document."""

DOCUMENTS = "documents"
"""The attribute that has the SHA-256 of each array's document."""

DIGEST = "digest"
"""The attribute that has the SHA-256 of all other attributes."""


def _seal_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a group with their digest."""
    rest = {name: value for name, value in attributes.items() if name != DIGEST}
    return {**rest, DIGEST: _compute_digest(json.dumps(rest, sort_keys=True).encode())}


def _compute_digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _make_damage_error(path: Place, why: str) -> UserError:
    return UserError(f"The store {path} is damaged ({why}); run the study again with --fresh")


def _create_documents(
    folder: Path,
    specs: Sequence[ArraySpec],
    sizes: Mapping[str, int],
    provenance: Mapping[str, Any],
    layers: Sequence[LayerSize],
) -> None:
    """Create the documents of an empty store in ``folder``."""
    import zarr

    group = zarr.create_group(
        folder,
        attributes={
            "format_version": FORMAT_VERSION,
            "sizes": dict(sizes),
            "layers": [asdict(layer) for layer in layers],
            "provenance": dict(provenance),
        },
    )
    for spec in specs:
        group.create_array(
            spec.name,
            shape=spec.shape(sizes),
            dtype=spec.dtype,
            chunks=spec.chunk(sizes),
            compressors=select_codecs(spec.compression),
            fill_value=spec.fill,
            dimension_names=spec.dims,
            attributes={"unit": spec.unit, "meaning": spec.meaning},
        )
    group.create_array(
        CHECKSUMS,
        shape=(sizes["sequence"], len(specs)),
        dtype="uint32",
        chunks=(1, len(specs)),
        compressors=select_codecs("none"),
        fill_value=0,
        dimension_names=("sequence", "array"),
        attributes={
            "unit": "CRC32C",
            "meaning": "of the numbers of each array as they are stored; 0 for the ledger",
            "arrays": [spec.name for spec in specs],
        },
    )
    documents = {spec.name: _compute_digest((folder / spec.name / DOCUMENT).read_bytes()) for spec in specs}
    group.attrs.put(_seal_attributes({**group.attrs, DOCUMENTS: documents}))


def _repeat_layer_size(sizes: Mapping[str, int]) -> list[LayerSize]:
    """Layers that all have the sizes of the axes; 0 along axes that the store does not have."""
    heads, kv_heads, head_dim = (sizes.get(axis, 0) for axis in ("head", "kv_head", "head_dim"))
    return [LayerSize(heads, kv_heads, head_dim)] * sizes.get("layer", 0)
