"""Zarr stores written one sequence at a time, with a ledger: crash-safe, resumable, self-describing.

``SequenceStore`` is the class of both the tensor store and the metrics store.

One shard is one sequence of one array and has one writer, because Zarr's shards are the atomic unit of writing. The
ledger entry of a sequence is written after its data, so a killed writer loses at most the sequence in progress.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property, partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from storage.errors import DerivedDamageError, UserError, refuse_newer
from storage.files.differences import find_differences
from storage.files.places import LocalPlace, Place
from storage.zarr import shards
from storage.zarr.arrays import FORMAT_VERSION, ArraySpec, LayerSize

if TYPE_CHECKING:
    import zarr


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
        self._kept: dict[tuple[str, int], NDArray[Any]] = {}
        self._kept_bytes = 0
        self._is_whole = False
        self.absent = frozenset(spec.name for spec in specs if spec.optional and self._find_array(spec.name) is None)

    @classmethod
    def open(cls, path: Place, specs: Sequence[ArraySpec]) -> Self:
        """Open an existing store.

        Raises
        ------
        UserError
            If it does not exist, if its format is of another version (``NewerError`` if that is newer), or if its
            arrays are not the declared ones.
        """
        import zarr

        if not path.exists():
            msg = f"There is no store at {path}; run the study first"
            raise UserError(msg)
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
            msg = (
                f"The store {path} has format version {value}, this program reads {FORMAT_VERSION}; "
                "run the study again with --fresh to rebuild it"
            )
            raise UserError(msg)
        if why := _find_attribute_fault(dict(group.attrs)):
            raise _make_damage_error(path, f"zarr.json: {why}")
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

        A finished store may have been written by other library versions; an unfinished one may not, since it would
        mix their results.

        Parameters
        ----------
        path
            A folder, or a place in an object store.
        specs
            The arrays; one that may be narrower is created with the type that is declared here.
        sizes
            Size of each axis by name.
        provenance
            What the store is made from, as JSON: ``study``, ``settings``, ``inputs`` (hashes) and ``versions``
            (libraries); also ``tensors``, the provenance of another store that it is derived from.
        layers
            Sizes of each layer of the model; by default, all layers have those of ``sizes``.
        alone
            Whether no other process works on the store; half-written files of killed processes are then removed.

        Raises
        ------
        UserError
            If a store with another provenance or other sizes exists there; the message names the differing fields.
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
            msg = (
                f"The store {path} was made with other settings: {'; '.join(differing)}. "
                "Run again with --fresh to replace it, or give the study another name"
            )
            raise UserError(msg)
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
        self._read_documents()
        sizes = self.sizes
        for spec in self._present.values():
            array = self._require_array(spec.name)
            fill = np.array([array.fill_value, spec.fill], array.dtype)
            wanted = (spec.shape(sizes), spec.dtype, str(fill[1]))
            actual = (array.shape, str(array.dtype), str(fill[0]))
            if actual[::2] != wanted[::2] or actual[1] not in spec.types:
                which = f"The array '{spec.name}' of {self.path}"
                msg = f"{which} is {actual}, but {wanted} is declared; run again with --fresh"
                raise UserError(msg)

    def _read_documents(self) -> None:
        """Read the documents of all arrays at once; what is wrong with one is said when that array is needed."""
        with suppress(Exception), warnings.catch_warnings(action="ignore"):  # of files that are no arrays
            self._arrays.update(self._group.arrays())

    def check_documents(self) -> None:
        """Compare the documents of all arrays with their digests, which stores of earlier versions do not have.

        Raises
        ------
        UserError
            If one has changed since it was written, or an object store does not answer.
        """
        recorded: Any = self._group.attrs.get(DOCUMENTS, {})
        for name, digest in recorded.items():
            if _compute_digest(self._read_document(name)) != digest:
                which = f"The document {DOCUMENT} of the array '{name}' of {self.path}"
                msg = f"{which} has changed since it was written; {self._describe_remedy()}"
                raise UserError(msg)

    def _read_document(self, name: str) -> bytes:
        """The bytes of an array's document; empty if it does not exist."""
        try:
            return self.path.read(f"{name}/{DOCUMENT}")
        except FileNotFoundError:
            return b""

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

        Raises
        ------
        UserError
            If the store was made without it, its data have been dropped, or its document is lost or damaged.
        """
        if name not in self.absent and self._is_dropped(name):
            msg = (
                f"The array '{name}' of {self.path} has been dropped to save space, or is lost; "
                f"{self._describe_remedy()}"
            )
            raise UserError(msg)
        return self._require_array(name)

    def _require_array(self, name: str) -> "zarr.Array[Any]":
        if (array := self._find_array(name)) is None:
            msg = f"The store {self.path} has no array '{name}'; run the study again with --fresh"
            raise UserError(msg)
        return array

    def _find_array(self, name: str) -> "zarr.Array[Any] | None":
        """The array, or None if the store does not have it; its document is read once."""
        import zarr

        if name in self._arrays:
            return self._arrays[name]
        try:
            array = self._group.get(name)
        except UserError:
            raise
        except Exception as error:  # what a wrong document raises is up to Zarr
            said = " ".join(str(error).split())
            msg = f"The array '{name}' of {self.path} is damaged ({said}); run the study again with --fresh"
            raise UserError(msg) from error
        if not isinstance(array, zarr.Array):
            return None
        self._arrays[name] = array
        return array

    def _make_fill(self, name: str) -> NDArray[Any]:
        """The fill of an absent array in its full shape; takes the memory of one number."""
        spec = self.specs[name]
        return np.broadcast_to(np.array(spec.fill, spec.dtype), spec.shape(self.sizes))

    @property
    def is_derived(self) -> bool:
        """Whether it is computed from a tensor store."""
        return "tensors" in self.provenance

    def _describe_remedy(self) -> str:
        """What to do if data are lost: a store that is derived from another can be recomputed on its own."""
        if self.is_derived:
            return f"delete {self.path} and run the study again, which recomputes it"
        return "run again with --fresh to extract it again"

    def read(self, name: str, index: Any) -> NDArray[Any]:
        """Read the part of the array ``name`` that ``index`` selects, float16 as float32.

        Raises
        ------
        UserError
            If its data have been dropped, or a finished sequence is damaged.
        """
        if name in self.absent:
            return np.array(self._make_fill(name)[index])
        readable = _CheckedArray(self, name, self.array(name))
        sequence, *others = index if isinstance(index, tuple) else (index,)
        is_part = isinstance(sequence, int | slice)
        numbers = np.arange(readable.shape[0])[sequence] if self._is_whole and is_part else np.empty(0, np.int64)
        if numbers.size and all(self._keep_sequence(readable, int(number)) for number in numbers.flat):
            kept = [self._kept[name, int(number)][tuple(others)] for number in numbers.flat]
            part = np.array(kept if numbers.ndim else kept[0])
        else:
            part = readable[index]
        return part.astype(np.float32) if part.dtype == np.float16 else part

    def _keep_sequence(self, readable: "_CheckedArray", sequence: int) -> bool:
        """Whether one sequence of an array is in memory, after keeping it there if it is small and there is room."""
        key = readable.name, sequence
        if key not in self._kept:
            size = readable.dtype.itemsize * prod(readable.shape[1:])
            if size > KEPT_SEQUENCE or self._kept_bytes + size + KEPT_BESIDE > KEPT:
                return False
            self._kept_bytes += size + KEPT_BESIDE
            self._kept[key] = readable[sequence]
        return True

    def read_ledger(self) -> NDArray[np.bool_]:
        """Which sequences are completely written: bool (sequence,); ``UserError`` if the ledger is damaged."""
        return self.read(LEDGER, slice(None)).astype(bool)

    def find_missing(self) -> list[int]:
        """The sequences that are not written yet, in order."""
        return [int(index) for index in np.flatnonzero(~self.read_ledger())]

    def require_complete(self) -> Self:
        """Return the store itself, if its ledger is complete; from then on it keeps up to ``KEPT`` bytes of read data.

        Raises
        ------
        UserError
            If sequences are missing.
        """
        if missing := self.find_missing():
            msg = (
                f"The store {self.path} lacks {len(missing)} of {self.sizes['sequence']} sequences; "
                "run the study again, it continues after the last one"
            )
            raise UserError(msg)
        self._is_whole = True
        shards.keep_memory()
        return self

    def write(
        self,
        sequence: int,
        arrays: Mapping[str, NDArray[Any]],
        *,
        before_ledger: Callable[[], None] = lambda: None,
    ) -> None:
        """Write all arrays of one sequence, then its ledger entry.

        A process may be killed at any moment; a machine that loses power may lose what its system had not yet written.
        Besides the given arrays it holds 2 (``shards.WORKERS`` + 2) chunks at most, each of ``CHUNK_BYTES`` at most:
        384 MiB on four cores or more, less if the arrays are contiguous or not compressed; for an
        object store 32 MiB more.

        Parameters
        ----------
        sequence
            Index along the axis ``sequence``.
        arrays
            Every declared array but the ledger, by name, each without the axis ``sequence``; they may be strided views.
            Optional ones may be left out, and are not written if the store was made without them.
        before_ledger
            Called once the arrays are written; what it raises keeps the sequence out of the ledger.

        Raises
        ------
        ValueError
            If an array is missing, undeclared, or has another shape than declared.
        UserError
            If an array has been dropped, or an object store does not accept it.
        """
        wanted = {name: spec.shape(self.sizes)[1:] for name, spec in self._present.items() if name != LEDGER}
        left_out = {name: self._make_fill(name)[0] for name in wanted if self.specs[name].optional}
        arrays = left_out | {name: array for name, array in arrays.items() if name not in self.absent}
        shapes = {name: array.shape for name, array in arrays.items()}
        if wanted != shapes:
            msg = f"one sequence of {self.path.name} needs the shapes {wanted}, got {shapes}"
            raise ValueError(msg)
        with shards.start_workers() as pool:
            for name, array in arrays.items():
                self._write_shard(name, sequence, np.asarray(array), pool)
            before_ledger()
            self._write_shard(LEDGER, sequence, np.uint8(1), pool)

    def _write_shard(self, name: str, sequence: int, data: Any, pool: Executor) -> None:
        """Write one sequence of one array: one shard."""
        array = self.array(name)
        shard = np.asarray(data)[np.newaxis]
        try:
            self.path.write(_build_shard_name(array, sequence), shards.encode_shard(array, shard, pool), shard.nbytes)
        except FloatingPointError as error:
            msg = (
                f"Sequence {sequence} has numbers of '{name}' that are too large for {array.dtype}, "
                f"the type they are stored in; run again with --fresh and {name}: float32"
            )
            raise UserError(msg) from error

    def drop(self, names: Collection[str]) -> None:
        """Delete the data of these arrays for good; call it while no other process works on the store.

        If the process is killed meanwhile, each array is either dropped or complete as before; dropping again deletes
        the rest, and so does ``resume``. In a folder nothing is written until all is deleted, so that it works on a
        full disk: the chunks of an array are renamed together. An object store cannot rename, so there the names of the
        dropped arrays are written first.

        Raises
        ------
        ValueError
            If one is not an array of the store, or is its ledger.
        """
        if unknown := set(names) - (self.specs.keys() - {LEDGER}):
            msg = f"{self.path.name} cannot drop {sorted(unknown)}"
            raise ValueError(msg)
        dropped = sorted({*self.dropped, *names})
        if self.path.is_remote:
            self._record_dropped(dropped)
            self._delete_chunks(names)
        else:
            self._delete_chunks(names)
            self._record_dropped(dropped)

    def _record_dropped(self, names: Sequence[str]) -> None:
        attributes = {**self._group.attrs, "dropped": names}
        self._group.attrs.put(_seal_attributes(attributes) if DIGEST in attributes else attributes)

    def _delete_chunks(self, names: Collection[str]) -> None:
        """Delete all chunks of these arrays, and leftovers of killed processes."""
        for name in names:
            chunks = self.path.join(name, CHUNKS)
            chunks.remove()
            chunks.remove_leftovers()

    def measure_size(self) -> int:
        """Bytes of all files of the store."""
        return self.path.measure_size()


class _CheckedArray:
    """An array of a store as ``read`` indexes it; damage is a UserError that names the sequence.

    Zarr detects wrong bytes by their checksums, but reads a missing or empty shard as fill. The shard of a finished
    sequence is neither missing nor empty, even if all its chunks are fill, so its file is checked if only fill was
    read.
    """

    def __init__(self, store: SequenceStore, name: str, array: "zarr.Array[Any]") -> None:
        self._store, self.name, self._require_array = store, name, array
        self.shape, self.dtype = array.shape, array.dtype

    def __getitem__(self, index: Any) -> NDArray[Any]:
        first, *others = index if isinstance(index, tuple) else (index,)
        if first is Ellipsis:
            first, others = slice(None), [Ellipsis, *others]
        sequences = np.arange(self.shape[0])[first]
        try:
            part = self._read((first, *others))
        except ValueError as error:
            for sequence in sequences if sequences.ndim else []:
                self[(int(sequence), *others)]  # which raises for the first that is damaged
            raise self._make_sequence_error(sequences) from error
        for sequence, numbers in zip(sequences.flat, part if sequences.ndim else [part], strict=True):
            if shards.is_fill(np.asarray(numbers), self._require_array.fill_value) and self._is_lost(int(sequence)):
                raise self._make_sequence_error(sequence)
        return part

    def _read(self, index: tuple[Any, ...]) -> NDArray[Any]:
        """What an index selects: through Zarr, unless it is a part of shards in a folder."""
        array, place = self._require_array, self._store.path
        parts = _list_parts(index, self.shape)
        if parts is None or not isinstance(place, LocalPlace):
            return np.asarray(array[index])
        selected = np.empty([part.stop - part.start for part in parts], self.dtype)
        sequences = range(parts[0].start, parts[0].stop)
        files = (place.path / _build_shard_name(array, sequence) for sequence in sequences)
        shards.read_shards(array, files, parts[1:], selected)
        return selected[tuple(0 if isinstance(part, int) else slice(None) for part in index)]

    def _is_lost(self, sequence: int) -> bool:
        """Whether a sequence is finished but its shard is missing or empty."""
        if self.name == LEDGER or self._store.path.has_file(_build_shard_name(self._require_array, sequence)):
            return False
        return bool(self._store.read_ledger()[sequence])

    def _make_sequence_error(self, sequence: Any) -> UserError:
        msg = f"The array '{self.name}' of {self._store.path} is damaged in sequence {sequence}"
        kind = DerivedDamageError if self._store.is_derived else UserError
        return kind(f"{msg}; {self._store._describe_remedy()}")


def _list_parts(index: tuple[Any, ...], shape: tuple[int, ...]) -> list[slice] | None:
    """The start and stop along each axis of what an index selects; None if it is no block of the array."""
    if any(part is Ellipsis for part in index):
        return None
    whole = (*index, *[slice(None)] * (len(shape) - len(index)))
    parts = []
    for part, size in zip(whole, shape, strict=True):
        if isinstance(part, int) and -size <= part < size:
            parts.append(slice(part % size, part % size + 1))
        elif isinstance(part, slice) and part.step in {None, 1}:
            start, stop, _ = part.indices(size)
            parts.append(slice(start, max(start, stop)))
        else:
            return None
    return parts


def _build_shard_name(array: "zarr.Array[Any]", sequence: int) -> str:
    """The name in its store of the file that holds one sequence of an array."""
    return f"{array.basename}/{array.metadata.encode_chunk_key((sequence, *[0] * (array.ndim - 1)))}"


KEPT = 2**25
"""Most bytes that an open store keeps of sequences read one at a time; enough for all that is read of a small study."""

KEPT_SEQUENCE = 2**21
"""A sequence of an array with more bytes than this is not kept, but read piece by piece as requested."""

KEPT_BESIDE = 2**9
"""Bytes that one kept sequence takes besides its numbers, so that many tiny ones stay within the limit too."""

LEDGER = "finished"
"""The array that records which sequences are written."""

CHUNKS = "c"
"""The folder of an array's chunks."""


DOCUMENT = "zarr.json"
"""The file of a group's or an array's document."""

DOCUMENTS = "documents"
"""The attribute that has the SHA-256 of each array's document."""

DIGEST = "digest"
"""The attribute that has the SHA-256 of all other attributes; stores of earlier versions have neither."""


def _seal_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a group with their digest."""
    rest = {name: value for name, value in attributes.items() if name != DIGEST}
    return {**rest, DIGEST: _compute_digest(json.dumps(rest, sort_keys=True).encode())}


def _compute_digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _find_attribute_fault(attributes: dict[str, Any]) -> str | None:
    """What is wrong with the attributes of a group; None if nothing is."""
    if DIGEST in attributes and _seal_attributes(attributes) != attributes:
        return "it has changed since it was written"
    for name, kind in {"sizes": dict, "layers": list, "provenance": dict}.items():
        if not isinstance(attributes.get(name), kind):
            return f"it has no '{name}'"
    try:
        tuple(LayerSize(**layer) for layer in attributes["layers"])
        tuple(int(size) for size in attributes["sizes"].values())
    except (TypeError, ValueError) as error:
        return str(error)
    return None


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
            shards=spec.shard(sizes),
            compressors=shards.select_codecs(spec.compression),
            fill_value=spec.fill,
            dimension_names=spec.dims,
            attributes={"unit": spec.unit, "meaning": spec.meaning},
        )
    documents = {spec.name: _compute_digest((folder / spec.name / DOCUMENT).read_bytes()) for spec in specs}
    group.attrs.put(_seal_attributes({**group.attrs, DOCUMENTS: documents}))


def _repeat_layer_size(sizes: Mapping[str, int]) -> list[LayerSize]:
    """Layers that all have the sizes of the axes; 0 along axes that the store does not have."""
    heads, kv_heads, head_dim = (sizes.get(axis, 0) for axis in ("head", "kv_head", "head_dim"))
    return [LayerSize(heads, kv_heads, head_dim)] * sizes.get("layer", 0)
