"""Zarr stores written one sequence at a time, with a ledger: crash-safe, resumable, self-describing.

Holds ``SequenceStore``, which both the tensor store and the metrics store are. What does not belong here: which arrays
there are (``storage.arrays``), and anything about models, metrics or SQL.

One shard is one sequence of one array and has one writer, because Zarr's shards are the atomic unit of writing. The
ledger entry of a sequence is written after its data, so a killed writer loses at most the sequence in hand.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import dask.array as da
import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import BloscCodec, Crc32cCodec

from storage.arrays import FORMAT_VERSION, ArraySpec
from storage.aside import beside, sweep
from storage.errors import UserError

Provenance = Mapping[str, Any]
"""What made a store, as JSON: ``study``, ``settings``, ``inputs`` (hashes) and ``versions`` (libraries)."""


class SequenceStore:
    """A Zarr group whose arrays share the axis ``sequence``, written sequence by sequence.

    Make one with ``resume`` (create, or continue what is there) or ``open`` (what must be there).
    """

    def __init__(self, path: Path, group: zarr.Group, specs: Sequence[ArraySpec]) -> None:
        self.path = path
        self.specs = {spec.name: spec for spec in specs}
        self._group = group

    @classmethod
    def open(cls, path: Path, specs: Sequence[ArraySpec]) -> Self:
        """Open an existing store.

        Raises
        ------
        UserError
            If there is none, if its format is of another version, or if its arrays are not the declared ones.
        """
        if not path.exists():
            msg = f"There is no store at {path}; run the study first"
            raise UserError(msg)
        try:
            group = zarr.open_group(path, mode="r+")
            found = group.attrs.get("format_version")
        except (OSError, ValueError, KeyError, TypeError) as error:
            msg = f"The store {path} is damaged ({' '.join(str(error).split())}); run the study again with --fresh"
            raise UserError(msg) from error
        if found != FORMAT_VERSION:
            msg = (
                f"The store {path} has format version {found}, this program reads {FORMAT_VERSION}; "
                "run the study again with --fresh to rebuild it"
            )
            raise UserError(msg)
        store = cls(path, group, specs)
        store._validate()
        return store

    @classmethod
    def resume(cls, path: Path, specs: Sequence[ArraySpec], sizes: Mapping[str, int], provenance: Provenance) -> Self:
        """Open the store at ``path`` if it was made from the same ``provenance``, or create an empty one.

        A finished store may have been written by other library versions; an unfinished one may not, since it would
        mix what they compute. Call it from one process at a time: what a killed one left half-written is removed.

        Raises
        ------
        UserError
            If a store with another provenance or other sizes stands there; the message names the differing fields.
        """
        _sweep(path)
        if not path.exists():
            cls._create(path, specs, sizes, provenance)
        store = cls.open(path, specs)
        old, new = dict(store.provenance), dict(provenance)
        if not store.missing():
            old.pop("versions", None)
            new.pop("versions", None)
        if store.sizes != dict(sizes):
            old["sizes"], new["sizes"] = store.sizes, dict(sizes)
        differences = list(_differences(old, new))
        if differences:
            msg = (
                f"The store {path} was made with other settings: {'; '.join(differences)}. "
                "Run again with --fresh to replace it, or give the study another name"
            )
            raise UserError(msg)
        return store

    @classmethod
    def _create(cls, path: Path, specs: Sequence[ArraySpec], sizes: Mapping[str, int], provenance: Provenance) -> None:
        """Make the empty store aside and rename it, so that a store at ``path`` is always a whole one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = beside(path)
        try:
            group = zarr.create_group(
                aside,
                attributes={"format_version": FORMAT_VERSION, "sizes": dict(sizes), "provenance": dict(provenance)},
            )
            for spec in specs:
                group.create_array(
                    spec.name,
                    shape=spec.shape(sizes),
                    dtype=spec.dtype,
                    chunks=spec.chunk(sizes),
                    shards=spec.shard(sizes),
                    compressors=[BloscCodec(cname="zstd", clevel=1, shuffle="shuffle"), Crc32cCodec()],
                    fill_value=spec.fill,
                    dimension_names=spec.dims,
                    attributes={"unit": spec.unit, "meaning": spec.meaning},
                )
            aside.rename(path)
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _validate(self) -> None:
        """Refuse a store whose arrays are not the declared ones."""
        sizes = self.sizes
        for spec in self.specs.values():
            try:
                array = self._group.get(spec.name)
            except (OSError, ValueError, KeyError, TypeError) as error:
                msg = f"The array '{spec.name}' of {self.path} is damaged ({error}); run the study again with --fresh"
                raise UserError(msg) from error
            if not isinstance(array, zarr.Array):
                msg = f"The store {self.path} has no array '{spec.name}'; run the study again with --fresh"
                raise UserError(msg)
            wanted, found = (spec.shape(sizes), spec.dtype), (array.shape, str(array.dtype))
            if wanted != found:
                msg = f"The array '{spec.name}' of {self.path} is {found}, declared {wanted}; run again with --fresh"
                raise UserError(msg)

    @property
    def provenance(self) -> dict[str, Any]:
        """What made this store."""
        found: Any = self._group.attrs["provenance"]
        return dict(found)

    @property
    def sizes(self) -> dict[str, int]:
        """Size of each axis by name."""
        found: Any = self._group.attrs["sizes"]
        return {str(name): int(size) for name, size in found.items()}

    def array(self, name: str) -> zarr.Array[Any]:
        """The Zarr array ``name``."""
        array = self._group[name]
        if not isinstance(array, zarr.Array):
            msg = f"'{name}' is no array of {self.path}"
            raise KeyError(msg)
        return array

    def lazy(self, name: str) -> da.Array:
        """The array ``name`` as a Dask array, one block per stored chunk; nothing is read yet."""
        array = self.array(name)
        lazy: da.Array = da.from_array(
            array, chunks=array.chunks, name=False, meta=np.empty((0,) * array.ndim, array.dtype)
        )
        return lazy

    def finished(self) -> NDArray[np.bool_]:
        """Which sequences are written whole, as the ledger has it: bool (sequence,)."""
        return np.asarray(self.array("finished")[:]).astype(bool)

    def missing(self) -> list[int]:
        """The sequences that are not written yet, in order."""
        return [int(index) for index in np.flatnonzero(~self.finished())]

    def whole(self) -> Self:
        """The store itself, if its ledger is complete.

        Raises
        ------
        UserError
            If sequences are missing.
        """
        if missing := self.missing():
            msg = (
                f"The store {self.path} lacks {len(missing)} of {self.sizes['sequence']} sequences; "
                "run the study again, it continues after the last one"
            )
            raise UserError(msg)
        return self

    def write(self, sequence: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write all arrays of one sequence, then its ledger entry.

        A process may be killed at any moment; a machine that loses power may lose what its system had not yet written.

        Parameters
        ----------
        sequence
            Index along the axis ``sequence``.
        arrays
            Every declared array but the ledger, by name, each without the axis ``sequence``.

        Raises
        ------
        ValueError
            If an array is missing, undeclared, or has another shape than declared.
        """
        wanted = {name: spec.shape(self.sizes)[1:] for name, spec in self.specs.items() if name != "finished"}
        found = {name: array.shape for name, array in arrays.items()}
        if wanted != found:
            msg = f"one sequence of {self.path.name} needs the shapes {wanted}, got {found}"
            raise ValueError(msg)
        for name, array in arrays.items():
            self.array(name)[sequence] = array
        self.array("finished")[sequence] = 1

    def bytes_on_disk(self) -> int:
        """Bytes of all files of the store."""
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())


def _sweep(path: Path) -> None:
    """Remove what a killed process left half-made of the store at ``path``, beside it and in it."""
    sweep(path)
    for leftover in path.rglob("*.partial"):
        leftover.unlink()


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The fields in which two nested mappings differ, as ``field (stored X, asked Y)``."""
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _differences(before, after, f"{prefix}{key}.")
        elif before != after:
            yield f"{prefix}{key} (stored {before!r}, asked {after!r})"
